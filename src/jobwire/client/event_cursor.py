"""One job's events over any number of connections: what is new, where to go on, when it is over.

Pure: `aio` and `sync` open the connections and feed it. Every event comes out once and in order;
where the gateway can no longer promise that, it says so by a `gap`, and so do we.
"""

from typing import Final

import msgspec
from msgspec.structs import force_setattr

from jobwire.client.errors import BadAnswer
from jobwire.client.messages import ENDED, Event, Hello
from jobwire.client.sse import Frame, Parser

_event = msgspec.json.Decoder(Event)
_hello = msgspec.json.Decoder(Hello)
_NOWHERE: Final = (-1, 0)


class EventCursor:
    """`last_id` goes out as Last-Event-ID; what arrives goes into `feed`."""

    def __init__(self, after: str | None = None) -> None:
        self.last_id = after
        self._place = _NOWHERE
        self.over = False
        """Nothing more will come."""
        self.heard = 0
        """How many events there were."""
        self.greeted = False
        """This connection has begun well."""
        self._parser = Parser()
        self._job_ended = False
        self._gap = False

    def connected(self) -> None:
        """A new connection begins; half an event of the last one is forgotten."""
        self._parser = Parser()
        self.greeted = self._job_ended = self._gap = False

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that are new."""
        events: list[Event] = []
        for frame in self._parser.feed(chunk):
            event = self._read(frame)
            if event is not None and not self.over:
                events.append(event)
                self.over = event.ends_job
        return events

    def seen_all(self) -> None:
        """The gateway says that the last event of the job was seen before."""
        self.over = True

    def closed(self) -> None:
        """The gateway ended the connection in good order.

        Usually because it stops, and another one goes on. But a job that has ended and whose last
        event was lost would be asked for again for ever: that it was lost has been told.
        """
        self.over = self.over or (self._job_ended and self._gap)

    def _read(self, frame: Frame) -> Event | None:
        try:
            if frame.event == "hello":
                self.greeted = True
                self._job_ended = _hello.decode(frame.data).status in ENDED
                return None
            if frame.event == "gap":
                self._gap = True
                # What follows may lie before the place that was lost.
                self.last_id, self._place = None, _NOWHERE
                return Event(type="gap", data=msgspec.json.decode(frame.data))
            event = _event.decode(frame.data)
        except msgspec.MsgspecError as error:
            raise BadAnswer(f"an event that cannot be read ({error}): is this jobwire?") from None
        if frame.id is not None:
            place = _place(frame.id)
            if self._place is _NOWHERE and self.last_id is not None:
                self._place = _place(self.last_id)
            if place <= self._place:
                return None
            self.last_id, self._place = frame.id, place
            force_setattr(event, "id", frame.id)  # nobody else has seen it yet
        self.heard += 1
        return event


def _place(event_id: str) -> tuple[int, int]:
    """Where an id stands; ids are `<ms>-<number>`."""
    time_ms, _, number = event_id.partition("-")
    try:
        return int(time_ms), int(number or 0)
    except ValueError:
        raise BadAnswer(f"an event has the id {event_id!r}: is this jobwire?") from None
