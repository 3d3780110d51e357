"""Pages of a queue's jobs without their data, for lists of many jobs (B-12).

A text selects the jobs that have it in their name or id. The scan is bounded, and the page has how
far it went. Nothing is written.
"""

import asyncio
from typing import Annotated, Any, Final, cast

from msgspec import Meta, Struct

from jobwire.wires.bullmq.checks import is_job_id
from jobwire.wires.bullmq.codec import number_of, read_json, readable
from jobwire.wires.bullmq.contract import COLLECTIONS, Opt, State
from jobwire.wires.bullmq.queue import BullQueue

MAX_SCAN: Final = 1_000
"""Jobs of a state that one call looks at for a text."""
NEWEST_FIRST: Final = frozenset((State.COMPLETED, State.FAILED))


class JobSummaryBody(Struct, frozen=True, kw_only=True):
    """A job in a list; long texts are cut. Times are milliseconds since 1970."""

    id: str
    name: str
    state: str
    timestamp: int
    processed_on: int | None
    finished_on: int | None
    due_ts: Annotated[int | None, Meta(description="when a delayed job is due")]
    attempts_started: int
    attempts_made: int
    attempts: Annotated[int, Meta(description="how often it may run; 0: not known")]
    stalled: int
    priority: int
    progress: Any
    failed_reason: str | None
    processed_by: str | None
    parent_key: str | None
    scheduler: str | None


class JobSummariesBody(Struct, frozen=True):
    """A page; `next` is the `first` of the next one."""

    jobs: list[JobSummaryBody]
    scanned: Annotated[int, Meta(description="how many jobs were searched")]
    total: Annotated[int, Meta(description="jobs in the state, or in the queue without a state")]
    next: int | None


async def list_summaries(
    queue: BullQueue, state: State, *, first: int = 0, count: int = 50, text: str = ""
) -> JobSummariesBody:
    """A page of one state: waiting jobs in the order of their start, ended ones newest first."""
    page, counts = await asyncio.gather(_page(queue, state, first, count, text), queue.counts())
    (jobs, scanned), total = page, counts[state]
    after = first + scanned
    # Jobs that an older program moved to the list `paused` count as waiting, and are not listed.
    return JobSummariesBody(jobs, scanned, total, after if scanned and after < total else None)


async def search_summaries(queue: BullQueue, text: str, *, count: int = 50) -> JobSummariesBody:
    """Jobs of all states that have the text in their name or id. A job whose id it is comes first,
    however far away it is."""
    scans = [_page(queue, state, 0, count, text) for state in COLLECTIONS]
    exact, counts, pages = await asyncio.gather(
        _exact(queue, text), queue.counts(), asyncio.gather(*scans)
    )
    found = [job for jobs, _ in pages for job in jobs if exact is None or job.id != exact.id]
    found.sort(key=lambda job: -job.timestamp)
    jobs = [*([exact] if exact else []), *found][:count]
    return JobSummariesBody(jobs, sum(scanned for _, scanned in pages), sum(counts.values()), None)


async def _page(
    queue: BullQueue, state: State, first: int, count: int, text: str, *, job_id: str = ""
) -> tuple[list[JobSummaryBody], int]:
    ascending = int(state not in NEWEST_FIRST)
    scan = MAX_SCAN if text else count
    args = (COLLECTIONS[state], first, scan, count, ascending, text.lower(), job_id)
    reply = await queue.run("summaries", *args)
    scanned, *rows = cast("tuple[int, list[object]]", reply)
    return [_read(state, cast("_Row", row)) for row in rows], scanned


async def _exact(queue: BullQueue, text: str) -> JobSummaryBody | None:
    if not is_job_id(text):
        return None
    state = await queue.state(text)
    if state not in COLLECTIONS:
        return None
    jobs, _ = await _page(queue, state, 0, 1, "", job_id=text)
    return next(iter(jobs), None)


_LONGEST: Final = 400
"""Texts of this length were cut by the script."""
_Row = tuple[str, str | None, str | None, list[str | None]]


def _read(state: State, row: _Row) -> JobSummaryBody:
    job_id, due, opts_json, fields = row
    name, timestamp, processed, finished, ats, atm, stalled, priority, progress, *texts = fields
    reason, worker, parent, scheduler = (readable(text) if text else None for text in texts)
    opts = read_json(opts_json or "{}")
    options = opts if isinstance(opts, dict) else {}
    return JobSummaryBody(
        id=readable(job_id),
        name=readable(name or ""),
        state=str(state),
        timestamp=number_of(timestamp) or 0,
        processed_on=number_of(processed),
        finished_on=number_of(finished),
        due_ts=number_of(due),
        attempts_started=number_of(ats) or 0,
        attempts_made=number_of(atm) or 0,
        attempts=number_of(options.get(Opt.ATTEMPTS)) or 0,
        stalled=number_of(stalled) or 0,
        priority=number_of(options.get(Opt.PRIORITY) if priority is None else priority) or 0,
        progress=read_json(progress or "0") if len(progress or "") < _LONGEST else None,
        failed_reason=reason,
        processed_by=worker,
        parent_key=parent,
        scheduler=scheduler,
    )
