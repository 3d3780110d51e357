"""The system `queues`: queues of the BullMQ wire, served by the worker beside its other jobs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Generator, Sequence
from typing import TYPE_CHECKING, Final

from jobwire.settings import SettingsError
from jobwire.wiring.systems import (
    Backend,
    Background,
    GatewayContext,
    System,
    WorkerContext,
    WorkerParts,
)

if TYPE_CHECKING:
    from jobwire.gateway.feature import Feature
    from jobwire.objects.lifecycle import Rule
    from jobwire.settings import Settings
    from jobwire.worker import App


@contextlib.asynccontextmanager
async def _feature(_: GatewayContext) -> AsyncGenerator[Feature]:
    from jobwire.gateway.feature import Feature

    yield Feature(name="queues")


@contextlib.contextmanager
def _tasks(app: App, settings: Settings) -> Generator[Sequence[Background]]:
    from jobwire.wiring.video import register_video

    register_video(app, settings)
    yield []


def _lifecycle_rules() -> Sequence[Rule]:
    from jobwire.wiring.video import LIFECYCLE

    return LIFECYCLE


def _engines(context: WorkerContext) -> WorkerParts:
    """One engine for each queue that a handler names or that is set; they share their sockets."""
    from jobwire.job.errors import RefusedError
    from jobwire.valkey import Config, ConfigError
    from jobwire.wires.bullmq.checks import check_queue_name
    from jobwire.wires.bullmq.engine import BullEngine
    from jobwire.wires.bullmq.hub import BullHub

    settings = context.settings.queues
    names = dict.fromkeys((*context.app.queues(BullEngine.wire), *settings.names))
    if not names:
        return WorkerParts(engines=[])
    try:
        for name in names:
            check_queue_name(name)
    except RefusedError as error:
        raise SettingsError([f"queues.names: {error}"]) from error
    try:
        server = Config.from_url(settings.url) if settings.url else context.backends.valkey
    except ConfigError as error:
        raise SettingsError([f"queues.url: {error}"]) from error
    hub = BullHub(server, settings.bull())
    return WorkerParts(engines=[BullEngine(hub, name) for name in names])


SYSTEM: Final = System(
    name="queues",
    needs=frozenset({Backend.VALKEY}),
    uses=frozenset({Backend.BUCKET}),
    feature=_feature,
    tasks=_tasks,
    engines=_engines,
    lifecycle_rules=_lifecycle_rules,
)
