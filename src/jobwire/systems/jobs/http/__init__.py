"""The Streams wire over HTTP: the feature that the gateway mounts (J-10 … J-19, O-11).

The operations, their types and their problems are in `api/jobs.py`, `api/fleet.py` and
`api/openai.py`.

    request_parser      headers, query and body of a request, parsed strictly
    answers             jobs as answers
    jobs                submit, batch, get: the routes that are called most
    payload_check       payloads against the workers' schemas
    job_management      list, cancel, retry
    event_routes        live events
    queues              list, pause, resume, purge queues
    crons               list, run, pause, resume cron entries
    fleet               tasks, the load
    operator_view       this system in /v1/overview and the other routes of all systems
    wire                the keys of a job, as they are on the server
    openai              OpenAI-compatible routes in front of the tasks `chat` and `embed`
    openai_requests     OpenAI's requests as payloads
    openai_answers      results and errors in OpenAI's form
    openai_stream       a job's events as OpenAI's chunks

The assembly calls `feature` and passes the result to the gateway. The wire itself does not import
the gateway.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from jobwire.gateway.feature import Feature
from jobwire.gateway.health import Check, HealthStatus
from jobwire.gateway.limits import RequestRate
from jobwire.gateway.server_checks import connected_check
from jobwire.gateway.settings import GatewaySettings
from jobwire.gateway.sse_connections import SseConnections
from jobwire.gateway.submissions import StoreMemory, SubmissionLimits
from jobwire.gateway.watch_table import table_check
from jobwire.job.messages import TaskDefinition
from jobwire.systems.jobs.any_shards import AnyAdmin, AnyFollower, AnyQueue, AnyReader
from jobwire.systems.jobs.durability import Durability, DurabilityOfAll
from jobwire.systems.jobs.follow import Follower
from jobwire.systems.jobs.http import fleet, wire
from jobwire.systems.jobs.http.bulk import BulkRoutes
from jobwire.systems.jobs.http.crons import CronRoutes
from jobwire.systems.jobs.http.event_routes import EventRoutes
from jobwire.systems.jobs.http.job_management import JobManagement
from jobwire.systems.jobs.http.jobs import JobRoutes
from jobwire.systems.jobs.http.openai import OpenAiRoutes
from jobwire.systems.jobs.http.operator_view import StreamsView
from jobwire.systems.jobs.http.payload_check import PayloadCheck
from jobwire.systems.jobs.http.queues import JobQueueRoutes
from jobwire.systems.jobs.metrics import StreamsMetrics
from jobwire.systems.jobs.queue import StreamsQueue
from jobwire.systems.jobs.queue_admin import JobQueueAdmin
from jobwire.systems.jobs.registry import WorkerRegistry
from jobwire.systems.jobs.server_reader import ServerReader
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.systems.jobs.shard_table import ShardTable
from jobwire.systems.jobs.sharded_follow import ShardedFollower
from jobwire.systems.jobs.sharded_queue import ShardedQueue
from jobwire.systems.jobs.sharded_reader import ShardedAdmin, ShardedReader, ShardedRegistry
from jobwire.systems.jobs.shards import STILL_SILENT_S, Shard, Shards
from jobwire.valkey import Connection, ValkeyError
from jobwire.valkey.server_memory import ServerMemory


@dataclass(frozen=True, slots=True)
class ShardParts:
    """A shard as the gateway has opened it."""

    number: int
    connection: Connection
    on_delayed: Callable[[], None] = lambda: None
    """Called when a job with a delay is submitted."""


def feature(
    connection: Connection,
    settings: StreamsSettings,
    follower: Follower,
    streams: SseConnections,
    tasks: Sequence[TaskDefinition] = (),
    gateway: GatewaySettings = GatewaySettings(),  # noqa: B008 - frozen
    on_delayed: Callable[[], None] = lambda: None,
) -> Feature:
    """The routes of jobs, over a shared connection and a running follower.

    `tasks` are the contract's tasks with known payloads. If `gateway` has keys of several tenants,
    each tenant is limited (J-57).
    """
    if gateway.several_tenants:
        settings = settings.bounded()
    memory = ServerMemory(connection)
    queue = StreamsQueue(
        connection, settings, tenant_max_bytes(settings, memory, gateway), on_delayed
    )
    registry = WorkerRegistry(connection, settings, tasks)
    reader = ServerReader(connection, queue.keys, registry)
    admin = JobQueueAdmin(connection, settings)
    durability = Durability(connection, settings.durability)
    return _feature(queue, registry, reader, admin, follower, memory, durability, streams, gateway)


def tenant_max_bytes(
    settings: StreamsSettings, memory: ServerMemory, gateway: GatewaySettings
) -> Callable[[], int]:
    """J-57: how many bytes the jobs of a tenant may have, as the server's memory is now."""

    def most() -> int:
        share = memory.tenant_share if gateway.several_tenants else 0
        return settings.tenant_max_bytes or share

    return most


class ShardsMemory:
    """The memory of all servers: nothing new is accepted while one of them is nearly full. One
    without a connection gets no jobs, and does not count."""

    def __init__(self, servers: Sequence[ServerMemory]) -> None:
        self._servers = servers

    @property
    def is_due(self) -> bool:
        """Whether to read one of them again."""
        return any(server.is_due for server in self._servers)

    @property
    def is_full(self) -> bool:
        return any(server.is_connected and server.is_full for server in self._servers)

    async def read(self) -> None:
        """Read those that are due. A silent one does not delay the submissions to the others."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STILL_SILENT_S):
                await asyncio.gather(*(server.read() for server in self._servers if server.is_due))


def sharded_feature(
    shards: Sequence[ShardParts],
    table: ShardTable,
    settings: StreamsSettings,
    streams: SseConnections,
    tasks: Sequence[TaskDefinition] = (),
    gateway: GatewaySettings = GatewaySettings(),  # noqa: B008 - frozen
) -> tuple[Feature, ShardedFollower]:
    """The same over shards (G-4), and the follower, to be run by the caller."""
    if gateway.several_tenants:
        settings = settings.bounded()
    memories = {part.connection: ServerMemory(part.connection) for part in shards}
    every: list[Shard] = []
    for part in shards:
        own = settings.of_shard(part.number)
        most = tenant_max_bytes(own, memories[part.connection], gateway)
        queue = StreamsQueue(part.connection, own, most, part.on_delayed)
        every.append(Shard(part.number, part.connection, own, queue))
    found = Shards(every)
    registry = ShardedRegistry(found, tasks)
    follower = ShardedFollower(found)
    later = {
        f"shard {part.number}": partial(getattr, part.connection, "connected")
        for part in shards
        if part.number
    }
    feature = _feature(
        ShardedQueue(found, settings, table),
        registry,
        ShardedReader(found, registry),
        ShardedAdmin(found),
        follower,
        ShardsMemory(list(memories.values())),
        DurabilityOfAll({part.number: part.connection for part in shards}, settings.durability),
        streams,
        gateway,
        [connected_check("shards", later)],
    )
    return feature, follower


def _feature(
    queue: AnyQueue,
    registry: WorkerRegistry,
    reader: AnyReader,
    admin: AnyAdmin,
    follower: AnyFollower,
    memory: StoreMemory,
    durability: Durability,
    streams: SseConnections,
    gateway: GatewaySettings,
    checks: Sequence[Check] = (),
) -> Feature:
    settings = queue.settings
    rate = RequestRate(gateway.effective_submit_rate, time.monotonic)
    payloads = PayloadCheck(registry) if settings.check_payloads else None
    limits = SubmissionLimits(rate, memory)
    jobs = JobRoutes(queue, follower, registry, limits, durability, payloads)
    management = JobManagement(queue, jobs)
    queues = JobQueueRoutes(
        reader,
        registry,
        admin,
        several_tenants=gateway.several_tenants,
    )
    crons = CronRoutes(
        reader.connection, reader.keys, jobs, several_tenants=gateway.several_tenants
    )
    streams.at_stop(follower.release_waiters)
    return Feature(
        name="jobs",
        routes=[
            *jobs.routes(),
            *management.routes(),
            *BulkRoutes(queue, jobs, management).routes(),
            *EventRoutes(queue, follower, streams).routes(),
            *queues.routes(),
            *crons.routes(),
            *fleet.routes(registry, reader),
            wire.route(reader),
            *OpenAiRoutes(jobs, queue, registry, follower, streams).routes(),
        ],
        checks=[
            limits.health("memory"),
            Check("durability", partial(durability_health, durability), quiet=True),
            table_check("watched jobs", lambda: follower.table_use),
            *checks,
        ],
        remote_health=partial(fleet.missing_requirements, registry),
        view=StreamsView(reader, queue, registry),
        scrape=StreamsMetrics(reader, registry, admin, follower).read,
    )


async def durability_health(durability: Durability) -> HealthStatus:
    """/readyz is degraded while jobs are refused because of the server's settings (G-22)."""
    try:
        fault = await durability.fault()
    except ValkeyError:
        fault = ""  # the check of the server reports it
    if not fault:
        return HealthStatus("ready")
    note = f"new jobs are refused: jobs.durability is {durability.level}, and {fault}"
    return HealthStatus("degraded", note, durability.fix)
