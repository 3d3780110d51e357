"""Jobs of the Streams wire in a gateway: routes, live events, a share of the duties."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import replace

from jobwire.gateway.feature import Feature
from jobwire.gateway.streams import Streams
from jobwire.job.errors import BackendUnavailable
from jobwire.log import component
from jobwire.maintenance import Maintenance
from jobwire.settings import Settings
from jobwire.valkey import Connection
from jobwire.wires.streams.contract import StreamsKeys
from jobwire.wires.streams.engine import StreamsEngine
from jobwire.wires.streams.follow import Follower
from jobwire.wires.streams.http import feature
from jobwire.wires.streams.scripts import SCRIPTS
from jobwire.wires.streams.settings import StreamsSettings
from jobwire.wiring.backends import PATIENCE_S
from jobwire.wiring.tasks import task_definitions

_log = component("gateway")


def jobs_settings(settings: Settings) -> StreamsSettings:
    """The wire's own, with the lease that the worker's section has."""
    return replace(settings.jobs, lease_s=settings.worker.lease.total_seconds())


async def _make_group(engine: StreamsEngine) -> None:
    """For foreign workers, which may expect the group to be there (J-30)."""
    try:
        await engine.make_group()
    except BackendUnavailable as error:
        _log.warning("consumer group not made: %s; the first worker makes it", error.detail)


@contextlib.asynccontextmanager
async def jobs_feature(
    settings: Settings, connection: Connection, streams: Streams
) -> AsyncGenerator[Feature]:
    """The room; inside, events are followed and duties are done (J-41)."""
    jobs = jobs_settings(settings)
    await connection.load_scripts(SCRIPTS.values())
    follower = Follower(StreamsKeys(jobs.key_prefix))
    engine = StreamsEngine(connection, jobs)
    await _make_group(engine)
    duties = Maintenance(engine.maintenance())
    following = follower.running(connection.config, connection.name, patience_s=PATIENCE_S)
    async with following, asyncio.TaskGroup() as group:
        doing = group.create_task(duties.run())
        try:
            yield feature(connection, jobs, follower, streams, task_definitions(), settings.gateway)
        finally:
            doing.cancel()
