"""The Streams wire over HTTP: the feature that the gateway mounts (J-10 … J-19, O-11).

The operations, their types and their problems are in `api/jobs.py`.

    request_parser  headers, query and body of a request, parsed strictly
    schemas         request and response bodies, as types
    jobs            submit, batch, get: hot routes
    payload_check   payloads against the workers' schemas
    job_management  list, cancel, retry
    event_routes    live events: a hot route
    queues          list, pause, resume, purge queues
    fleet           tasks, cron entries, the load; `fleet_schemas` has their types
    operator_view   this system in /v1/overview, /v1/failures, /v1/search, /v1/workers, /v1/stats
    wire            the keys of a job, as they are on the server
    openai          OpenAI-compatible routes in front of the tasks `chat` and `embed`: hot routes
    docs            these routes in the OpenAPI document

`wiring` calls `feature` and passes the result to the gateway. Of the packages of this wire, only
this one imports the gateway.
"""

import time
from collections.abc import Sequence
from functools import partial

from jobwire.gateway.feature import Feature
from jobwire.gateway.limits import RequestRate
from jobwire.gateway.routes import HotRoute
from jobwire.gateway.settings import GatewaySettings
from jobwire.gateway.streams import Streams
from jobwire.job.messages import TaskDefinition
from jobwire.valkey import Connection
from jobwire.wires.streams.follow import Follower
from jobwire.wires.streams.http import docs, fleet, job_management, openai, wire
from jobwire.wires.streams.http.event_routes import EventRoutes
from jobwire.wires.streams.http.jobs import PATH, JobRoutes
from jobwire.wires.streams.http.operator_view import StreamsView
from jobwire.wires.streams.http.payload_check import PayloadCheck
from jobwire.wires.streams.http.queues import QUEUES, QueueRoutes
from jobwire.wires.streams.memory import ServerMemory
from jobwire.wires.streams.metrics import StreamsMetrics
from jobwire.wires.streams.queue import StreamsQueue
from jobwire.wires.streams.queue_admin import QueueAdmin
from jobwire.wires.streams.registry import WorkerRegistry
from jobwire.wires.streams.settings import StreamsSettings


def feature(
    connection: Connection,
    settings: StreamsSettings,
    follower: Follower,
    streams: Streams,
    tasks: Sequence[TaskDefinition] = (),
    gateway: GatewaySettings = GatewaySettings(),  # noqa: B008 - frozen
) -> Feature:
    """The routes of jobs, over a shared connection and a running follower.

    `tasks` are the contract's tasks with known payloads. If `gateway` has keys of several tenants,
    each tenant is limited (J-57).
    """
    if gateway.several_tenants:
        settings = settings.bounded()
    queue = StreamsQueue(connection, settings)
    registry = WorkerRegistry(connection, settings, tasks)
    rate = RequestRate(gateway.effective_submit_rate, time.monotonic)
    payloads = PayloadCheck(registry) if settings.check_payloads else None
    jobs = JobRoutes(queue, follower, registry, rate, ServerMemory(connection), payloads)
    events = EventRoutes(queue, follower, streams)
    admin = QueueAdmin(connection, settings)
    queues = QueueRoutes(
        connection,
        queue.keys,
        registry,
        admin,
        several_tenants=gateway.several_tenants,
    )
    compatible = openai.OpenAiRoutes(jobs, queue, follower, streams)
    streams.at_stop(follower.release_waiters)
    return Feature(
        name="jobs",
        routes=job_management.JobManagement(queue).routes(),
        hot=[
            HotRoute("POST", PATH, "submit", jobs.submit, docs.SUBMIT, max_body=docs.MAX_JOB_BODY),
            HotRoute(
                "POST",
                f"{PATH}/batch",
                "submit",
                jobs.batch,
                docs.BATCH,
                max_body=docs.MAX_BATCH_BODY,
            ),
            HotRoute("GET", PATH + "/{id}", "read", jobs.get, docs.GET),
            HotRoute("GET", QUEUES, "read", queues.list, docs.QUEUES),
            HotRoute("GET", PATH + "/{id}/events", "read", events.events, docs.EVENTS, stream=True),
            HotRoute(
                "POST",
                openai.CHAT,
                "submit",
                compatible.chat,
                docs.CHAT_COMPLETIONS,
                max_body=docs.MAX_JOB_BODY,
            ),
            HotRoute("POST", openai.EMBEDDINGS, "submit", compatible.embeddings, docs.EMBEDDINGS),
            HotRoute("GET", openai.MODELS, "read", compatible.models, docs.MODELS),
        ],
        routers=[
            job_management.router(jobs),
            queues.router(),
            fleet.router(registry, connection, queue.keys),
            wire.router(connection, queue.keys),
        ],
        remote_health=partial(fleet.missing_requirements, registry),
        view=StreamsView(connection, queue, registry),
        scrape=StreamsMetrics(connection, queue.keys, registry, admin, follower).read,
    )
