"""Queues in a gateway.

queues.py      GET /v1/queues, GET /v1/queues/{queue},
               POST …/pause|resume|drain|clean|obliterate|retry|promote
jobs.py        …/jobs, …/jobs/{id}, …/logs, …/retry|promote|cancel, …/summaries
changes.py     …/jobs/{id}/priority|delay|data|progress|logs|detach|children,
               …/concurrency|rate-limit|deduplication, …/events/trim
flows.py       …/flows, …/jobs/{id}/flow
schedulers.py  …/schedulers, …/schedulers/{id}
events.py      …/events, …/jobs/{id}/events
wire.py        …/jobs/{id}/wire
route.py       what these routes have in common
summaries.py   pages of jobs without their data
access.py      whose queues these are (B-18); tenant_limits.py how much a tenant may add (J-57)
view.py        queues in /v1/overview, /v1/failures, /v1/workers, /v1/stats; search.py in /v1/search
"""

from collections.abc import Sequence

from jobwire.gateway.route import Route
from jobwire.gateway.sse_connections import SseConnections
from jobwire.systems.queues.follow import QueueFollower
from jobwire.systems.queues.http.access import QueueAccess
from jobwire.systems.queues.http.changes import QueueChangeRoutes
from jobwire.systems.queues.http.events import QueueEventRoutes
from jobwire.systems.queues.http.flows import FlowRoutes
from jobwire.systems.queues.http.jobs import QueueJobRoutes
from jobwire.systems.queues.http.queues import QueueRoutes
from jobwire.systems.queues.http.schedulers import SchedulerRoutes
from jobwire.systems.queues.http.tenant_limits import TenantLimits
from jobwire.systems.queues.http.wire import wire_route


def queue_routes(
    access: QueueAccess, limits: TenantLimits, follower: QueueFollower, streams: SseConnections
) -> Sequence[Route]:
    """The routes of the API."""
    streams.at_stop(follower.release_waiters)
    return [
        *QueueRoutes(access).routes(),
        *QueueJobRoutes(access, follower, limits).routes(),
        *QueueChangeRoutes(access, limits).routes(),
        *FlowRoutes(access, limits).routes(),
        *SchedulerRoutes(access, limits).routes(),
        *QueueEventRoutes(access, follower, streams).routes(),
        wire_route(access),
    ]
