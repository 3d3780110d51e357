"""The BullMQ wire in a gateway: the server of the queues, the queues on it, and their metrics."""

import contextlib
import time
from collections.abc import AsyncGenerator

from jobwire.gateway.feature import Feature
from jobwire.gateway.limits import RequestRate
from jobwire.gateway.server_checks import connected_check
from jobwire.gateway.submissions import SubmissionLimits
from jobwire.gateway.watch_table import table_check
from jobwire.maintenance import Maintenance
from jobwire.settings import Settings
from jobwire.systems.backends import START_TIMEOUT_S, retry_start
from jobwire.systems.queues.follow import QueueFollower
from jobwire.systems.queues.http import queue_routes
from jobwire.systems.queues.http.access import QueueAccess
from jobwire.systems.queues.http.operator_view import QueuesView
from jobwire.systems.queues.http.tenant_limits import TenantLimits
from jobwire.systems.queues.known_queues import KnownQueues
from jobwire.systems.queues.metrics import BullMetrics
from jobwire.systems.queues.scripts import SCRIPTS
from jobwire.systems.queues.server import queues_server
from jobwire.systems.system import GatewayContext
from jobwire.valkey import Connection
from jobwire.valkey.server_memory import ServerMemory


@contextlib.asynccontextmanager
async def queues_feature(context: GatewayContext) -> AsyncGenerator[Feature]:
    """The feature; while it is open, events are followed and the list of known queues is kept up to
    date."""
    queues, valkey = context.settings.queues, context.backends.valkey
    follower = QueueFollower(queues.prefix)
    async with (
        _connection(context.settings, valkey) as connection,
        follower.running(connection.config, valkey.name, connect_timeout_s=START_TIMEOUT_S),
    ):
        await connection.load_scripts(SCRIPTS.values())
        known_queues = KnownQueues(connection, queues.prefix, queues.names)
        await retry_start("queues", known_queues.scan)
        access = QueueAccess(connection, queues.bull(), known_queues, queues.tenant_of)
        memory = ServerMemory(connection)
        submissions = SubmissionLimits(
            RequestRate(context.settings.gateway.effective_submit_rate, time.monotonic), memory
        )
        limits = _tenant_limits(context.settings, access, submissions, memory)
        own = {"queues.url": lambda: connection.connected} if connection is not valkey else {}
        async with Maintenance(known_queues.maintenance()).running():
            yield Feature(
                name="queues",
                routes=queue_routes(access, limits, follower, context.streams),
                checks=[
                    submissions.health("queues memory" if queues.url else "memory"),
                    table_check("watched queues", lambda: follower.table_use),
                    connected_check("queues", own),
                ],
                scrape=BullMetrics(connection, queues.prefix, known_queues).read,
                view=QueuesView(access),
            )


def _tenant_limits(
    settings: Settings, access: QueueAccess, submissions: SubmissionLimits, memory: ServerMemory
) -> TenantLimits:
    """The limits of jobs (J-57), for the jobs of queues."""
    several = settings.gateway.several_tenants
    jobs = settings.jobs.bounded() if several else settings.jobs

    def max_bytes() -> int:
        return jobs.tenant_max_bytes or (memory.tenant_share if several else 0)

    return TenantLimits(access, submissions, jobs.tenant_max_open, max_bytes)


@contextlib.asynccontextmanager
async def _connection(settings: Settings, valkey: Connection) -> AsyncGenerator[Connection]:
    """The connection to the server of the queues: that of the program, or one of its own."""
    server = queues_server(settings, valkey)
    if isinstance(server, Connection):
        yield server
        return
    opened = await Connection.open(server, name=valkey.name, connect_timeout_s=START_TIMEOUT_S)
    try:
        yield opened
    finally:
        await opened.close()
