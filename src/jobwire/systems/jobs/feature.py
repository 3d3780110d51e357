"""The Streams wire in a gateway: routes, live events, maintenance."""

import contextlib
from collections.abc import AsyncGenerator

from jobwire.gateway.feature import Feature
from jobwire.job.errors import BackendUnavailable
from jobwire.log import component
from jobwire.maintenance import Maintenance
from jobwire.systems.backends import START_TIMEOUT_S, retry_start
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.follow import Follower
from jobwire.systems.jobs.http import ShardParts, feature, sharded_feature
from jobwire.systems.jobs.schema_documents import task_definitions
from jobwire.systems.jobs.scripts import SCRIPTS
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.systems.jobs.shard_table import ShardTable
from jobwire.systems.jobs.system import jobs_settings
from jobwire.systems.system import GatewayContext

_log = component("gateway")


async def _make_group(engine: StreamsEngine) -> None:
    """Create the group for foreign workers, which may expect it (J-30)."""
    try:
        await engine.make_groups()
    except BackendUnavailable as error:
        _log.warning(
            "consumer group not created error=%(error)s; the first worker creates it",
            {"error": error.detail},
        )


@contextlib.asynccontextmanager
async def jobs_feature(context: GatewayContext) -> AsyncGenerator[Feature]:
    """The feature; while it is open, events are followed and maintenance runs (J-41)."""
    jobs = jobs_settings(context.settings)
    if jobs.shards.numbers:
        async with _sharded(context, jobs) as found:
            yield found
        return
    connection = context.backends.valkey
    await connection.load_scripts(SCRIPTS.values())
    follower = Follower(StreamsKeys(jobs.key_prefix))
    engine = StreamsEngine(connection, jobs)
    await _make_group(engine)
    following = follower.running(
        connection.config, connection.name, connect_timeout_s=START_TIMEOUT_S
    )
    async with following, Maintenance(engine.maintenance()).running():
        yield feature(
            connection,
            jobs,
            follower,
            context.streams,
            task_definitions(),
            context.settings.gateway,
            engine.promote_soon,
        )


@contextlib.asynccontextmanager
async def _sharded(context: GatewayContext, jobs: StreamsSettings) -> AsyncGenerator[Feature]:
    """The same over all shards; the shard table is read and reported to. Shards other than the
    first may be silent."""
    connections = context.backends.shards
    for connection in dict.fromkeys(connections.values()):
        await connection.load_scripts(SCRIPTS.values())
    table = ShardTable(connections[0], jobs)
    await retry_start("valkey", table.join)
    engines = {
        number: StreamsEngine(connection, jobs.of_shard(number))
        for number, connection in connections.items()
    }
    for number, engine in engines.items():
        if connections[number].connected:
            await _make_group(engine)
    parts = [
        ShardParts(number, connections[number], engine.promote_soon)
        for number, engine in engines.items()
    ]
    tasks, gateway = task_definitions(), context.settings.gateway
    found, follower = sharded_feature(parts, table, jobs, context.streams, tasks, gateway)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(follower.running())
        await stack.enter_async_context(table.running())
        for engine in engines.values():
            await stack.enter_async_context(Maintenance(engine.maintenance()).running())
        yield found
