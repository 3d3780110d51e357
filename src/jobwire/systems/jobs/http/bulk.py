"""Retry and cancel of many jobs over HTTP (D-25).

A call goes through the list of jobs page by page, newest first, and changes those of a page
together. It is bounded by the jobs that it changes and by those that it reads; the cursor is where
the next call goes on. After a refusal that passes by itself (a full queue) it is the beginning of
the page: what is repeated changes nothing twice.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from jobwire.api import bulk as api
from jobwire.api.problems import UNAVAILABLE
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.route import Route, serve
from jobwire.job.errors import BackendUnavailable
from jobwire.job.messages import Already, CancelOutcome
from jobwire.systems.jobs.any_shards import AnyQueue, check_complete
from jobwire.systems.jobs.codec import Record
from jobwire.systems.jobs.contract import Status
from jobwire.systems.jobs.failures import code_and_line
from jobwire.systems.jobs.http import request_parser
from jobwire.systems.jobs.http.job_management import JobManagement
from jobwire.systems.jobs.http.jobs import JobRoutes
from jobwire.systems.jobs.queue import Selection

_PAGE: Final = 200
_KEY: Final = "retry-many:"
"""Before the id of a failed job in the idempotency key of its retry."""

_TRANSIENT: Final = (429, 503)
"""Statuses of problems after which the other jobs would be refused, too."""
_FIRST: Final = "9999999999999999-~"
"""A cursor before all jobs."""

Change = Callable[[Record], Awaitable[bool]]
"""Changes a job; whether it was changed now. Raises Problem."""


@dataclass
class _Progress:
    """What a call has done so far."""

    cursor: str
    matched: int = 0
    changed: int = 0
    already: int = 0
    scanned: int = 0
    problems: list[Problem] = field(default_factory=list[Problem])


class BulkRoutes:
    """The endpoints."""

    def __init__(self, queue: AnyQueue, jobs: JobRoutes, management: JobManagement) -> None:
        self._queue = queue
        self._jobs = jobs
        self._management = management

    def routes(self) -> Sequence[Route]:
        return [serve(api.RETRY_MANY, self.retry), serve(api.CANCEL_MANY, self.cancel)]

    async def retry(self, request: HttpRequest, body: api.BulkRetry) -> api.BulkAnswer:
        """Submit a new job for each failed one that fits."""
        await self._jobs.check_task(body.task)

        def fits(job: Record) -> bool:
            if body.since is not None and job.updated_ms < body.since:
                return False
            code, line = code_and_line(job.error_json)
            return body.code in (None, code) and body.message in (None, line)

        async def change(job: Record) -> bool:
            old = await self._queue.record(job.job_id)
            if old is None or old.status is not Status.ERROR:
                return False
            key = f"{_KEY}{job.job_id}"[:255]
            new = await self._management.retry_request(request, job.job_id, old, key)
            return not isinstance(await self._jobs.submit_one(request, new), Already)

        return await self._each(request, body, Status.ERROR, fits, change)

    async def cancel(self, request: HttpRequest, body: api.BulkCancel) -> api.BulkAnswer:
        """Cancel each job that fits, or ask its worker to stop it."""

        def fits(job: Record) -> bool:
            return body.since is None or job.created_ms >= body.since

        async def change(job: Record) -> bool:
            outcome = await self._queue.cancel(job.job_id)
            if outcome in (CancelOutcome.FINISHED, CancelOutcome.GONE):
                return False
            await self._queue.cancel_children(job.job_id)
            return True

        return await self._each(request, body, Status(body.status), fits, change)

    async def _each(
        self,
        request: HttpRequest,
        body: api.BulkRetry | api.BulkCancel,
        status: Status,
        fits: Callable[[Record], bool],
        change: Change,
    ) -> api.BulkAnswer:
        tenant = request_parser.listed_tenant(request, body.tenant)
        selection = Selection(status.value, body.task)
        so_far = _Progress(body.cursor or "")
        while so_far.matched < body.limit and so_far.scanned < api.MAX_BULK_SCANNED:
            size = min(_PAGE, int(body.limit) - so_far.matched)
            page = await self._queue.page(tenant, size, selection, cursor=so_far.cursor)
            found = [job for job in page.records if fits(job)]
            so_far.matched += len(found)
            so_far.scanned += page.scanned
            if not body.dry_run:
                await _change_all(found, change, so_far)
                if any(_passes(problem) for problem in so_far.problems):
                    so_far.cursor = so_far.cursor or _FIRST
                    break
            # A count that is too small would read as if all were changed.
            check_complete(*page.incomplete)
            so_far.cursor = page.cursor
            if not page.cursor:
                break
        return _answer(request, so_far, is_dry=body.dry_run)


async def _change_all(jobs: Sequence[Record], change: Change, so_far: _Progress) -> None:
    """Change the jobs of a page, in few round trips."""

    async def attempt(job: Record) -> None:
        try:
            if await change(job):
                so_far.changed += 1
            else:
                so_far.already += 1
        except BackendUnavailable as error:
            so_far.problems.append(Problem(UNAVAILABLE, error.message))
        except Problem as problem:
            so_far.problems.append(problem)

    async with asyncio.TaskGroup() as attempts:
        for job in jobs:
            attempts.create_task(attempt(job))


def _passes(problem: Problem) -> bool:
    return problem.kind.status in _TRANSIENT


def _answer(request: HttpRequest, so_far: _Progress, *, is_dry: bool) -> api.BulkAnswer:
    problem = None
    if so_far.problems:
        first = next(filter(_passes, so_far.problems), so_far.problems[0])
        problem = msgspec.Raw(first.body(request.request_id.decode()))
    return api.BulkAnswer(
        matched=so_far.matched,
        changed=so_far.changed,
        already=so_far.already,
        refused=len(so_far.problems),
        problem=problem,
        scanned=so_far.scanned,
        cursor=so_far.cursor or None,
        dry_run=is_dry,
    )
