"""Jobs of a queue over HTTP: add, list, look, logs, retry, promote, cancel, remove (B-12)."""

from typing import Annotated, Final

from fastapi import APIRouter, Query, Response

from jobwire.gateway.parameters import DEFAULT_PAGE, PageSize, one_of, wait_s
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.router import CurrentRequest, needs
from jobwire.job.messages import CancelOutcome
from jobwire.wires.bullmq import contract
from jobwire.wires.bullmq.admin import QueueAdmin
from jobwire.wires.bullmq.codec import readable
from jobwire.wires.bullmq.contract import COLLECTIONS, Refusal, State
from jobwire.wires.bullmq.follow import QueueFollower
from jobwire.wires.bullmq.http import bodies, problems
from jobwire.wires.bullmq.http.access import QueueAccess
from jobwire.wires.bullmq.http.failures import wire_router
from jobwire.wires.bullmq.http.queues import PATH
from jobwire.wires.bullmq.http.schemas import (
    AddedQueueJobs,
    Canceled,
    JobChanged,
    NewQueueJob,
    NewQueueJobs,
    QueueJob,
    QueueJobs,
    QueueLogs,
)
from jobwire.wires.bullmq.queue import AddAnswer, BullQueue
from jobwire.wires.bullmq.summaries import NEWEST_FIRST

JOBS: Final = PATH + "/{queue}/jobs"
JOB: Final = JOBS + "/{job_id}"
MAX_BODY: Final = contract.MAX_BULK_BYTES + (2 << 20)
"""The largest body: data of the largest bulk, with names and options."""
_State = Annotated[str, one_of(tuple(COLLECTIONS)), Query(description="of the listed jobs")]
First = Annotated[int, Query(ge=0, le=1 << 30, description="how many jobs to skip")]


def job_router(access: QueueAccess, follower: QueueFollower) -> APIRouter:
    """The routes."""
    routes = wire_router()

    @routes.post(
        JOBS, status_code=201, openapi_extra=needs("submit", *problems.ON_ADDING, max_body=MAX_BODY)
    )
    async def add_jobs(
        queue: str, new: NewQueueJob | NewQueueJobs, request: CurrentRequest
    ) -> AddedQueueJobs:
        """Add a job, or many at once. A queue that does not exist is made."""
        opened = access.open(request, queue)
        given = new.jobs if isinstance(new, NewQueueJobs) else [new]
        jobs = [bodies.new_job(each.name, each.data, each.opts) for each in given]
        answers = await opened.submit_many(jobs)
        access.directory.add(queue)
        return AddedQueueJobs(jobs=[bodies.added(_accepted(answer)) for answer in answers])

    @routes.get(JOBS, openapi_extra=needs("read", *problems.ON_QUEUES))
    async def list_jobs(
        queue: str,
        request: CurrentRequest,
        state: _State = State.WAITING,
        first: First = 0,
        limit: PageSize = DEFAULT_PAGE,
    ) -> QueueJobs:
        """Jobs in a state: waiting ones in the order of their start, ended ones newest first."""
        opened = await access.existing(request, queue)
        where = State(state)
        jobs = await opened.list(
            where, first=first, count=limit, oldest_first=where not in NEWEST_FIRST
        )
        total = (await opened.counts())[where]
        more = first + limit < total
        shown = [bodies.shown(job, queue, where) for job in jobs]
        return QueueJobs(jobs=shown, total=total, next=first + limit if more else None)

    @routes.get(JOB, openapi_extra=needs("read", *problems.ON_JOBS))
    async def get_a_job(queue: str, job_id: str, request: CurrentRequest) -> QueueJob:
        """One job. With `Prefer: wait=N` the answer comes when it has ended, at the latest after N
        seconds."""
        opened = await access.existing(request, queue)
        if seconds := wait_s(request):
            await follower.wait_until_finished(opened, job_id, seconds)
        return await _job(opened, job_id)

    @routes.get(JOB + "/logs", openapi_extra=needs("read", *problems.ON_JOBS))
    async def read_logs(
        queue: str,
        job_id: str,
        request: CurrentRequest,
        first: First = 0,
        limit: PageSize = DEFAULT_PAGE,
    ) -> QueueLogs:
        """Lines of a job's log, the oldest first."""
        opened = await access.existing(request, queue)
        if await opened.get(job_id) is None:
            raise Problem(problems.JOB_NOT_FOUND)
        found = await opened.logs(job_id, first=first, last=first + limit - 1)
        return QueueLogs(lines=[readable(line) for line in found.lines], total=found.total)

    @routes.post(JOB + "/retry", openapi_extra=needs("submit", *problems.ON_CHANGES))
    async def retry_a_job(queue: str, job_id: str, request: CurrentRequest) -> JobChanged:
        """Run a failed or completed job again."""
        opened = await access.existing(request, queue)
        admin = QueueAdmin(opened)
        refusal = await admin.retry(job_id, State.FAILED)
        if refusal is Refusal.WRONG_STATE:
            refusal = await admin.retry(job_id, State.COMPLETED)
        return await _changed(opened, job_id, refusal, "only failed and completed jobs run again")

    @routes.post(JOB + "/promote", openapi_extra=needs("submit", *problems.ON_CHANGES))
    async def promote_a_job(queue: str, job_id: str, request: CurrentRequest) -> JobChanged:
        """Let a delayed job run as soon as a worker is free."""
        opened = await access.existing(request, queue)
        refusal = await QueueAdmin(opened).promote(job_id)
        return await _changed(opened, job_id, refusal, "only delayed jobs can be promoted")

    @routes.post(JOB + "/cancel", openapi_extra=needs("submit", *problems.ON_CHANGES))
    async def cancel_a_job(queue: str, job_id: str, request: CurrentRequest) -> Canceled:
        """Remove a job that waits; stop one that runs, which then fails as `canceled`."""
        return await _cancel(await access.existing(request, queue), job_id)

    @routes.delete(
        JOB,
        status_code=204,
        responses={202: {"model": Canceled, "description": "its worker is asked to stop it"}},
        openapi_extra=needs("submit", *problems.ON_CHANGES),
        response_model=None,
    )
    async def delete_a_job(
        queue: str, job_id: str, request: CurrentRequest, response: Response
    ) -> Canceled | Response:
        """Delete a job with its children; one that runs is canceled instead (202)."""
        opened = await access.existing(request, queue)
        refusal = await QueueAdmin(opened).remove(job_id)
        if refusal is Refusal.LOCKED and await opened.state(job_id) is State.ACTIVE:
            response.status_code = 202
            return await _cancel(opened, job_id)
        if refusal is not None:
            raise problems.refused(refusal)
        return Response(status_code=204)

    return routes


async def find_state(access: QueueAccess, request: HttpRequest, queue: str, job_id: str) -> State:
    """The state of a job that the caller may see; a Problem if there is none."""
    opened = await access.existing(request, queue)
    if await opened.get(job_id) is None:
        raise Problem(problems.JOB_NOT_FOUND)
    return await opened.state(job_id)


def _accepted(answer: AddAnswer) -> bodies.Outcome:
    if isinstance(answer, Refusal):
        raise problems.refused(answer)
    return answer


async def _job(queue: BullQueue, job_id: str) -> QueueJob:
    job = await queue.get(job_id)
    if job is None:
        raise Problem(problems.JOB_NOT_FOUND)
    return bodies.shown(job, queue.keys.queue, await queue.state(job_id))


async def _changed(
    queue: BullQueue, job_id: str, refusal: Refusal | None, detail: str
) -> JobChanged:
    if refusal is Refusal.WRONG_STATE:
        state = await queue.state(job_id)
        raise problems.refused(refusal, f"the job is {state}; {detail}")
    if refusal is not None:
        raise problems.refused(refusal)
    return JobChanged(id=job_id, state=await queue.state(job_id))


async def _cancel(queue: BullQueue, job_id: str) -> Canceled:
    outcome = await queue.cancel(job_id)
    if outcome is CancelOutcome.GONE:
        raise Problem(problems.JOB_NOT_FOUND)
    if outcome is CancelOutcome.FINISHED:
        raise Problem(problems.WRONG_STATE, "the job has ended; it can be deleted or run again")
    return Canceled(id=job_id, outcome=str(outcome))
