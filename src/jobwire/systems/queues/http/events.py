"""Live events of a queue and of a job over HTTP (B-12), from the queue's events stream."""

from collections.abc import Sequence

from jobwire.api import queue_jobs, queues
from jobwire.api.problems import BAD_EVENT_ID
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.route import Route
from jobwire.gateway.sse import EventWriter, SseEvent
from jobwire.gateway.sse_connections import SseConnections
from jobwire.systems.queues.events import QueueEvent
from jobwire.systems.queues.follow import FINISHED, QueueFollower
from jobwire.systems.queues.http.access import QueueAccess
from jobwire.systems.queues.http.jobs import find_state
from jobwire.systems.queues.http.route import queue_route
from jobwire.valkey.stream_ids import START, Position, read_position


class QueueEventRoutes:
    """The endpoints."""

    def __init__(
        self, access: QueueAccess, follower: QueueFollower, streams: SseConnections
    ) -> None:
        self._access = access
        self._follower = follower
        self._streams = streams

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            queue_route(queues.FOLLOW, self.follow_queue),
            queue_route(queue_jobs.FOLLOW, self.follow_job),
        ]

    async def follow_queue(self, request: HttpRequest, queue: str) -> None:
        """Everything that happens on a queue, from now or from Last-Event-ID."""
        await self._access.existing(request, queue)
        # Looked up before `hello`: what the client does after it is in the stream.
        after = _position(request) or await self._follower.end_of(queue)
        await self._streams.serve(
            request,
            lambda stream: self._follower.watch(queue, EventWriter(stream, _frame), after),
            hello=queues.QueueHello(queue),
            gap=("queue", queue),
            table_use=self._follower.table_use,
        )

    async def follow_job(self, request: HttpRequest, queue: str, job_id: str) -> None:
        """The events of one job that the stream still has, until the job has ended."""
        state = await find_state(self._access, request, queue, job_id)
        after = _position(request)
        finished = state in FINISHED
        if finished and after and not await self._follower.has_more(queue, job_id, after):
            # An EventSource reconnects after every end of a stream, but not after this.
            await request.reply_nothing()
            return
        await self._streams.serve(
            request,
            lambda stream: self._follower.watch(
                queue,
                EventWriter(stream, _frame),
                after or START,
                job_id=job_id,
                finished=finished,
            ),
            hello=queues.QueueHello(queue, job_id, str(state)),
            gap=("job_id", job_id),
            table_use=self._follower.table_use,
        )


def _frame(event: QueueEvent) -> SseEvent:
    return SseEvent(event.kind, event.body, event.id)


def _position(request: HttpRequest) -> Position | None:
    given = request.last_event_id()
    if given is None:
        return None
    position = read_position(given)
    if position is None:
        raise Problem(BAD_EVENT_ID)
    return position
