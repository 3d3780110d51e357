"""Entries of a job's event stream, as those who watch it read them (J-4, J-15).

The follower makes one of each entry, however many watch; the gateway writes it to them. Strangers
write events too: what is no JSON arrives as text, what has no time gets its entry's. Pure.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple, cast

import msgspec

from jobwire.wires.streams.codec import json_or_text, readable
from jobwire.wires.streams.contract import TERMINAL_EVENTS, EventField

_encode = msgspec.json.Encoder().encode


class Position(NamedTuple):
    """A place in a stream: what an entry's id says, in the order of the stream."""

    ms: int
    number: int

    @property
    def id(self) -> str:
        return f"{self.ms}-{self.number}"


START: Final = Position(0, 0)
"""Before every entry: no entry can have this id."""


def read_position(entry_id: str) -> Position | None:
    """The place that an id names; None for what is no id."""
    ms, dash, number = entry_id.partition("-")
    if not (_is_number(ms) and (_is_number(number) or not dash)):
        return None
    return Position(int(ms), int(number or 0))


def _is_number(text: str) -> bool:
    # The server counts in 64 bits; `isdigit` alone would let other alphabets' digits in.
    return text.isascii() and text.isdigit() and len(text) <= 20 and int(text) < 1 << 64


class EventBody(msgspec.Struct, frozen=True):
    """What stands in `data:` of an event: its four fields."""

    type: str
    ts: int
    step: str
    data: msgspec.Raw


class StreamEvent:
    """One entry."""

    __slots__ = ("_body", "_data", "_flat", "id", "kind", "position", "rendered")

    def __init__(self, entry_id: str, flat: Sequence[str]) -> None:
        self.id = entry_id
        position = read_position(entry_id)
        assert position is not None, "the server makes ids that are ids"
        self.position = position
        self._flat = flat
        # Ours writes its type first.
        self.kind = readable(
            flat[1] if flat and flat[0] == EventField.TYPE else self._field(EventField.TYPE)
        )
        self._data: bytes | None = None
        self._body: bytes | None = None
        self.rendered: dict[bool, object] = {}
        """For whoever shows it to many: what was made of it for the first."""

    @property
    def is_terminal(self) -> bool:
        return self.kind in TERMINAL_EVENTS

    @property
    def data(self) -> bytes:
        """The event's own data, as JSON."""
        if self._data is None:
            self._data = json_or_text(self._field(EventField.DATA))
        return self._data

    @property
    def body(self) -> bytes:
        """All four fields, as a JSON object."""
        if self._body is None:
            ts = self._field(EventField.TS)
            said = EventBody(
                self.kind,
                int(ts) if _is_number(ts) else self.position.ms,
                readable(self._field(EventField.STEP)),
                msgspec.Raw(self.data),
            )
            self._body = _encode(said)
        return self._body

    def _field(self, name: str) -> str:
        flat = self._flat
        for at in range(0, len(flat) - 1, 2):
            if flat[at] == name:
                return flat[at + 1]
        return ""


def read_events(reply: object) -> list[StreamEvent]:
    """What XRANGE answered."""
    rows = cast("list[tuple[str, list[str]]]", reply)
    return [StreamEvent(entry_id, flat) for entry_id, flat in rows]


class EventsFound(NamedTuple):
    """What a read means for somebody who stood at a place in the stream."""

    events: Sequence[StreamEvent]
    """Those after the place, up to the end of the job."""
    missed: bool = False
    """The place is gone, and what came after it may be gone with it."""
    again: bool = False
    """The place lies beyond everything there is: begin anew."""
    over: bool = False
    """The place was the end of the job."""


def following(place: Position, events: Sequence[StreamEvent], *, whole: bool) -> EventsFound:
    """What follows `place`, in a read that began there or before.

    `whole` says that the read reached the end of the stream.
    """
    if place == START:
        return EventsFound(events)
    at = bisect_left(events, place, key=lambda event: event.position)
    if at < len(events) and events[at].position == place:
        return (
            EventsFound((), over=True) if events[at].is_terminal else EventsFound(events[at + 1 :])
        )
    if at < len(events):
        return EventsFound(events[at:], missed=True)
    return EventsFound((), missed=whole, again=whole)
