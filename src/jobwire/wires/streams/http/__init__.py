"""The Streams wire over HTTP: what the gateway mounts (J-10 … J-19, O-11).

    asking    a request: its headers, query and body, read strictly
    shapes    what is sent and answered, as types
    problems  what can go wrong
    jobs      submit, look, list, cancel, run again
    watching  live events
    fleet     tasks, workers, the last hour

`wiring` calls `room` with a queue's parts and hands the result to the gateway. This folder alone
of the wire's room knows the gateway.
"""

import time
from collections.abc import Sequence

from jobwire.gateway.feature import Feature
from jobwire.gateway.limits import RateLimit
from jobwire.gateway.routes import HotRoute
from jobwire.gateway.settings import GatewaySettings
from jobwire.gateway.streams import Streams
from jobwire.job.messages import TaskDefinition
from jobwire.valkey import Connection
from jobwire.wires.streams.follow import Follower
from jobwire.wires.streams.http import docs
from jobwire.wires.streams.http.event_routes import EventRoutes
from jobwire.wires.streams.http.fleet import FleetRoutes
from jobwire.wires.streams.http.jobs import PATH, JobRoutes
from jobwire.wires.streams.memory import ServerMemory
from jobwire.wires.streams.metrics import StreamsMetrics
from jobwire.wires.streams.queue import StreamsQueue
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
    """The routes of jobs, over a connection that many share and a follower that is running.

    `tasks` are the contract's own, as far as their payloads are known here. `gateway` says how many
    tenants there are, and so whether each is bounded (J-57).
    """
    if gateway.several_tenants:
        settings = settings.bounded()
    queue = StreamsQueue(connection, settings)
    registry = WorkerRegistry(connection, settings, tasks)
    rate = RateLimit(gateway.effective_submit_rate, time.monotonic)
    jobs = JobRoutes(queue, follower, registry, rate, ServerMemory(connection))
    watching = EventRoutes(queue, follower, streams)
    fleet = FleetRoutes(registry, connection, queue.keys)
    streams.at_stop(follower.release_waiters)
    return Feature(
        name="jobs",
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
            HotRoute("GET", PATH, "read", jobs.list, docs.LIST),
            HotRoute("GET", PATH + "/{id}", "read", jobs.get, docs.GET),
            HotRoute(
                "GET", PATH + "/{id}/events", "read", watching.events, docs.EVENTS, stream=True
            ),
            HotRoute("POST", PATH + "/{id}/cancel", "submit", jobs.cancel, docs.CANCEL),
            HotRoute("DELETE", PATH + "/{id}", "submit", jobs.cancel, docs.CANCEL),
            HotRoute("POST", PATH + "/{id}/retry", "submit", jobs.retry, docs.RETRY),
            HotRoute("GET", "/v1/tasks", "read", fleet.tasks, docs.TASKS),
            HotRoute("GET", "/v1/workers", "read", fleet.workers, docs.WORKERS),
            HotRoute("GET", "/v1/stats", "read", fleet.stats, docs.STATS),
        ],
        remote_health=fleet.missing_requirements,
        scrape=StreamsMetrics(connection, queue.keys, registry, follower).read,
    )
