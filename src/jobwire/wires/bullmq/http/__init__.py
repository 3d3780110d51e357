"""Queues in a gateway.

queues.py      GET /v1/queues, GET /v1/queues/{queue},
               POST …/pause|resume|drain|clean|obliterate|retry|promote
jobs.py        …/jobs, …/jobs/{id}, …/logs, …/retry|promote|cancel
flows.py       …/flows, …/jobs/{id}/flow
schedulers.py  …/schedulers, …/schedulers/{id}
events.py      …/events, …/jobs/{id}/events
summaries.py   …/summaries: lists of jobs without their data
wire.py        …/jobs/{id}/wire
access.py      whose queues these are (B-18)
view.py        queues in /v1/overview, /v1/failures, /v1/workers, /v1/stats; search.py in /v1/search
"""

from collections.abc import Sequence

from fastapi import APIRouter

from jobwire.gateway.routes import HotRoute
from jobwire.gateway.streams import Streams
from jobwire.wires.bullmq.follow import QueueFollower
from jobwire.wires.bullmq.http.access import QueueAccess
from jobwire.wires.bullmq.http.events import event_routes
from jobwire.wires.bullmq.http.flows import flow_router
from jobwire.wires.bullmq.http.jobs import job_router
from jobwire.wires.bullmq.http.queues import queue_router
from jobwire.wires.bullmq.http.schedulers import scheduler_router
from jobwire.wires.bullmq.http.summaries import summary_router
from jobwire.wires.bullmq.http.wire import wire_keys_router


def queue_routes(
    access: QueueAccess, follower: QueueFollower, streams: Streams
) -> tuple[Sequence[APIRouter], Sequence[HotRoute]]:
    """The routes of the API, and the hot ones."""
    routers = [
        queue_router(access),
        job_router(access, follower),
        flow_router(access),
        scheduler_router(access),
        summary_router(access),
        wire_keys_router(access),
    ]
    streams.at_stop(follower.release_waiters)
    return routers, event_routes(access, follower, streams)
