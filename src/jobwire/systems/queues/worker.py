"""The BullMQ wire in a worker: its queues, and the handler of the queue `video-generation`."""

import contextlib
from collections.abc import Generator, Sequence

from jobwire.job.errors import RefusedError
from jobwire.settings import Settings, SettingsError
from jobwire.systems.queues.checks import check_queue_name
from jobwire.systems.queues.engine import BullEngine
from jobwire.systems.queues.server import queues_server
from jobwire.systems.queues.video import register_video
from jobwire.systems.queues.worker_connections import WorkerConnections
from jobwire.systems.system import Background, WorkerContext, WorkerParts
from jobwire.worker import App


@contextlib.contextmanager
def video_task(app: App, settings: Settings) -> Generator[Sequence[Background]]:
    """Add the handler of `video-generation` to an App."""
    register_video(app, settings)
    yield []


def queues_engines(context: WorkerContext) -> WorkerParts:
    """One engine for each queue that a handler names or that is set; they share their sockets."""
    settings = context.settings.queues
    names = dict.fromkeys((*context.app.queues(BullEngine.wire), *settings.names))
    if not names:
        return WorkerParts(engines=[])
    try:
        for name in names:
            check_queue_name(name)
    except RefusedError as error:
        raise SettingsError([f"queues.names: {error}"]) from error
    shared = WorkerConnections(
        queues_server(context.settings, context.backends.valkey), settings.bull()
    )
    return WorkerParts(engines=[BullEngine(shared, name) for name in names])
