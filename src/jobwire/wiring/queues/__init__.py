"""The system `queues`: queues of the BullMQ wire, served by the worker beside its other jobs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Generator, Sequence
from typing import TYPE_CHECKING, Final

from jobwire.settings import SettingsError
from jobwire.wiring.systems import (
    Backend,
    Background,
    GatewayContext,
    SchemaDocument,
    System,
    WorkerContext,
    WorkerParts,
)

if TYPE_CHECKING:
    from jobwire.doctor import Finding
    from jobwire.gateway.feature import Feature
    from jobwire.objects.lifecycle import Rule
    from jobwire.settings import Loaded, Settings
    from jobwire.valkey import Config, Connection
    from jobwire.worker import App


def queues_server(settings: Settings, valkey: Connection) -> Connection | Config:
    """The server of the queues: `queues.url`, else the connection of the program; SettingsError if
    the URL is wrong."""
    from jobwire.valkey import Config, ConfigError

    try:
        return Config.from_url(settings.queues.url) if settings.queues.url else valkey
    except ConfigError as error:
        raise SettingsError([f"queues.url: {error}"]) from error


def _feature(context: GatewayContext) -> contextlib.AbstractAsyncContextManager[Feature]:
    from jobwire.wiring.queues.feature import queues_feature

    return queues_feature(context.settings, context.backends.valkey, context.streams)


@contextlib.contextmanager
def _tasks(app: App, settings: Settings) -> Generator[Sequence[Background]]:
    from jobwire.wiring.queues.video import register_video

    register_video(app, settings)
    yield []


def _lifecycle_rules() -> Sequence[Rule]:
    from jobwire.wiring.queues.video import LIFECYCLE

    return LIFECYCLE


def _engines(context: WorkerContext) -> WorkerParts:
    """One engine for each queue that a handler names or that is set; they share their sockets."""
    from jobwire.job.errors import RefusedError
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
    hub = BullHub(queues_server(context.settings, context.backends.valkey), settings.bull())
    return WorkerParts(engines=[BullEngine(hub, name) for name in names])


def _schema() -> SchemaDocument:
    from jobwire.wires.bullmq.schema import wire_schema

    return wire_schema()


async def _doctor_checks(loaded: Loaded) -> AsyncIterator[Finding]:
    from jobwire.wiring.queues.doctor import examine

    async for finding in examine(loaded):
        yield finding


SYSTEM: Final = System(
    name="queues",
    needs=frozenset({Backend.VALKEY}),
    uses=frozenset({Backend.BUCKET}),
    feature=_feature,
    tasks=_tasks,
    engines=_engines,
    lifecycle_rules=_lifecycle_rules,
    doctor_checks=_doctor_checks,
    schema=_schema,
)
