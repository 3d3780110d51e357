"""Jobs over HTTP, routes that are not hot: list, cancel, retry (J-13, J-16, J-18).

A job of another tenant is answered as not found.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from fastapi import APIRouter, Response

from jobwire.api import jobs as api
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.route import Route, reply, serve
from jobwire.gateway.router import CurrentRequest, documented, new_router, response
from jobwire.job.messages import CancelOutcome, JobRequest
from jobwire.wires.streams.contract import MAX_TTL_S, Status
from jobwire.wires.streams.http import docs, request_parser, schemas
from jobwire.wires.streams.http.jobs import PATH, JobRoutes
from jobwire.wires.streams.queue import Selection, StreamsQueue

_RETRYABLE: Final = (Status.ERROR, Status.CANCELED)
_OUTCOMES: Final[Mapping[CancelOutcome, tuple[int, str]]] = {
    CancelOutcome.CANCELED: (200, "canceled"),
    CancelOutcome.REQUESTED: (202, "canceling"),
    CancelOutcome.REQUESTED_FOREIGN: (202, "cancel_requested"),
}


class JobManagement:
    """The endpoints."""

    def __init__(self, queue: StreamsQueue) -> None:
        self._queue = queue

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            serve(api.LIST, self.list),
            serve(api.CANCEL, self.cancel),
            serve(api.DELETE, self.cancel),
        ]

    async def list(self, request: HttpRequest, query: api.JobFilter) -> api.JobList:
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
        lines = [schemas.line(record) for record in page.records]
        return api.JobList(lines, page.scanned, page.total, page.cursor or None)

    async def cancel(self, request: HttpRequest, id_: str) -> Reply:
        """Cancel a job, or ask its worker to."""
        job_id = request_parser.job_id(id_)
        state = await self._queue.status_and_tenant(job_id)
        if state is None or not request_parser.may_see(request, state.tenant):
            raise Problem(api.JOB_NOT_FOUND)
        answer = await self._queue.cancel(job_id)
        if answer is CancelOutcome.GONE:
            raise Problem(api.JOB_NOT_FOUND)
        if answer is CancelOutcome.FINISHED:
            raise Problem(api.ALREADY_FINISHED)
        status, outcome = _OUTCOMES[answer]
        return reply(api.CancelAnswerBody(job_id, outcome), status)


def router(jobs: JobRoutes) -> APIRouter:
    """The route that is not an operation yet."""
    routes = new_router("jobs")

    @routes.post(PATH + "/{id}/retry", openapi_extra=documented("submit", docs.RETRY))
    async def retry_job(request: CurrentRequest, id: str) -> Response:  # noqa: A002 - in the path
        """Submit a new job with the same task, payload and options; the old job is unchanged."""
        job_id = request_parser.job_id(id)
        old = await jobs.own(request, job_id)
        if old.status not in _RETRYABLE:
            raise Problem(api.NOT_RETRYABLE, f"the job is {old.status}")
        await jobs.admit(request, 1)
        await jobs.check_task(old.task)
        key = request_parser.idempotency_key(request)
        job_request = JobRequest(
            old.task,
            old.payload_json,
            ttl_s=old.ttl_s if 1 <= old.ttl_s <= MAX_TTL_S else None,
            max_attempts=old.max_attempts,
            timeout_s=old.timeout_s,
            idempotency_key=key,
            fingerprint=request_parser.fingerprint(f"retry {job_id}".encode()) if key else "",
            tenant=old.tenant,
            traceparent=request_parser.traceparent(request),
            retry_of=job_id,
            queue=await jobs.retry_queue(old),
        )
        return response(await jobs.submit_request(request, job_request))

    return routes
