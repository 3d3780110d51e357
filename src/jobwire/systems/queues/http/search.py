"""Finds jobs of queues by id, or by a part of their id or name (O-11). Reads only.

An id is looked up in every queue. Other text is compared with the newest jobs of each state; data
is not read, it may be large.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, cast

from msgspec.structs import replace

from jobwire.gateway.operator_view import FoundJob, SearchPart
from jobwire.systems.queues.checks import is_job_id
from jobwire.systems.queues.clock import system_now_ms
from jobwire.systems.queues.codec import number_of, readable
from jobwire.systems.queues.contract import COLLECTIONS, BullField, BullState, Keys
from jobwire.systems.queues.scripts import run_read
from jobwire.valkey import Connection, ServerError

_MAX_FOUND: Final = 20
_MAX_SCANNED: Final = 1_000
_MAX_QUEUES: Final = 200
"""Queues whose jobs are compared with a text; an id is looked up in all."""
_LISTS: Final = frozenset((BullState.WAITING, BullState.ACTIVE))


class _Candidate(NamedTuple):
    queue: str
    job_id: str
    state: BullState


async def find_jobs(
    connection: Connection, prefix: str, queues: Sequence[str], text: str
) -> SearchPart:
    """Jobs of these queues; ValkeyError where the server does not answer."""
    if is_job_id(text):
        exact = [_Candidate(queue, text, BullState.UNKNOWN) for queue in queues]
        if found := await _read(connection, prefix, exact, ""):
            return SearchPart(await _with_states(connection, prefix, found[:_MAX_FOUND]), 0, 0)
    candidates, total = await _newest(connection, prefix, queues)
    found = await _read(connection, prefix, candidates, text.casefold())
    return SearchPart(found[:_MAX_FOUND], len(candidates), total)


async def _newest(
    connection: Connection, prefix: str, queues: Sequence[str]
) -> tuple[list[_Candidate], int]:
    """Ids of the newest jobs of each state, and how many jobs there are."""
    looked_at = queues[:_MAX_QUEUES]
    most = max(1, _MAX_SCANNED // (max(1, len(looked_at)) * len(COLLECTIONS)))
    places = [(queue, state) for queue in looked_at for state in COLLECTIONS]
    calls = [_ids(connection, Keys(queue, prefix), state, most) for queue, state in places]
    counts = [
        run_read("counts", connection, Keys(queue, prefix), system_now_ms()) for queue in looked_at
    ]
    found = await asyncio.gather(*calls)
    totals = cast("list[list[int]]", await asyncio.gather(*counts))
    candidates = [
        _Candidate(queue, job_id, state)
        for (queue, state), ids in zip(places, found, strict=True)
        for job_id in ids
        if is_job_id(job_id)
    ]
    return candidates[:_MAX_SCANNED], sum(map(sum, totals))


async def _ids(connection: Connection, keys: Keys, state: BullState, most: int) -> list[str]:
    command = "LRANGE" if state in _LISTS else "ZREVRANGE"
    found = [connection.call(command, keys.base + COLLECTIONS[state], 0, most - 1)]
    if state is BullState.WAITING:
        found.append(connection.call(command, keys.paused, 0, most - 1))
    pages = cast("list[list[str]]", await asyncio.gather(*found))
    return [job_id for page in pages for job_id in page]


async def _read(
    connection: Connection, prefix: str, candidates: Sequence[_Candidate], text: str
) -> list[FoundJob]:
    """The candidates that exist and have the text in their id or name."""
    calls = [
        connection.call(
            "HMGET", Keys(each.queue, prefix).job(each.job_id), BullField.NAME, BullField.TIMESTAMP
        )
        for each in candidates
    ]
    rows = cast(
        "list[tuple[str | None, str | None]]", await asyncio.gather(*calls, return_exceptions=True)
    )
    return [
        _found(each, name or "", timestamp)
        for each, (name, timestamp) in _hashes(candidates, rows)
        if text in each.job_id.casefold() or text in (name or "").casefold()
    ]


def _hashes(
    candidates: Sequence[_Candidate], rows: Iterable[tuple[str | None, str | None] | BaseException]
) -> Iterable[tuple[_Candidate, tuple[str | None, str | None]]]:
    """Without ids that have no job, or name a key of another type."""
    for each, row in zip(candidates, rows, strict=True):
        if isinstance(row, BaseException):
            if not isinstance(row, ServerError):
                raise row
        elif row[0] is not None or row[1] is not None:
            yield each, row


def _found(each: _Candidate, name: str, timestamp: str | None) -> FoundJob:
    return FoundJob(
        system="queues",
        name=readable(each.queue),
        wire="bullmq",
        id=readable(each.job_id),
        task=readable(name),
        status=str(each.state),
        created_ts=number_of(timestamp) or 0,
    )


async def _with_states(
    connection: Connection, prefix: str, found: Sequence[FoundJob]
) -> list[FoundJob]:
    calls = [
        run_read("state", connection, Keys(each.name, prefix), system_now_ms(), each.id)
        for each in found
    ]
    states = cast("list[str]", await asyncio.gather(*calls))
    return [replace(each, status=state) for each, state in zip(found, states, strict=True)]
