"""Which queues of the Streams wire a worker reads, and in which one each of its tasks is enqueued.

Called when a worker is built (J-53). Pure.
"""

from collections.abc import Mapping
from typing import NamedTuple

from jobwire.job.engine import Use
from jobwire.settings import Settings, SettingsError
from jobwire.systems.jobs.contract import DEFAULT_QUEUE, QUEUE_NAME, SOURCE_TASKS
from jobwire.worker import App
from jobwire.worker.app import CATCH_ALL, Handler

_WIRE = "streams"
_USES = frozenset[Use]({"durable"})


class AppQueues(NamedTuple):
    """The queues of an App."""

    queues: tuple[str, ...]
    """Those that its worker reads; empty if the App has no handler for this wire."""
    by_task: Mapping[str, str]
    """Task → the queue in which its jobs are enqueued."""
    by_cron: Mapping[str, str]
    """Cron entry of this wire → the queue in which its jobs are enqueued."""
    apart: frozenset[str]
    """Those of handlers with a limit: each is read wherever the App's own queue is."""
    former: str
    """The queue in which earlier releases would have enqueued the App's tasks, or empty."""

    def tasks_in(self, queue: str) -> list[str]:
        """The tasks whose jobs are enqueued there."""
        return [task for task, own in self.by_task.items() if own == queue]


def app_queues(app: App, settings: Settings) -> AppQueues:
    """The six tasks and those of `jobs.tasks` are enqueued in the default queue, every other task
    in its handler's queue or, without one, in the App's; SettingsError for an invalid name.

    A handler with `concurrency` and without a queue has one of its own: a worker at the handler's
    limit reads it no further, and the jobs of others are not behind it (J-36)."""
    in_default = frozenset((*SOURCE_TASKS, *settings.jobs.tasks))
    own = app.name or DEFAULT_QUEUE
    by_task: dict[str, str] = {}
    queues: dict[str, None] = {}
    of_named_queues = _of_named_queues(app, settings)
    apart: set[str] = set()
    for handler in (*app.handlers.values(), *of_named_queues):
        by_task.setdefault(
            handler.task, DEFAULT_QUEUE if handler.task in in_default else handler.queue or own
        )
        if by_task[handler.task] == own and handler.concurrency is not None and not handler.queue:
            queue = f"{own}.{handler.task}"
            if QUEUE_NAME.fullmatch(queue):
                by_task[handler.task] = queue
                apart.add(queue)
        if "durable" in handler.uses and by_task[handler.task] == DEFAULT_QUEUE:
            reason = "foreign workers may take jobs of the queue 'default': name the App or queue="
            raise SettingsError([f"handler {handler.task!r} uses durable: {reason}"])
        if handler.task in in_default:
            queues[DEFAULT_QUEUE] = None
        if handler.queue or handler.task not in in_default:
            queues[handler.queue or own] = None
    if queues and settings.worker.default_queue:
        queues[DEFAULT_QUEUE] = None
    for queue in queues:
        if not QUEUE_NAME.fullmatch(queue):
            where = "the App's name" if queue == app.name else "queue="
            rule = "use up to 100 letters, digits, '_', '.', '-', with a letter or digit first"
            raise SettingsError([f"{where} {queue!r} is not a valid queue name: {rule}"])
    queues |= dict.fromkeys(sorted(apart))
    named = {(handler.queue, handler.task) for handler in of_named_queues}
    by_cron = {
        entry.name: DEFAULT_QUEUE
        if entry.task in in_default
        else entry.queue or by_task.get(entry.task, own)
        for entry in app.crons
        if not entry.queue or (entry.queue, entry.task) in named
    }
    former = app.former_name
    if former in queues or own not in queues or not QUEUE_NAME.fullmatch(former):
        former = ""
    return AppQueues(tuple(queues), by_task, by_cron, frozenset(apart), former)


def _of_named_queues(app: App, settings: Settings) -> list[Handler]:
    """The handlers of named queues of this wire. One that names no wire is for this one, unless it
    needs another wire or its queue is set as one of theirs."""
    others = {*settings.queues.names, *app.queues("bullmq")}
    return [
        handler
        for handler in app.queue_handlers
        if handler.wire == _WIRE
        or (
            not handler.wire
            and handler.queue not in others
            and handler.task != CATCH_ALL
            and handler.uses <= _USES
        )
    ]
