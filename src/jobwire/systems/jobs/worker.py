"""The Streams wire in a worker: the six tasks, the queue and the cron schedules."""

import contextlib
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from jobwire.handlers.llm import register
from jobwire.job.errors import BackendUnavailable
from jobwire.job.messages import ServedQueue
from jobwire.settings import Settings, SettingsError
from jobwire.systems.jobs.app_queues import AppQueues, app_queues
from jobwire.systems.jobs.consumer_names import new_consumer
from jobwire.systems.jobs.cron_store import StreamsCronStore
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.registry import WorkerRegistry
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.systems.jobs.shard_table import ShardTable
from jobwire.systems.jobs.shared_cancels import SharedCancels
from jobwire.systems.jobs.system import jobs_settings
from jobwire.systems.system import Background, WorkerContext, WorkerParts
from jobwire.valkey import Connection
from jobwire.worker import App
from jobwire.worker.scheduler import CronScheduler

_log: Final = logging.getLogger("jobwire.worker")


@contextlib.contextmanager
def six_tasks(app: App, settings: Settings) -> Generator[Sequence[Background]]:
    """Add the six tasks to an App and log their missing requirements; the models are closed at the
    end."""
    models = register(app, settings.llm)
    try:
        for missing in models.missing_requirements():
            _log.warning(
                "requirement missing requirement=%(requirement)s error=%(error)s fix=%(fix)s; its "
                "tasks fail",
                {"requirement": missing.part, "error": missing.wrong, "fix": missing.fix},
            )
        yield [models.watch]
    finally:
        models.close()


async def _warn_of_other_queues(registry: WorkerRegistry, by_task: Mapping[str, str]) -> None:
    """Log the tasks of this worker that live workers have in another queue: their jobs wait in the
    queue of the worker that was started last (J-53)."""
    with contextlib.suppress(BackendUnavailable):
        live = await registry.task_queues()
        for task, queue in by_task.items():
            if others := [other for other in live.get(task, ()) if other != queue]:
                _log.warning(
                    "task is live in several queues task=%(task)s queue=%(queue)s "
                    "others=%(others)s; new jobs wait in the queue of the newest worker",
                    {"task": task, "queue": queue, "others": ",".join(others)},
                )


def jobs_engines(context: WorkerContext) -> WorkerParts:
    """Return the worker's end of its queues, and the scheduler of the App's cron entries."""
    connection, jobs = context.backends.valkey, jobs_settings(context.settings)
    found = app_queues(context.app, context.settings)
    queues = [
        queue
        for queue in found.queues
        if context.reads(queue, context.app.name if queue in found.apart else "")
    ]
    if not queues:
        return WorkerParts(engines=[])
    own = {
        handler.task: handler.keep_done
        for handler in (*context.app.queue_handlers, *context.app.handlers.values())
        if handler.keep_done
    }
    engine = partial(
        StreamsEngine,
        queues=queues,
        task_queues=found.by_task,
        former_queue=found.former if context.app.name in queues else "",
        replaces_pid=context.replaces_pid,
    )
    settings = replace(jobs, keep_done_of=own)
    if jobs.shards.numbers:
        return _sharded(context, settings, engine, found, queues)
    return _parts(context, connection, jobs, [engine(connection, settings)], found, queues)


def _sharded(
    context: WorkerContext,
    jobs: StreamsSettings,
    engine: Callable[..., StreamsEngine],
    found: AppQueues,
    queues: Sequence[str],
) -> WorkerParts:
    """One engine for each shard that the worker reads, under one consumer name (G-4). Its
    registration is in the first shard, whichever it reads."""
    connections, bound = context.backends.shards, context.settings.worker.shards
    if unknown := [number for number in bound if number not in connections]:
        raise SettingsError([f"worker.shards: there is no shard {unknown[0]} in jobs.shards"])
    table = ShardTable(connections[0], jobs)
    consumer = new_consumer()
    cancels = {each: SharedCancels(each) for each in dict.fromkeys(connections.values())}
    engines = {
        number: engine(
            connection,
            jobs.of_shard(number),
            consumer=consumer,
            before_register=None if number else table.join,
            shared_cancels=cancels[connection],
        )
        for number, connection in connections.items()
    }
    if bound and 0 not in bound:
        engines[0].only_register()
    read = [each for number, each in engines.items() if not number or not bound or number in bound]
    parts = _parts(context, connections[0], jobs.of_shard(0), read, found, queues)
    return replace(parts, background=[*parts.background, table.run_until_cancelled])


def _parts(
    context: WorkerContext,
    connection: Connection,
    jobs: StreamsSettings,
    engines: Sequence[StreamsEngine],
    found: AppQueues,
    queues: Sequence[str],
) -> WorkerParts:
    """`connection` and `jobs` are those of the cron entries and the registrations."""
    first = engines[0]
    crons = [entry for entry in context.app.crons if entry.name in found.by_cron]
    scheduler = CronScheduler(crons, StreamsCronStore(connection, jobs, found.by_cron))
    served = [ServedQueue(first.wire, name, tuple(sorted(found.tasks_in(name)))) for name in queues]
    by_task = {task: queue for task, queue in found.by_task.items() if queue in queues}
    return WorkerParts(
        engines=engines,
        served=served,
        background=[
            scheduler.run,
            partial(_warn_of_other_queues, WorkerRegistry(connection, jobs), by_task),
        ],
        describe_process=first.describe_process,
    )
