"""Pages of a queue's jobs without their data, for lists of many jobs (B-12).

A text selects the jobs that have it in their name or id. The scan is bounded, and the page has how
far it went. Nothing is written.
"""

import asyncio
from typing import Final, NamedTuple, cast

from jobwire.job.messages import Json
from jobwire.wires.bullmq.checks import is_job_id
from jobwire.wires.bullmq.codec import number_of, read_json
from jobwire.wires.bullmq.contract import COLLECTIONS, Opt, State
from jobwire.wires.bullmq.queue import BullQueue

MAX_SCAN: Final = 1_000
"""Jobs of a state that one call looks at for a text."""
NEWEST_FIRST: Final = frozenset((State.COMPLETED, State.FAILED))


class Summary(NamedTuple):
    """A job in a list. Long texts are cut."""

    id: str
    state: State
    name: str
    timestamp_ms: int
    processed_on_ms: int | None
    finished_on_ms: int | None
    due_ms: int | None
    """When a delayed job is due."""
    attempts_started: int
    attempts_made: int
    attempts: int
    """How often it may run; 0 where that is not known."""
    stalled: int
    priority: int
    progress: Json
    failed_reason: str
    processed_by: str
    parent_key: str
    scheduler: str


class SummaryPage(NamedTuple):
    jobs: list[Summary]
    scanned: int
    total: int
    next: int | None
    """Where the next page of the state begins; None at the end, and for all states."""


async def list_summaries(
    queue: BullQueue, state: State, *, first: int = 0, count: int = 50, text: str = ""
) -> SummaryPage:
    """A page of one state: waiting jobs in the order of their start, ended ones newest first."""
    page, counts = await asyncio.gather(_page(queue, state, first, count, text), queue.counts())
    jobs, scanned = page
    after = first + scanned
    return SummaryPage(jobs, scanned, counts[state], after if after < counts[state] else None)


async def search_summaries(queue: BullQueue, text: str, *, count: int = 50) -> SummaryPage:
    """Jobs of all states that have the text in their name or id. A job whose id it is comes first,
    however far away it is."""
    scans = [_page(queue, state, 0, count, text) for state in COLLECTIONS]
    exact, counts, pages = await asyncio.gather(
        _exact(queue, text), queue.counts(), asyncio.gather(*scans)
    )
    found = [job for jobs, _ in pages for job in jobs if exact is None or job.id != exact.id]
    found.sort(key=lambda job: -job.timestamp_ms)
    jobs = [*([exact] if exact else []), *found][:count]
    return SummaryPage(jobs, sum(scanned for _, scanned in pages), sum(counts.values()), None)


async def _page(
    queue: BullQueue, state: State, first: int, count: int, text: str, *, job_id: str = ""
) -> tuple[list[Summary], int]:
    ascending = int(state not in NEWEST_FIRST)
    scan = MAX_SCAN if text else count
    args = (COLLECTIONS[state], first, scan, count, ascending, text.lower(), job_id)
    reply = await queue.run("summaries", *args)
    scanned, *rows = cast("tuple[int, list[object]]", reply)
    return [_read(state, cast("_Row", row)) for row in rows], scanned


async def _exact(queue: BullQueue, text: str) -> Summary | None:
    if not is_job_id(text):
        return None
    state = await queue.state(text)
    if state not in COLLECTIONS:
        return None
    jobs, _ = await _page(queue, state, 0, 1, "", job_id=text)
    return next(iter(jobs), None)


_LONGEST: Final = 400
_Row = tuple[str, str | None, str | None, list[str | None]]


def _read(state: State, row: _Row) -> Summary:
    job_id, due, opts_json, fields = row
    name, timestamp, processed, finished, ats, atm, stalled, priority, progress, *texts = fields
    reason, worker, parent, scheduler = (text or "" for text in texts)
    opts = read_json(opts_json or "{}")
    options = opts if isinstance(opts, dict) else {}
    return Summary(
        id=job_id,
        state=state,
        name=name or "",
        timestamp_ms=number_of(timestamp) or 0,
        processed_on_ms=number_of(processed),
        finished_on_ms=number_of(finished),
        due_ms=number_of(due),
        attempts_started=number_of(ats) or 0,
        attempts_made=number_of(atm) or 0,
        attempts=number_of(options.get(Opt.ATTEMPTS)) or 0,
        stalled=number_of(stalled) or 0,
        priority=number_of(priority) or 0,
        progress=_progress(progress or "0"),
        failed_reason=reason,
        processed_by=worker,
        parent_key=parent,
        scheduler=scheduler,
    )


def _progress(text: str) -> Json:
    """The progress; None where it is no JSON, or too long for a list."""
    return read_json(text) if len(text) < _LONGEST else None
