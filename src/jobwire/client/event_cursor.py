"""The position in one job's events, over any number of connections. Pure.

`aio` and `sync` open the connections and feed the received bytes. Every event is returned once and
in order. Where the gateway can no longer guarantee that, it sends a `gap`, which is passed on.
"""

from typing import Final

import msgspec
from msgspec.structs import force_setattr

from jobwire.client.errors import BadAnswer
from jobwire.client.messages import ENDED, Event, Hello
from jobwire.client.sse import Frame, Parser

_event = msgspec.json.Decoder(Event)
_hello = msgspec.json.Decoder(Hello)
_START: Final = (-1, 0)


class EventCursor:
    """`last_id` is sent as Last-Event-ID; received bytes go into `feed`."""

    def __init__(self, after: str | None = None) -> None:
        self.last_id = after
        self._position = _START
        self.finished = False
        """The last event was received: do not connect again."""
        self.received = 0
        """Number of events received."""
        self.greeted = False
        """The current connection has sent its `hello`."""
        self._parser = Parser()
        self._job_ended = False
        self._gap = False

    def connected(self) -> None:
        """Start a new connection; a partial event of the last one is dropped."""
        self._parser = Parser()
        self.greeted = self._job_ended = self._gap = False

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that are new."""
        events: list[Event] = []
        for frame in self._parser.feed(chunk):
            event = self._read(frame)
            if event is not None and not self.finished:
                events.append(event)
                self.finished = event.ends_job
        return events

    def no_more_events(self) -> None:
        """The gateway answered 204: `last_id` is the job's last event."""
        self.finished = True

    def closed(self) -> None:
        """The gateway closed the connection cleanly.

        Usually it stops, and the next gateway continues. But if the job has ended and its last
        event was trimmed, which the `gap` has reported, connecting again would never end.
        """
        self.finished = self.finished or (self._job_ended and self._gap)

    def _read(self, frame: Frame) -> Event | None:
        try:
            if frame.event == "hello":
                self.greeted = True
                self._job_ended = _hello.decode(frame.data).status in ENDED
                return None
            if frame.event == "gap":
                self._gap = True
                # The events that follow a gap may have ids before the lost position.
                self.last_id, self._position = None, _START
                return Event(type="gap", data=msgspec.json.decode(frame.data))
            event = _event.decode(frame.data)
        except msgspec.MsgspecError as error:
            raise BadAnswer(f"an event that cannot be read ({error}): is this jobwire?") from None
        if frame.id is not None:
            position = _parse_id(frame.id)
            if self._position is _START and self.last_id is not None:
                self._position = _parse_id(self.last_id)
            if position <= self._position:
                return None
            self.last_id, self._position = frame.id, position
            force_setattr(event, "id", frame.id)  # the event is not shared yet
        self.received += 1
        return event


def _parse_id(event_id: str) -> tuple[int, int]:
    """Parse an id `<ms>-<number>` for comparison."""
    time_ms, _, number = event_id.partition("-")
    try:
        return int(time_ms), int(number or 0)
    except ValueError:
        raise BadAnswer(f"an event has the id {event_id!r}: is this jobwire?") from None
