"""The system `jobs`: the Streams wire, with the six tasks."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

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
    from jobwire.settings import Loaded, Settings
    from jobwire.wires.streams.settings import StreamsSettings
    from jobwire.worker import App


def jobs_settings(settings: Settings) -> StreamsSettings:
    """Return the wire's settings with the lease of the section `worker`."""
    return replace(settings.jobs, lease_s=settings.worker.lease.total_seconds())


def _feature(context: GatewayContext) -> contextlib.AbstractAsyncContextManager[Feature]:
    from jobwire.wiring.jobs.feature import jobs_feature

    return jobs_feature(context.settings, context.backends.valkey, context.streams)


@contextlib.contextmanager
def _tasks(app: App, settings: Settings) -> Generator[Sequence[Background]]:
    from jobwire.wiring.jobs.worker import six_tasks

    with six_tasks(app, settings.llm) as background:
        yield background


def _engines(context: WorkerContext) -> WorkerParts:
    from jobwire.wiring.jobs.worker import jobs_engines

    return jobs_engines(context)


def _schema() -> SchemaDocument:
    from jobwire.wiring.jobs.schema import schema

    return schema()


async def _doctor_checks(loaded: Loaded) -> AsyncIterator[Finding]:
    from jobwire.doctor import model
    from jobwire.doctor.valkey import examine_queue
    from jobwire.wires.streams.contract import StreamsKeys
    from jobwire.wiring.backends import known_valkey
    from jobwire.wiring.jobs.queue_check import examine_queues

    if (known := known_valkey(loaded)) is not None:
        queue = StreamsKeys(loaded.settings.jobs.key_prefix).queue
        async for finding in examine_queue(known.config, queue):
            yield finding
        async for finding in examine_queues(known.config, loaded.settings.jobs):
            yield finding
    async for finding in model.examine(loaded.settings.llm):
        yield finding


SYSTEM: Final = System(
    name="jobs",
    # None of the six tasks stores objects.
    needs=frozenset({Backend.VALKEY}),
    feature=_feature,
    tasks=_tasks,
    engines=_engines,
    schema=_schema,
    doctor_checks=_doctor_checks,
    example='jobwire submit chat "Why is the sky blue?" --follow',
)
