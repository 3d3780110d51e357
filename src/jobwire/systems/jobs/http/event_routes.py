"""Live events over HTTP (J-15, J-17).

The endpoint checks tenant and position; then `gateway.streams` keeps the stream open and the
follower feeds it through an `EventWriter`, which encodes the job's events as SSE frames.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from jobwire.api import jobs as api
from jobwire.api.problems import BAD_EVENT_ID
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.route import Route, serve
from jobwire.gateway.sse import EventWriter, SseEvent
from jobwire.gateway.sse_connections import SseConnections
from jobwire.job.messages import JobId
from jobwire.systems.jobs.any_shards import AnyFollower, AnyQueue
from jobwire.systems.jobs.contract import TERMINAL_EVENTS, Status
from jobwire.systems.jobs.events import StreamEvent
from jobwire.systems.jobs.http import request_parser
from jobwire.valkey import ValkeyError
from jobwire.valkey.stream_ids import START, Position, read_position

PLAIN: Final = "plain"
WHOLE: Final = "whole"
MESSAGE: Final = "message"
"""As `whole`, but every event is named `message`: an EventSource delivers only names that it has a
listener for, and handlers have types of their own."""

_UNKNOWN_MS: Final = 1 << 62


class EventRoutes:
    """The endpoint."""

    def __init__(self, queue: AnyQueue, follower: AnyFollower, streams: SseConnections) -> None:
        self._queue = queue
        self._follower = follower
        self._streams = streams

    def routes(self) -> Sequence[Route]:
        return [serve(api.EVENTS, self.events)]

    async def events(self, request: HttpRequest, id_: str, query: api.EventFilter) -> None:
        job_id = request_parser.job_id(id_)
        after = _position(request)
        state = await self._queue.status_and_tenant(job_id)
        if state is None or not request_parser.may_see(request, state.tenant):
            raise Problem(api.JOB_NOT_FOUND)
        finished = state.status in TERMINAL_EVENTS
        if finished and after != START and await self._has_seen_all(job_id, after):
            await request.reply_nothing()
            return
        watch = self._follower.watch
        if query.view == "clean":
            started_ms = state.started_ms
            if started_ms is None:  # a foreign worker does not say when
                started_ms = 0 if state.status is Status.QUEUED else _UNKNOWN_MS
            is_behind = after != START and await self._is_behind(job_id, after)
            watch = partial(self._follower.watch_clean, started_ms=started_ms, is_behind=is_behind)
        await self._streams.serve(
            request,
            lambda stream: watch(
                job_id, EventWriter(stream, _ENCODERS[query.data]), after, finished=finished
            ),
            hello=api.Hello(job_id, state.status.value),
            gap=("job_id", job_id),
            table_use=self._follower.table_use,
        )

    async def _is_behind(self, job_id: JobId, after: Position) -> bool:
        try:
            return await self._follower.is_behind(job_id, after)
        except ValkeyError:
            return True  # the stream waits until Valkey is available again

    async def _has_seen_all(self, job_id: JobId, after: Position) -> bool:
        """Whether no event can follow. An EventSource reconnects after every end of a stream: if
        its page does not close it, it would do so every three seconds until the job expires."""
        try:
            return await self._follower.is_last(job_id, after)
        except ValkeyError:
            return False  # the stream waits until Valkey is available again


def _position(request: HttpRequest) -> Position:
    """The position of the last event that the client received."""
    # The header wins: a browser that reconnects sends both. But both must be valid.
    given = (request.last_event_id(), request.query_event_id())
    positions = [read_position(text) for text in given if text]
    if None in positions:
        raise Problem(BAD_EVENT_ID)
    return positions[0] or START if positions else START


def _frame(event: StreamEvent, *, form: str) -> SseEvent:
    """The event as an SSE frame, encoded once for all subscribers."""
    frame = event.rendered.get(form)
    if not isinstance(frame, SseEvent):
        name = MESSAGE if form == MESSAGE else event.kind
        frame = SseEvent(name, event.data if form == PLAIN else event.body, event.id)
        event.rendered[form] = frame
    return frame


# Shared by all streams: each of ten thousand would otherwise hold its own.
_ENCODERS: Final = {form: partial(_frame, form=form) for form in (PLAIN, WHOLE, MESSAGE)}
