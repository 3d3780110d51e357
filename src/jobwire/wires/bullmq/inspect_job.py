"""The keys of one job as they are on the server, for people who write another client.

Read only and bounded: long values are cut, and of the events the last ones are looked at.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

from jobwire.wires.bullmq.checks import is_job_id
from jobwire.wires.bullmq.queue import BullQueue


class ValueOnServer(NamedTuple):
    """A field of a hash or of a stream's entry, or a member; `size` is that of the whole value."""

    name: str
    value: str
    size: int


class EntryOnServer(NamedTuple):
    id: str
    values: list[ValueOnServer]


class KeyOnServer(NamedTuple):
    """A key that exists; `part` is the word of the script for what it is to the job."""

    part: str
    key: str
    type: str
    size: int
    ttl_ms: int | None
    values: list[ValueOnServer]
    entries: list[EntryOnServer]
    """Of a stream, the oldest first."""


async def inspect_job(queue: BullQueue, job_id: str) -> list[KeyOnServer]:
    """The keys of a job, its hash first; empty where there is no such job."""
    if not is_job_id(job_id):
        return []
    found = await queue.run("inspect", job_id)
    return [_key(cast("Sequence[object]", row)) for row in cast("list[object]", found)]


def _key(row: Sequence[object]) -> KeyOnServer:
    part, key, kind, size, ttl_ms, rows = row
    entries: list[EntryOnServer] = []
    values: list[ValueOnServer] = []
    if kind == "stream":
        pairs = cast("list[tuple[str, list[tuple[str, str, int]]]]", rows)
        entries = [
            EntryOnServer(each, [ValueOnServer(*value) for value in of]) for each, of in pairs
        ]
    else:
        values = [ValueOnServer(*value) for value in cast("list[tuple[str, str, int]]", rows)]
    lifetime = cast(int, ttl_ms)
    return KeyOnServer(
        cast(str, part),
        cast(str, key),
        cast(str, kind),
        cast(int, size),
        lifetime if lifetime >= 0 else None,
        values,
        entries,
    )
