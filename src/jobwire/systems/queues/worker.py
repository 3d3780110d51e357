"""The BullMQ wire in a worker: its queues, and the handler of the queue `video-generation`."""

import asyncio
import contextlib
import logging
from collections.abc import Generator, Sequence
from functools import partial
from typing import Final

from jobwire.job.errors import BackendUnavailable, RefusedError
from jobwire.job.messages import ServedQueue
from jobwire.settings import Settings, SettingsError
from jobwire.systems.queues.checks import check_queue_name
from jobwire.systems.queues.codec import json_text
from jobwire.systems.queues.engine import BullEngine
from jobwire.systems.queues.queue import NewBullJob, QueueProducer
from jobwire.systems.queues.replies import raises_unavailable
from jobwire.systems.queues.schedulers import Repeat, Schedulers
from jobwire.systems.queues.server import queues_server
from jobwire.systems.queues.video import register_video
from jobwire.systems.queues.worker_connections import WorkerConnections
from jobwire.systems.system import Background, WorkerContext, WorkerParts
from jobwire.worker import App
from jobwire.worker.app import CATCH_ALL
from jobwire.worker.scheduler import CronEntry

_log: Final = logging.getLogger("jobwire.worker.cron")
_RETRY_S: Final = 5.0


@contextlib.contextmanager
def video_task(app: App, settings: Settings) -> Generator[Sequence[Background]]:
    """Add the handler of `video-generation` to an App."""
    register_video(app, settings)
    yield []


def queues_engines(context: WorkerContext) -> WorkerParts:
    """One engine for all queues that a handler names or that are set."""
    settings = context.settings.queues
    app = context.app
    of_app = dict.fromkeys((*app.queues(BullEngine.wire), *settings.names))
    names = [name for name in of_app if context.reads(name)]
    if not names:
        return WorkerParts(engines=[])
    try:
        for name in names:
            check_queue_name(name)
    except RefusedError as error:
        raise SettingsError([f"queues.names: {error}"]) from error
    server = queues_server(context.settings, context.backends.valkey)
    shared = WorkerConnections(server, settings.bull(), worker_name=settings.worker_name)
    handled = [name for name in names if app.routes(BullEngine.wire, name).all]
    crons = [
        entry for entry in app.crons if entry.queue in names and entry.wire in ("", BullEngine.wire)
    ]
    return WorkerParts(
        engines=[BullEngine(shared, *handled)] if handled else [],
        served=[_served(app, name) for name in names],
        background=[partial(_set_schedulers, shared, crons)] if crons else (),
    )


def _served(app: App, queue: str) -> ServedQueue:
    routes = app.routes(BullEngine.wire, queue)
    rest = () if routes.catch_all is None else (CATCH_ALL,)
    return ServedQueue(BullEngine.wire, queue, (*sorted(routes.handlers), *rest))


async def _set_schedulers(shared: WorkerConnections, crons: Sequence[CronEntry]) -> None:
    """The App's cron entries on this wire are job schedulers of their queues, which every program
    sees. Runs after the engines have registered."""
    for entry in crons:
        while True:
            try:
                await _set_scheduler(shared, entry)
                break
            except RefusedError as error:
                _log.error(
                    "cron refused cron=%(cron)s error=%(error)s",
                    {"cron": entry.name, "error": error},
                )
                break
            except BackendUnavailable as error:
                _log.warning(
                    "cron not scheduled: server unavailable cron=%(cron)s error=%(error)s; will "
                    "retry",
                    {"cron": entry.name, "error": error},
                )
            await asyncio.sleep(_RETRY_S)


async def _set_scheduler(shared: WorkerConnections, entry: CronEntry) -> None:
    tz, _, pattern = entry.text.partition(" ")
    repeat = Repeat(pattern=pattern, tz=tz)
    queue = QueueProducer(shared.connection, entry.queue, shared.settings, now_ms=shared.now_ms)
    schedulers = Schedulers(queue)
    with raises_unavailable():
        found = await schedulers.get(entry.name)
        # Set anew, it would drop a run that was missed while no worker was there.
        unchanged = (
            found is not None
            and found.pending
            and (found.repeat, found.name) == (repeat, entry.task)
            and json_text(found.data) == entry.payload_json
        )
        if not unchanged:
            await schedulers.set(entry.name, repeat, NewBullJob(entry.task, entry.payload_json))
