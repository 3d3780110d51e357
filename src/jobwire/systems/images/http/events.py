"""Live status over HTTP (I-4, I-12): `GET /v1/images/{id}/events`."""

from collections.abc import Callable
from typing import Final

import msgspec

from jobwire.api import images as api
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.route import Route, serve
from jobwire.gateway.sse import Comment, EventStream, EventWriter, SseEvent
from jobwire.gateway.sse_connections import SseConnections
from jobwire.systems.images.contract import PROGRESS, Stage, format_time
from jobwire.systems.images.follow import ImageState, StatusFollower
from jobwire.systems.images.http.api import ImageRoutes
from jobwire.systems.images.records import ImageRecord, RecordStatus

_OPENED: Final = Comment("open")


def _frame(state: ImageState) -> SseEvent:
    data = api.StatusEvent(
        *(state.stage, state.progress, state.updated_at, state.error),
        *(state.hidden_areas, state.hidden_part),
    )
    return SseEvent(state.event, msgspec.json.encode(data), state.event_id)


def state_of(record: ImageRecord) -> ImageState | None:
    """The state of an image without a status, by its record; None if it is deleted."""
    updated_at = format_time(record.updated_at)
    match record.status:
        case RecordStatus.READY:
            return ImageState(
                *(Stage.DONE, PROGRESS[Stage.DONE], updated_at),
                hidden_areas=record.hidden_areas,
                hidden_part=record.hidden_part,
            )
        case RecordStatus.FAILED:
            error = record.error_message
            return ImageState(Stage.FAILED, PROGRESS[Stage.FAILED], updated_at, error)
        case RecordStatus.OPEN:
            return ImageState(Stage.QUEUED, PROGRESS[Stage.QUEUED], updated_at)
        case RecordStatus.DELETED:
            return None


def event_route(images: ImageRoutes, follower: StatusFollower, streams: SseConnections) -> Route:
    """The route."""

    async def follow(request: HttpRequest, image_id: str) -> None:
        record = await images.find(image_id, request)
        seen = request.last_event_id()
        if seen is not None and record.status is not RecordStatus.OPEN:
            last = await follower.present(image_id)
            if last is not None and last.is_end_seen(seen):
                # An EventSource reconnects after every end of a stream, but not after this.
                await request.reply_nothing()
                return

        def attach(stream: EventStream) -> Callable[[], None]:
            stream.push(_OPENED)
            return follower.watch(image_id, EventWriter(stream, _frame))

        await streams.serve(request, attach, table_use=follower.table_use)

    return serve(api.EVENTS, follow)
