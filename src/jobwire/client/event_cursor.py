"""The position in a stream of events, over any number of connections. Pure.

`aio` and `sync` open the connections and feed the received bytes. A cursor decides which events are
new, where the next connection continues, and when there is nothing more to follow.
"""

from typing import Final, Generic, TypeVar

import msgspec
from msgspec.structs import force_setattr

from jobwire.api.jobs import ENDED, Hello
from jobwire.api.queue_jobs import ENDED as QUEUE_ENDED
from jobwire.api.queues import QueueHello
from jobwire.client.errors import BadAnswer
from jobwire.client.messages import Event, ImageProgress, QueueEventInfo, position_of
from jobwire.client.sse import Frame, Parser

E = TypeVar("E")
_event = msgspec.json.Decoder(Event)
_hello = msgspec.json.Decoder(Hello)
_START: Final = (-1, 0)


class EventCursor(Generic[E]):
    """`last_id` is sent as Last-Event-ID; received bytes go into `feed`."""

    def __init__(self, after: str | None = None) -> None:
        self.last_id = after
        self.finished = False
        """The last event was received: do not connect again."""
        self.responded = False
        """The current connection has received something."""
        self.received = 0
        """Number of events of the current connection."""
        self._parser = Parser()

    def connecting(self) -> None:
        """Start a new connection; a partial event of the last one is dropped."""
        self._parser = Parser()
        self.responded, self.received = False, 0

    def feed(self, chunk: bytes) -> list[E]:
        """Return the events that are new."""
        self.responded = True
        events: list[E] = []
        for frame in self._parser.feed(chunk):
            try:
                event = None if self.finished else self._read(frame)
            except msgspec.MsgspecError as error:
                text = f"an event that cannot be read ({error}): is this jobwire?"
                raise BadAnswer(text) from None
            if event is not None:
                events.append(event)
        self.received += len(events)
        return events

    def closed(self) -> None:
        """The gateway closed the connection cleanly: usually it stops, and the next one
        continues."""

    def _read(self, frame: Frame) -> E | None:
        """Return the event of a frame, if it is new; sets `finished` at the last one."""
        raise NotImplementedError


class JobEventCursor(EventCursor[Event]):
    """The events of one job, each once and in order. Where the gateway can no longer guarantee
    that, it sends a `gap`, which is passed on, as is a `rollback`."""

    def __init__(self, after: str | None = None) -> None:
        super().__init__(after)
        self._position = _START
        self._job_ended = False
        self._gap = False

    def connecting(self) -> None:
        super().connecting()
        self._job_ended = self._gap = False

    def closed(self) -> None:
        """If the job has ended and its last event was trimmed, which the `gap` has reported,
        connecting again would never end."""
        self.finished = self.finished or (self._job_ended and self._gap)

    def _read(self, frame: Frame) -> Event | None:
        if frame.event == "hello":
            self._job_ended = _hello.decode(frame.data).status in ENDED
            return None
        if frame.event == "gap":
            self._gap = True
            # The events that follow a gap may have ids before the lost position.
            self.last_id, self._position = None, _START
            return Event(type="gap", data=msgspec.json.decode(frame.data))
        if frame.event == "rollback":
            return Event(type="rollback", data=msgspec.json.decode(frame.data))
        event = _event.decode(frame.data)
        if frame.id is not None:
            position = _parse_id(frame.id)
            if self._position is _START and self.last_id is not None:
                self._position = _parse_id(self.last_id)
            if position <= self._position:
                return None
            self.last_id, self._position = frame.id, position
            force_setattr(event, "id", frame.id)  # the event is not shared yet
        self.finished = event.ends_job
        return event


class QueueEventCursor(EventCursor[QueueEventInfo]):
    """The events of a BullMQ queue, or of one of its jobs until it has ended."""

    def __init__(self, after: str | None = None, *, of_job: bool) -> None:
        super().__init__(after)
        self._of_job = of_job
        self._job_ended = False
        self._last_received = False

    def closed(self) -> None:
        """The stream of an ended job is closed after its last event. If that was trimmed, the
        gateway answers 204 after the event before it; without any event this is the end."""
        self.finished = self._last_received or (self._job_ended and self.last_id is None)

    def _read(self, frame: Frame) -> QueueEventInfo | None:
        if frame.event == "hello":
            state = msgspec.json.decode(frame.data, type=QueueHello).state
            self._job_ended = self._of_job and state in QUEUE_ENDED
            self._last_received = False
            return None
        if frame.event == "gap":
            return QueueEventInfo(event="gap", job_id=None, ts=0, fields={})
        event = msgspec.json.decode(frame.data, type=QueueEventInfo)
        self.last_id = frame.id or self.last_id
        # Not `finished`: a job may be removed after it has completed.
        self._last_received = self._last_received or (self._of_job and event.ends_job)
        return msgspec.structs.replace(event, id=frame.id)


class ImageEventCursor(EventCursor[ImageProgress]):
    """The states of one image until it is ready or has failed; none is repeated."""

    def __init__(self) -> None:
        super().__init__()
        self._last: ImageProgress | None = None

    def _read(self, frame: Frame) -> ImageProgress | None:
        decoded = msgspec.json.decode(frame.data, type=ImageProgress)
        state = msgspec.structs.replace(decoded, event=frame.event)
        if state == self._last:
            return None
        self._last, self.last_id, self.finished = state, state.updated_at, state.is_last
        return state


def _parse_id(event_id: str) -> tuple[int, int]:
    """Parse an id `<ms>-<number>` for comparison."""
    try:
        return position_of(event_id)
    except ValueError:
        raise BadAnswer(f"an event has the id {event_id!r}: is this jobwire?") from None
