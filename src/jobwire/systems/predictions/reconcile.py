"""Finish whatever was left half done (P-16). Called by a timer, every one or two minutes.

A pass walks `tasks/open/` and drives each task. Every 15 minutes it also walks `tasks/` for tasks
that another program submitted and none finished, and takes them over. Two passes at once do no
harm; memory does not grow with the number of tasks.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from jobwire.json_depth import bounded
from jobwire.objects import (
    Bucket,
    Entry,
    Missing,
    ObjectsError,
    TooLarge,
    Version,
)
from jobwire.systems.predictions.contract import (
    LISTING_KEY,
    OPEN_PREFIX,
    TASKS_PREFIX,
    open_key,
    prediction_id_of,
    task_id_of,
)
from jobwire.systems.predictions.flow import Flow
from jobwire.systems.predictions.listing import objects_under
from jobwire.systems.predictions.records import BadIntent, write_json
from jobwire.systems.predictions.task import BadTask

log: Final = logging.getLogger("jobwire.predictions")

_AT_ONCE: Final = 8
_ORPHAN_AGE: Final = timedelta(hours=1)
_LISTING_EVERY: Final = timedelta(minutes=15)
_FOREIGN_AGE: Final = timedelta(minutes=5)
_CLOCK_MARGIN: Final = timedelta(minutes=5)
_PAGE_SIZE: Final = 1000
_ID_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz234567"
_PAGES: Final = 20
_MAX_LISTING_BYTES: Final = 4096


@dataclass(slots=True)
class PassReport:
    """What one pass did."""

    open: int = 0
    delivered: int = 0
    orphans: int = 0
    taken_over: int = 0
    failed: int = 0
    complete: bool = True
    """False if the time ran out before every open task was looked at."""


class _Listing(Struct, frozen=True):
    """A walk over `tasks/`: its start, its resume key, the start of the walk before."""

    begun: datetime
    after: str
    since: datetime
    done: Literal["yes", "no"] = "no"
    writer: str = ""


_decode: Final = bounded(msgspec.json.Decoder(_Listing).decode)


async def reconcile(
    flow: Flow,
    *,
    limit_s: float | None = None,
    page_size: int = _PAGE_SIZE,
    pages: int = _PAGES,
) -> PassReport:
    """One pass over everything that is open; stops beginning new work after `limit_s`.

    The walk over `tasks/` reads at most `pages` pages and is continued by the next pass.
    """
    report = PassReport()
    deadline = None if limit_s is None else time.monotonic() + limit_s

    def in_time() -> bool:
        report.complete = deadline is None or time.monotonic() < deadline
        return report.complete

    entries = _open_tasks(flow.deps.bucket, page_size)
    await _at_once(entries, lambda entry: _advance(flow, entry, report), in_time)
    if report.complete:
        flow.deps.counts.open_tasks = report.open - report.delivered - report.orphans
    flow.deps.counts.add("passes", "complete" if report.complete else "out_of_time")
    if report.complete:
        await _walk_tasks(flow, report, in_time, page_size, pages)
    return report


async def _open_tasks(bucket: Bucket, page_size: int) -> AsyncIterator[Entry]:
    """Every open task, from a random one on: a pass that runs out of time starves none."""
    page = await bucket.page(OPEN_PREFIX, limit=page_size)
    if page.next_after is None:
        turn = secrets.randbelow(len(page.entries) or 1)
        for entry in (*page.entries[turn:], *page.entries[:turn]):
            yield entry
        return
    start = OPEN_PREFIX + "".join(secrets.choice(_ID_LETTERS) for _ in range(4))
    async for entry in objects_under(bucket, OPEN_PREFIX, after=start, page_size=page_size):
        yield entry
    async for entry in objects_under(bucket, OPEN_PREFIX, page_size=page_size):
        if entry.key > start:
            return
        yield entry


async def _advance(flow: Flow, entry: Entry, report: PassReport) -> None:
    tid = task_id_of(entry.key)
    if tid is None:
        return
    report.open += 1
    try:
        intent = await flow.drive(tid)
        if intent is None:
            # The process died between marker and intent; a redelivery comes within the hour.
            if _now(flow) - entry.modified_at > _ORPHAN_AGE:
                await flow.deps.bucket.delete(open_key(tid))
                report.orphans += 1
        elif intent.state == "delivered":
            report.delivered += 1
    except (ObjectsError, BadIntent) as error:
        report.failed += 1
        log.warning(
            "task not finished task_id=%(task_id)s error=%(error)s; will retry in the next pass",
            {"task_id": tid, "error": error},
        )
    except Exception:
        report.failed += 1
        log.exception(
            "task not finished task_id=%(task_id)s; will retry in the next pass", {"task_id": tid}
        )


async def _walk_tasks(
    flow: Flow, report: PassReport, in_time: Callable[[], bool], page_size: int, pages: int
) -> None:
    """Look for tasks without an intent among those written since the last walk (P-29)."""
    bucket, now = flow.deps.bucket, _now(flow)
    listing, seen = await _read_listing(flow)
    if listing is None:
        listing = _Listing(now, "", datetime.fromtimestamp(0, UTC))
    elif listing.done == "yes":
        if now - listing.begun < _LISTING_EVERY:
            return
        listing = _Listing(now, "", listing.begun)
    # The first writer lists; an interrupted listing is continued from its resume key.
    seen = await _write_listing(flow, listing, seen)
    if seen is None:
        return
    lower = listing.since - _FOREIGN_AGE - _CLOCK_MARGIN
    after = listing.after
    for _ in range(pages):
        page = await bucket.page(TASKS_PREFIX, after=after, limit=page_size)
        for entry in page.entries:
            old_enough = listing.begun - entry.modified_at >= _FOREIGN_AGE
            if entry.modified_at >= lower and old_enough:
                await _take_over(flow, entry, report)
        if page.next_after is None:
            await _write_listing(flow, replace(listing, after="", done="yes"), seen)
            return
        after = page.next_after
        if not in_time():
            break
    await _write_listing(flow, replace(listing, after=after), seen)


async def _take_over(flow: Flow, entry: Entry, report: PassReport) -> None:
    prediction_id = prediction_id_of(entry.key)
    if prediction_id is None:
        return
    try:
        found = await flow.deps.records.load_task(prediction_id)
        if found is None or found.task.terminal or found.task.tid:
            return
        tid = await flow.take_over(found.task)
        report.taken_over += 1
        log.info(
            "task of another program continued prediction_id=%(prediction_id)s",
            {"prediction_id": prediction_id},
        )
        await flow.drive(tid)
    except BadTask as error:
        log.warning(
            "task object skipped key=%(key)s error=%(error)s", {"key": entry.key, "error": error}
        )
    except BadIntent as error:
        report.failed += 1
        log.warning(
            "task of another program skipped key=%(key)s error=%(error)s",
            {"key": entry.key, "error": error},
        )
    except ObjectsError:
        raise
    except Exception:
        report.failed += 1
        log.exception("task of another program skipped key=%(key)s", {"key": entry.key})


async def _read_listing(flow: Flow) -> tuple[_Listing | None, Version | None]:
    try:
        found = await flow.deps.bucket.get(LISTING_KEY, max_bytes=_MAX_LISTING_BYTES)
    except TooLarge:
        await flow.deps.bucket.delete(LISTING_KEY)
        return None, None
    if isinstance(found, Missing):
        return None, None
    try:
        return _decode(found.body), found.version
    except msgspec.MsgspecError:
        log.warning("listing not readable key=%(key)s; it is rewritten", {"key": LISTING_KEY})
        return None, found.version


async def _write_listing(flow: Flow, listing: _Listing, seen: Version | None) -> Version | None:
    def compose(writer: str) -> bytes:
        return msgspec.json.encode(replace(listing, writer=writer))

    written = await write_json(flow.deps.bucket, LISTING_KEY, compose, seen)
    return written if isinstance(written, Version) else None


async def _at_once(
    entries: AsyncIterator[Entry],
    work: Callable[[Entry], Awaitable[None]],
    in_time: Callable[[], bool],
) -> None:
    """Work on a few entries at a time; the list is read no faster than it is worked on."""
    queue: asyncio.Queue[Entry | None] = asyncio.Queue(_AT_ONCE)

    async def worker() -> None:
        while (entry := await queue.get()) is not None:
            await work(entry)

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(worker())
        async for entry in entries:
            if not in_time():
                break
            await queue.put(entry)
        for _ in range(_AT_ONCE):
            await queue.put(None)


def _now(flow: Flow) -> datetime:
    return datetime.fromtimestamp(flow.deps.clock.now_ms() / 1000, UTC)
