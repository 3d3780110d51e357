"""The SseConnections wire over HTTP: the feature that the gateway mounts (J-10 … J-19, O-11).

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

import time
from collections.abc import Callable, Sequence
from functools import partial

from jobwire.gateway.feature import Feature
from jobwire.gateway.limits import RequestRate
from jobwire.gateway.settings import GatewaySettings
from jobwire.gateway.sse_connections import SseConnections
from jobwire.gateway.submissions import SubmissionLimits
from jobwire.job.messages import TaskDefinition
from jobwire.systems.jobs.follow import Follower
from jobwire.systems.jobs.http import fleet, wire
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
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection
from jobwire.valkey.server_memory import ServerMemory


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

    def tenant_max_bytes() -> int:
        share = memory.tenant_share if gateway.several_tenants else 0
        return settings.tenant_max_bytes or share

    queue = StreamsQueue(connection, settings, tenant_max_bytes, on_delayed)
    registry = WorkerRegistry(connection, settings, tasks)
    rate = RequestRate(gateway.effective_submit_rate, time.monotonic)
    payloads = PayloadCheck(registry) if settings.check_payloads else None
    limits = SubmissionLimits(rate, memory)
    jobs = JobRoutes(queue, follower, registry, limits, payloads)
    admin = JobQueueAdmin(connection, settings)
    queues = JobQueueRoutes(
        connection,
        queue.keys,
        registry,
        admin,
        several_tenants=gateway.several_tenants,
    )
    crons = CronRoutes(connection, queue.keys, jobs, several_tenants=gateway.several_tenants)
    streams.at_stop(follower.release_waiters)
    return Feature(
        name="jobs",
        routes=[
            *jobs.routes(),
            *JobManagement(queue, jobs).routes(),
            *EventRoutes(queue, follower, streams).routes(),
            *queues.routes(),
            *crons.routes(),
            *fleet.routes(registry, connection, queue.keys),
            wire.route(connection, queue.keys),
            *OpenAiRoutes(jobs, queue, registry, follower, streams).routes(),
        ],
        checks=[limits.health("memory")],
        remote_health=partial(fleet.missing_requirements, registry),
        view=StreamsView(connection, queue, registry),
        scrape=StreamsMetrics(connection, queue.keys, registry, admin, follower).read,
    )
