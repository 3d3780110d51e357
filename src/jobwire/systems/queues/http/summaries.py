"""Pages of a queue's jobs without their data, for lists of many jobs (B-12).

A text selects the jobs that have it in their name or id. The scan is bounded, and the page has how
far it went. Nothing is written.
"""

import asyncio
from typing import Final, cast

from jobwire.api.queue_jobs import MAX_SCAN, JobSummaries, JobSummary
from jobwire.systems.queues.checks import is_job_id
from jobwire.systems.queues.codec import number_of, read_json, readable
from jobwire.systems.queues.contract import COLLECTIONS, NEWEST_FIRST, BullState, Opt
from jobwire.systems.queues.queue import QueueProducer


async def page(
    queue: QueueProducer, state: BullState, *, first: int = 0, count: int = 50, text: str = ""
) -> JobSummaries:
    """A page of one state: waiting jobs in the order of their start, ended ones newest first."""
    found, counts = await asyncio.gather(_page(queue, state, first, count, text), queue.counts())
    (jobs, scanned), total = found, counts[state]
    after = first + scanned
    return JobSummaries(jobs, scanned, total, after if scanned and after < total else None)


async def search(queue: QueueProducer, text: str, *, count: int = 50) -> JobSummaries:
    """Jobs of all states that have the text in their name or id. A job whose id it is comes first,
    however far away it is."""
    scans = [_page(queue, state, 0, count, text) for state in COLLECTIONS]
    exact, counts, pages = await asyncio.gather(
        _exact(queue, text), queue.counts(), asyncio.gather(*scans)
    )
    found = [job for jobs, _ in pages for job in jobs if exact is None or job.id != exact.id]
    found.sort(key=lambda job: -job.timestamp)
    jobs = [*([exact] if exact else []), *found][:count]
    return JobSummaries(jobs, sum(scanned for _, scanned in pages), sum(counts.values()), None)


async def _page(
    queue: QueueProducer, state: BullState, first: int, count: int, text: str, *, job_id: str = ""
) -> tuple[list[JobSummary], int]:
    ascending = int(state not in NEWEST_FIRST)
    scan = MAX_SCAN if text else count
    args = (COLLECTIONS[state], first, scan, count, ascending, text.lower(), job_id)
    reply = await queue.run("summaries", *args)
    scanned, *rows = cast("tuple[int, list[object]]", reply)
    return [_read(state, cast("_Row", row)) for row in rows], scanned


async def _exact(queue: QueueProducer, text: str) -> JobSummary | None:
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


def _read(state: BullState, row: _Row) -> JobSummary:
    job_id, due, opts_json, fields = row
    name, timestamp, processed, finished, ats, atm, stalled, priority, progress, *texts = fields
    reason, worker, parent, scheduler = (readable(text) if text else None for text in texts)
    opts = read_json(opts_json or "{}")
    options = opts if isinstance(opts, dict) else {}
    return JobSummary(
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
