"""Jobs over HTTP: list, cancel, retry (J-13, J-16, J-18).

A job of another tenant is answered as not found.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from jobwire.api import jobs as api
from jobwire.api.problems import ProblemKind
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.route import Route, reply, serve
from jobwire.job.messages import CancelOutcome, JobId, JobRequest
from jobwire.systems.jobs.any_shards import AnyQueue
from jobwire.systems.jobs.codec import Record
from jobwire.systems.jobs.contract import MAX_TTL_S, Status
from jobwire.systems.jobs.http import answers, request_parser
from jobwire.systems.jobs.http.jobs import JobRoutes
from jobwire.systems.jobs.queue import Selection, SignalOutcome

_RETRYABLE: Final = (Status.ERROR, Status.CANCELED)
_OUTCOMES: Final[Mapping[CancelOutcome, tuple[int, str]]] = {
    CancelOutcome.CANCELED: (200, "canceled"),
    CancelOutcome.REQUESTED: (202, "canceling"),
    CancelOutcome.REQUESTED_FOREIGN: (202, "cancel_requested"),
}


_SIGNAL_PROBLEMS: Final[Mapping[SignalOutcome, tuple[ProblemKind, str]]] = {
    SignalOutcome.GONE: (api.JOB_NOT_FOUND, ""),
    SignalOutcome.FINISHED: (api.ALREADY_FINISHED, ""),
    SignalOutcome.OTHER: (api.ALREADY_SIGNALED, "the signal has another value"),
    SignalOutcome.LATE: (api.ALREADY_SIGNALED, "the job has waited for this signal in vain"),
    SignalOutcome.FULL: (api.TOO_MANY_SIGNALS, ""),
}


class JobManagement:
    """The endpoints."""

    def __init__(self, queue: AnyQueue, jobs: JobRoutes) -> None:
        self._queue = queue
        self._jobs = jobs

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            serve(api.LIST, self.list),
            serve(api.CANCEL, self.cancel),
            serve(api.DELETE, self.cancel),
            serve(api.RETRY, self.retry),
            serve(api.SIGNAL, self.signal),
        ]

    async def list(self, request: HttpRequest, query: api.JobFilter) -> api.JobPage:
        """A page of jobs."""
        status, delayed = query.status, query.delayed
        if delayed is not None and status is None:
            status = Status.QUEUED.value
        selection = Selection(
            status or "",
            query.task,
            query.q.strip(),
            None if delayed is None else delayed == "true",
        )
        owner = request_parser.listed_tenant(request, query.tenant)
        page = await self._queue.page(owner, query.limit, selection, cursor=query.cursor or "")
        lines = [answers.line(record) for record in page.records]
        return api.JobPage(
            lines, page.scanned, page.total, page.cursor or None, list(page.incomplete)
        )

    async def cancel(self, request: HttpRequest, id_: str) -> Reply:
        """Cancel a job, or ask its worker to."""
        job_id = request_parser.job_id(id_)
        state = await self._queue.status_and_tenant(job_id)
        if state is None or not request_parser.may_see(request, state.tenant):
            raise Problem(api.JOB_NOT_FOUND)
        answer = await self._queue.cancel(job_id)
        if answer is CancelOutcome.GONE:
            raise Problem(api.JOB_NOT_FOUND)
        # Also of a job that was canceled before: that call may not have got to its children.
        if answer is not CancelOutcome.FINISHED or state.status is Status.CANCELED:
            await self._queue.cancel_children(job_id)
        if answer is CancelOutcome.FINISHED:
            raise Problem(api.ALREADY_FINISHED)
        status, outcome = _OUTCOMES[answer]
        return reply(api.CancelAnswer(job_id, outcome), status)

    async def signal(self, request: HttpRequest, id_: str, name: str) -> Reply:
        """Record a signal, which wakes the job if it waits for it (D-12)."""
        job_id = request_parser.job_id(id_)
        value = request_parser.signal_value(name, await request.body())
        state = await self._queue.status_and_tenant(job_id)
        if state is None or not request_parser.may_see(request, state.tenant):
            raise Problem(api.JOB_NOT_FOUND)
        answer = await self._queue.signal(job_id, name, value)
        if problem := _SIGNAL_PROBLEMS.get(answer):
            raise Problem(*problem)
        status = 202 if answer is SignalOutcome.RECORDED else 200
        return reply(api.SignalAnswer(job_id, name, answer.value), status)

    async def retry(self, request: HttpRequest, id_: str, body: api.RetryOptions | None) -> Reply:
        """Submit a new job with the same task, payload and options; the old job is unchanged."""
        job_id = request_parser.job_id(id_)
        old = await self._jobs.own(request, job_id)
        if old.status not in _RETRYABLE:
            raise Problem(api.NOT_RETRYABLE, f"the job is {old.status}")
        await self._jobs.admit(request, 1)
        await self._jobs.check_task(old.task)
        key = request_parser.idempotency_key(request)
        keep_steps = body is not None and body.keep_steps
        job_request = await self.retry_request(request, job_id, old, key, keep_steps=keep_steps)
        if keep_steps:
            return await self._jobs.submit_with_record(request, job_request, job_id)
        return await self._jobs.submit_request(request, job_request)

    async def retry_request(
        self,
        request: HttpRequest,
        job_id: JobId,
        old: Record,
        key: str,
        *,
        keep_steps: bool = False,
    ) -> JobRequest:
        """A new job with the same task, payload and options. A foreign program may have written any
        id into the hash."""
        text = f"retry {job_id}{' with steps' if keep_steps else ''}".encode()
        return JobRequest(
            old.task,
            old.payload_json,
            ttl_s=old.ttl_s if 1 <= old.ttl_s <= MAX_TTL_S else None,
            max_attempts=old.max_attempts,
            timeout_s=old.timeout_s,
            deadline_s=old.deadline_s,
            idempotency_key=key,
            fingerprint=request_parser.fingerprint(text) if key else "",
            tenant=old.tenant,
            traceparent=request_parser.traceparent(request),
            retry_of=job_id,
            queue=await self._jobs.retry_queue(old),
        )
