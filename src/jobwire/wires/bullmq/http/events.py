"""Live events of a queue and of a job over HTTP (B-12), from the queue's events stream."""

from typing import Final

from jobwire.api.problems import BAD_EVENT_ID
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.routes import Doc, HotRoute
from jobwire.gateway.sse import EventWriter, SseEvent
from jobwire.gateway.streams import Streams
from jobwire.valkey.stream_ids import START, Position, read_position
from jobwire.wires.bullmq.events import QueueEvent, QueueEventBody
from jobwire.wires.bullmq.follow import FINISHED, QueueFollower
from jobwire.wires.bullmq.http import problems
from jobwire.wires.bullmq.http.access import QueueAccess
from jobwire.wires.bullmq.http.failures import guarded
from jobwire.wires.bullmq.http.jobs import JOB, find_state
from jobwire.wires.bullmq.http.queues import PATH


def event_routes(
    access: QueueAccess, follower: QueueFollower, streams: Streams
) -> tuple[HotRoute, ...]:
    """The routes."""

    async def follow_a_queue(request: HttpRequest) -> None:
        """Everything that happens on a queue, from now or from Last-Event-ID."""
        (queue,) = request.params
        await access.existing(request, queue)
        # Looked up before `hello`: what the client does after it is in the stream.
        after = _position(request) or await follower.end_of(queue)
        await streams.serve(
            request,
            lambda stream: follower.watch(queue, EventWriter(stream, _frame), after),
            hello={"queue": queue},
            gap=("queue", queue),
        )

    async def follow_a_job(request: HttpRequest) -> None:
        """The events of one job that the stream still has, until the job has ended."""
        queue, job_id = request.params
        state = await find_state(access, request, queue, job_id)
        after = _position(request)
        finished = state in FINISHED
        if finished and after and not await follower.has_more(queue, job_id, after):
            # An EventSource reconnects after every end of a stream, but not after this.
            await request.reply_nothing()
            return
        await streams.serve(
            request,
            lambda stream: follower.watch(
                queue,
                EventWriter(stream, _frame),
                after or START,
                job_id=job_id,
                finished=finished,
            ),
            hello={"queue": queue, "job_id": job_id, "state": str(state)},
            gap=("job_id", job_id),
        )

    return (
        HotRoute(
            "GET",
            PATH + "/{queue}/events",
            "read",
            guarded(follow_a_queue),
            _QUEUE_DOC,
            stream=True,
        ),
        HotRoute("GET", JOB + "/events", "read", guarded(follow_a_job), _JOB_DOC, stream=True),
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


_EXAMPLE: Final = {
    "event": "progress",
    "job_id": "17",
    "ts": 1767225600000,
    "fields": {"data": 25},
}
_QUEUE_DOC: Final = Doc(
    summary="Follow a queue",
    tag="queues",
    description=(
        "Server-Sent Events: `hello`, then everything that happens on the queue, from now or from "
        "`Last-Event-ID`. The names are those of BullMQ's events; an event that BullMQ does not "
        "define is named `custom`. `gap`: events may be missing."
    ),
    answer=QueueEventBody,
    example=_EXAMPLE,
    media_type="text/event-stream",
    problems=problems.ON_QUEUES,
)
_JOB_DOC: Final = Doc(
    summary="Follow a job of a queue until it has ended",
    tag="queues",
    description=(
        "Server-Sent Events: `hello` with the state, then the job's events, also past ones that "
        "the queue still has; `completed`, `failed` or `removed` ends the stream. After it a "
        "reconnect is answered with 204."
    ),
    answer=QueueEventBody,
    example=_EXAMPLE,
    media_type="text/event-stream",
    also={204: "the client has seen the last event"},
    problems=problems.ON_JOBS,
)
