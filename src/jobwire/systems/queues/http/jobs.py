"""Jobs of a queue over HTTP: add, list, look, logs, retry, promote, cancel, remove (B-12)."""

from collections.abc import Sequence
from typing import Final

from jobwire.api import queue_jobs as api
from jobwire.gateway.prefer import wait_s
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.route import Route, reply
from jobwire.job.messages import CancelOutcome
from jobwire.systems.queues.add_batcher import AddAnswer, Added
from jobwire.systems.queues.admin import QueueAdmin
from jobwire.systems.queues.codec import readable
from jobwire.systems.queues.contract import NEWEST_FIRST, BullState, Refusal
from jobwire.systems.queues.follow import QueueFollower
from jobwire.systems.queues.http import problems, summaries
from jobwire.systems.queues.http.access import QueueAccess
from jobwire.systems.queues.http.route import queue_route
from jobwire.systems.queues.http.tenant_limits import StoredJob, TenantLimits, size_of
from jobwire.systems.queues.job_bodies import Outcome, added_body, job_body
from jobwire.systems.queues.new_jobs import new_job
from jobwire.systems.queues.queue import QueueProducer

_PAGE_BYTES: Final = 1 << 20
"""O-15: a page of jobs ends here, or after its first job."""


class QueueJobRoutes:
    """The endpoints."""

    def __init__(self, access: QueueAccess, follower: QueueFollower, limits: TenantLimits) -> None:
        self._access = access
        self._limits = limits
        self._follower = follower

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            queue_route(api.ADD, self.add),
            queue_route(api.LIST, self.list),
            queue_route(api.SUMMARIES, self.summaries),
            queue_route(api.GET, self.get),
            queue_route(api.LOGS, self.logs),
            queue_route(api.RETRY, self.retry),
            queue_route(api.PROMOTE, self.promote),
            queue_route(api.CANCEL, self.cancel),
            queue_route(api.DELETE, self.delete),
        ]

    async def add(
        self, request: HttpRequest, queue: str, body: api.NewQueueJob | api.NewQueueJobs
    ) -> api.AddedQueueJobs:
        """Add a job, or many at once."""
        opened = self._access.open(request, queue)
        given = body.jobs if isinstance(body, api.NewQueueJobs) else [body]
        prefix = self._access.settings.prefix
        jobs = [new_job(each.name, each.data, each.opts, prefix) for each in given]
        for name in {job.options.parent.queue for job in jobs if job.options.parent}:
            self._access.open(request, name)  # its parent must be the caller's too
        with await self._limits.admit(request, queue, jobs) as reserved:
            answers = await opened.submit_many(jobs)
            reserved.keep(
                StoredJob(queue, answer.job_id, size_of(job))
                for job, answer in zip(jobs, answers, strict=True)
                if isinstance(answer, Added)
            )
        self._access.known_queues.add(queue)
        return api.AddedQueueJobs([added_body(_accepted(answer)) for answer in answers])

    async def list(
        self, request: HttpRequest, queue: str, query: api.QueueJobFilter
    ) -> api.QueueJobPage:
        """A page of the jobs in a state."""
        opened = await self._access.existing(request, queue)
        state = BullState(query.state)
        jobs, seen = await opened.page(
            state,
            query.first,
            query.limit,
            oldest_first=state not in NEWEST_FIRST,
            max_bytes=_PAGE_BYTES,
        )
        total, after = (await opened.counts())[state], query.first + seen
        shown = [job_body(job, queue, state) for job in jobs]
        return api.QueueJobPage(shown, total, after if seen and after < total else None)

    async def summaries(
        self, request: HttpRequest, queue: str, query: api.JobSummaryFilter
    ) -> api.JobSummaries:
        """The same without data: a list of fifty jobs that is read every two seconds must not carry
        their data, which may be large."""
        opened = await self._access.existing(request, queue)
        text = query.q.strip()
        if text and not query.state:
            return await summaries.search(opened, text, count=query.limit)
        state = BullState(query.state or BullState.WAITING)
        return await summaries.page(opened, state, first=query.first, count=query.limit, text=text)

    async def get(self, request: HttpRequest, queue: str, job_id: str) -> api.QueueJobInfo:
        """One job, with `Prefer: wait=N` when it has ended."""
        opened = await self._access.existing(request, queue)
        if seconds := wait_s(request):
            await request.while_present(self._follower.wait_until_finished(opened, job_id, seconds))
        job = await opened.get(job_id)
        if job is None:
            raise Problem(api.JOB_NOT_FOUND)
        return job_body(job, queue, await opened.state(job_id))

    async def logs(
        self, request: HttpRequest, queue: str, job_id: str, query: api.PageQuery
    ) -> api.QueueLogs:
        """Lines of a job's log."""
        opened = await self._access.existing(request, queue)
        if await opened.get(job_id) is None:
            raise Problem(api.JOB_NOT_FOUND)
        found = await opened.logs(job_id, first=query.first, last=query.first + query.limit - 1)
        return api.QueueLogs([readable(line) for line in found.lines], found.total)

    async def retry(self, request: HttpRequest, queue: str, job_id: str) -> api.JobChanged:
        """Run a failed or completed job again."""
        opened = await self._access.existing(request, queue)
        admin = QueueAdmin(opened)
        refusal = await admin.retry(job_id, BullState.FAILED)
        if refusal is Refusal.WRONG_STATE:
            refusal = await admin.retry(job_id, BullState.COMPLETED)
        return await changed(opened, job_id, refusal, "only failed and completed jobs run again")

    async def promote(self, request: HttpRequest, queue: str, job_id: str) -> api.JobChanged:
        """Let a delayed job run as soon as a worker is free."""
        opened = await self._access.existing(request, queue)
        refusal = await QueueAdmin(opened).promote(job_id)
        return await changed(opened, job_id, refusal, "only delayed jobs can be promoted")

    async def cancel(self, request: HttpRequest, queue: str, job_id: str) -> api.CancelResult:
        """Remove a job that waits; stop one that runs."""
        return await _cancel(await self._access.existing(request, queue), job_id)

    async def delete(self, request: HttpRequest, queue: str, job_id: str) -> Reply | None:
        """Delete a job with its children; one that runs is canceled instead."""
        opened = await self._access.existing(request, queue)
        refusal = await QueueAdmin(opened).remove(job_id)
        if refusal is Refusal.LOCKED and await opened.state(job_id) is BullState.ACTIVE:
            return reply(await _cancel(opened, job_id), 202)
        if refusal is not None:
            raise problems.refused(refusal)
        return None


async def find_state(
    access: QueueAccess, request: HttpRequest, queue: str, job_id: str
) -> BullState:
    """The state of a job that the caller may see; a Problem if there is none."""
    opened = await access.existing(request, queue)
    if await opened.get(job_id) is None:
        raise Problem(api.JOB_NOT_FOUND)
    return await opened.state(job_id)


def _accepted(answer: AddAnswer) -> Outcome:
    if isinstance(answer, Refusal):
        raise problems.refused(answer)
    return answer


async def changed(
    queue: QueueProducer, job_id: str, refusal: Refusal | None, detail: str = ""
) -> api.JobChanged:
    """The job's state after a change; a Problem if it was refused."""
    if refusal is Refusal.WRONG_STATE and detail:
        state = await queue.state(job_id)
        raise problems.refused(refusal, f"the job is {state}; {detail}")
    if refusal is not None:
        raise problems.refused(refusal)
    return api.JobChanged(job_id, str(await queue.state(job_id)))


async def _cancel(queue: QueueProducer, job_id: str) -> api.CancelResult:
    outcome = await queue.cancel(job_id)
    if outcome is CancelOutcome.GONE:
        raise Problem(api.JOB_NOT_FOUND)
    if outcome is CancelOutcome.FINISHED:
        raise Problem(api.WRONG_STATE, "the job has ended; it can be deleted or run again")
    return api.CancelResult(job_id, str(outcome))
