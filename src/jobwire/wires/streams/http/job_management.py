"""Jobs over HTTP, routes that are not hot: list, cancel, retry (J-13, J-16, J-18).

Ordinary FastAPI routes over the queue. A job of another tenant is answered as not found.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Response
from pydantic.json_schema import SkipJsonSchema

from jobwire.gateway.parameters import DEFAULT_PAGE, PageSize, matching, one_of
from jobwire.gateway.problems import Problem
from jobwire.gateway.router import CurrentRequest, documented, json_response, new_router, response
from jobwire.job.messages import CancelOutcome, JobRequest
from jobwire.wires.streams.contract import MAX_TTL_S, Status
from jobwire.wires.streams.http import docs, problems, request_parser, schemas
from jobwire.wires.streams.http.jobs import PATH, JobRoutes
from jobwire.wires.streams.queue import Selection, StreamsQueue

_RETRYABLE: Final = (Status.ERROR, Status.CANCELED)
_CURSOR: Final = r"[0-9]{1,16}-[\x21-\x7e]{1,512}"
_OUTCOMES: Final[Mapping[CancelOutcome, tuple[int, schemas.CancelOutcome]]] = {
    CancelOutcome.CANCELED: (200, "canceled"),
    CancelOutcome.REQUESTED: (202, "canceling"),
    CancelOutcome.REQUESTED_FOREIGN: (202, "cancel_requested"),
}

_StatusFilter = Annotated[
    schemas.StatusName | SkipJsonSchema[None],
    one_of(tuple(Status)),
    Query(description="only jobs in this state", json_schema_extra={"example": "error"}),
]
_TaskFilter = Annotated[
    str, Query(description="only jobs of this task", json_schema_extra={"example": "chat"})
]
_TextFilter = Annotated[
    str,
    Query(
        max_length=200,
        description="only jobs with this text in their id or task, in any case",
        json_schema_extra={"example": "cha"},
    ),
]
_DelayedFilter = Annotated[
    Literal["true", "false"] | SkipJsonSchema[None],
    one_of(("true", "false")),
    Query(
        description="`true`: of the waiting jobs only those that are not due yet; `false`: only "
        "those in the queue. Selects waiting jobs.",
        json_schema_extra={"example": "true"},
    ),
]
_Cursor = Annotated[
    str | SkipJsonSchema[None],
    matching(_CURSOR, "is not a cursor of a list"),
    Query(
        description="`cursor` of the previous page",
        json_schema_extra={"pattern": f"^{_CURSOR}$", "example": docs.CURSOR_EXAMPLE},
    ),
]
_Tenant = Annotated[
    str | SkipJsonSchema[None],
    Query(
        description="for a key of the tenant `*`: the jobs of this tenant",
        json_schema_extra={"example": "default"},
    ),
]


def router(queue: StreamsQueue, jobs: JobRoutes) -> APIRouter:
    """The routes."""
    routes = new_router("jobs")

    @routes.get(PATH, openapi_extra=documented("read", docs.LIST))
    async def list_jobs(
        request: CurrentRequest,
        status: _StatusFilter = None,
        task: _TaskFilter = "",
        q: _TextFilter = "",
        delayed: _DelayedFilter = None,
        limit: PageSize = DEFAULT_PAGE,
        cursor: _Cursor = None,
        tenant: _Tenant = None,
    ) -> Response:
        if delayed is not None and status is None:
            status = Status.QUEUED.value
        selection = Selection(
            status or "", task, q.strip(), None if delayed is None else delayed == "true"
        )
        owner = request_parser.listed_tenant(request, tenant)
        page = await queue.page(owner, limit, selection, cursor=cursor or "")
        lines = [schemas.line(record) for record in page.records]
        listed = schemas.JobList(lines, page.scanned, page.total, page.cursor or None)
        return json_response(listed)

    @routes.post(PATH + "/{id}/cancel", openapi_extra=documented("submit", docs.CANCEL))
    @routes.delete(PATH + "/{id}", openapi_extra=documented("submit", docs.CANCEL))
    async def cancel_job(request: CurrentRequest, id: str) -> Response:  # noqa: A002 - in the path
        job_id = request_parser.job_id(id)
        state = await queue.status_and_tenant(job_id)
        if state is None or not request_parser.may_see(request, state.tenant):
            raise Problem(problems.JOB_NOT_FOUND)
        answer = await queue.cancel(job_id)
        if answer is CancelOutcome.GONE:
            raise Problem(problems.JOB_NOT_FOUND)
        if answer is CancelOutcome.FINISHED:
            raise Problem(problems.ALREADY_FINISHED)
        status, outcome = _OUTCOMES[answer]
        return json_response(schemas.CancelAnswerBody(job_id, outcome), status)

    @routes.post(PATH + "/{id}/retry", openapi_extra=documented("submit", docs.RETRY))
    async def retry_job(request: CurrentRequest, id: str) -> Response:  # noqa: A002 - in the path
        """Submit a new job with the same task, payload and options; the old job is unchanged."""
        job_id = request_parser.job_id(id)
        old = await jobs.own(request, job_id)
        if old.status not in _RETRYABLE:
            raise Problem(problems.NOT_RETRYABLE, f"the job is {old.status}")
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
