"""Live status over HTTP (I-4, I-12): `GET /v1/images/{id}/events`."""

from collections.abc import Callable
from typing import Final

import msgspec

from jobwire.api.problems import UNAVAILABLE
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.routes import Doc, HotRoute
from jobwire.gateway.sse import Comment, EventStream, EventWriter, SseEvent
from jobwire.gateway.streams import Streams
from jobwire.wires.images.contract import PROGRESS, Stage, format_time
from jobwire.wires.images.follow import StatusEvent, StatusFollower
from jobwire.wires.images.http import problems
from jobwire.wires.images.http.api import PATH, ImageRoutes
from jobwire.wires.images.records import ImageRecord, RecordStatus

_OPENED: Final = Comment("open")


def _frame(state: StatusEvent) -> SseEvent:
    return SseEvent(state.event, msgspec.json.encode(state), state.updated_at)


def state_of(record: ImageRecord) -> StatusEvent | None:
    """The state of an image without a status, by its record; None if it is deleted."""
    updated_at = format_time(record.updated_at)
    match record.status:
        case RecordStatus.READY:
            return StatusEvent(Stage.DONE, PROGRESS[Stage.DONE], updated_at)
        case RecordStatus.FAILED:
            error = record.error_message
            return StatusEvent(Stage.FAILED, PROGRESS[Stage.FAILED], updated_at, error)
        case RecordStatus.OPEN:
            return StatusEvent(Stage.QUEUED, PROGRESS[Stage.QUEUED], updated_at)
        case RecordStatus.DELETED:
            return None


def event_route(images: ImageRoutes, follower: StatusFollower, streams: Streams) -> HotRoute:
    """The route."""

    async def follow_an_image(request: HttpRequest) -> None:
        (image_id,) = request.params
        record = await images.find(image_id, request)
        seen = request.last_event_id()
        if seen is not None and record.status is not RecordStatus.OPEN:
            last = await follower.present(image_id)
            if last is not None and last.is_terminal and last.updated_at == seen:
                # An EventSource reconnects after every end of a stream, but not after this.
                await request.reply_nothing()
                return

        def attach(stream: EventStream) -> Callable[[], None]:
            stream.push(_OPENED)
            return follower.watch(image_id, EventWriter(stream, _frame))

        await streams.serve(request, attach)

    return HotRoute("GET", PATH + "/{image_id}/events", "read", follow_an_image, _DOC, stream=True)


_DOC: Final = Doc(
    summary="Follow an image until it is ready or has failed",
    tag="images",
    description=(
        "Server-Sent Events: `processing`, then `ready` or `failed`, which ends the stream. The "
        "first event is the present state; `id` is `updated_at`. After the terminal event a "
        "reconnect is answered with 204."
    ),
    answer=StatusEvent,
    example={"stage": "encoding", "progress": 70, "updated_at": "2026-02-24T10:00:00.000000Z"},
    media_type="text/event-stream",
    also={204: "the client has seen the terminal event"},
    problems=(problems.IMAGE_NOT_FOUND, UNAVAILABLE),
)
