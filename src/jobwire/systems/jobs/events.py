"""Entries of a job's event stream, as subscribers read them (J-4, J-15).

The follower creates one object per entry, however many subscribers there are; the gateway writes it
to them. Foreign programs write events too: data that is not JSON becomes a string, an event without
a time gets that of its entry. Pure.
"""

from collections.abc import Sequence
from typing import cast

import msgspec

from jobwire.systems.jobs.codec import json_or_text, readable
from jobwire.systems.jobs.contract import TERMINAL_EVENTS, EventField
from jobwire.valkey.stream_ids import is_number, read_position

_encode = msgspec.json.Encoder().encode


class EventBody(msgspec.Struct, frozen=True):
    """The `data:` of a server-sent event: the four fields of the entry."""

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
        assert position is not None, "entry ids come from the server"
        self.position = position
        self._flat = flat
        # Our scripts write the type first.
        self.kind = readable(
            flat[1] if flat and flat[0] == EventField.TYPE else self._field(EventField.TYPE)
        )
        self._data: bytes | None = None
        self._body: bytes | None = None
        self.rendered: dict[str, object] = {}
        """Cache for the gateway: the rendered event, shared by all subscribers."""

    @property
    def is_terminal(self) -> bool:
        return self.kind in TERMINAL_EVENTS

    @property
    def step(self) -> str:
        """What wrote it."""
        return self._field(EventField.STEP)

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
            body = EventBody(
                self.kind,
                int(ts) if is_number(ts) else self.position.ms,
                readable(self._field(EventField.STEP)),
                msgspec.Raw(self.data),
            )
            self._body = _encode(body)
        return self._body

    def _field(self, name: str) -> str:
        flat = self._flat
        for at in range(0, len(flat) - 1, 2):
            if flat[at] == name:
                return flat[at + 1]
        return ""


def read_events(reply: object) -> list[StreamEvent]:
    """The reply to XRANGE."""
    rows = cast("list[tuple[str, list[str]]]", reply)
    return [StreamEvent(entry_id, flat) for entry_id, flat in rows]
