"""Entries of a queue's events stream, as followers read them (B-8). Pure.

Every program of the queue writes events, custom ones too: any entry can be read. The fields keep
the wire's names; those that have JSON are parsed, and text that is not JSON stays text.
"""

from collections.abc import Sequence
from typing import Final, cast

import msgspec

from jobwire.systems.queues.codec import json_or_text, readable
from jobwire.systems.queues.contract import BullEventField, BullField, EventName
from jobwire.valkey.stream_ids import START, read_position

_encode: Final = msgspec.json.Encoder().encode
_KNOWN: Final = frozenset(EventName)
_JSON_FIELDS: Final = {
    EventName.PROGRESS: BullEventField.DATA,
    EventName.COMPLETED: BullField.RETURN_VALUE,
}
_TERMINAL: Final = frozenset((EventName.COMPLETED, EventName.FAILED, EventName.REMOVED))
_AFTER_END: Final = frozenset(
    (EventName.RETRIES_EXHAUSTED, EventName.STALLED, EventName.DUPLICATED)
)
"""Events that do not mean that an ended job runs again."""
CUSTOM: Final = "custom"
"""The name of events that the wire does not define: it could be a word of the event stream."""


class _Body(msgspec.Struct, frozen=True):
    """The `data:` of a server-sent event: `QueueEventData` in `api/queues.py`."""

    event: str
    job_id: str | None
    ts: int
    fields: dict[str, msgspec.Raw]


class QueueEvent:
    """One entry."""

    __slots__ = ("_body", "fields", "id", "job_id", "name", "position")

    def __init__(self, entry_id: str, flat: Sequence[str]) -> None:
        self.id = entry_id
        self.position = read_position(entry_id) or START
        self.fields = dict(zip(flat[::2], flat[1::2], strict=False))
        self.name = self.fields.pop(BullEventField.EVENT, "")
        self.job_id: str | None = self.fields.pop(BullEventField.JOB_ID, None)
        self._body: bytes | None = None

    @property
    def kind(self) -> str:
        """The event's name, `custom` if the wire does not define it."""
        return self.name if self.name in _KNOWN else CUSTOM

    @property
    def is_terminal(self) -> bool:
        """The job has ended."""
        return self.name in _TERMINAL

    @property
    def reopens(self) -> bool:
        """The job runs, also if it had ended before."""
        return self.name in _KNOWN and self.name not in _TERMINAL | _AFTER_END

    @property
    def body(self) -> bytes:
        """The whole event, as a JSON object; encoded once for all subscribers."""
        if self._body is None:
            parsed = _JSON_FIELDS.get(cast(EventName, self.name))
            fields = {
                readable(name): msgspec.Raw(
                    _encode(json_or_text(text) if name == parsed else readable(text))
                )
                for name, text in self.fields.items()
            }
            job_id = None if self.job_id is None else readable(self.job_id)
            body = _Body(readable(self.name), job_id, self.position.ms, fields)
            self._body = _encode(body)
        return self._body


def read_events(reply: object) -> list[QueueEvent]:
    """The reply to XRANGE; None for a key of another type."""
    rows = cast("list[tuple[str, list[str]]]", reply or [])
    return [QueueEvent(entry_id, flat) for entry_id, flat in rows]
