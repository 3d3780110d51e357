"""`GET /v1/queues/{queue}/summaries`: lists of jobs without their data (B-12).

A list of fifty jobs that is read every two seconds must not carry their data, which may be large.
"""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response
from msgspec import Meta, Struct

from jobwire.gateway.parameters import DEFAULT_PAGE, PageSize, one_of
from jobwire.gateway.router import CurrentRequest, documented, json_response
from jobwire.gateway.routes import Doc
from jobwire.wires.bullmq.contract import COLLECTIONS, State
from jobwire.wires.bullmq.http import problems
from jobwire.wires.bullmq.http.access import QueueAccess
from jobwire.wires.bullmq.http.bodies import readable
from jobwire.wires.bullmq.http.failures import wire_router
from jobwire.wires.bullmq.http.jobs import First
from jobwire.wires.bullmq.http.queues import PATH
from jobwire.wires.bullmq.summaries import (
    MAX_SCAN,
    Summary,
    SummaryPage,
    list_summaries,
    search_summaries,
)


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


_EXAMPLE: Final = {
    "jobs": [
        {
            "id": "17",
            "name": "render",
            "state": "failed",
            "timestamp": 1767225600000,
            "processed_on": 1767225600100,
            "finished_on": 1767225604100,
            "due_ts": None,
            "attempts_started": 3,
            "attempts_made": 3,
            "attempts": 3,
            "stalled": 0,
            "priority": 0,
            "progress": 25,
            "failed_reason": "no disk",
            "processed_by": "w1",
            "parent_key": None,
            "scheduler": None,
        }
    ],
    "scanned": 50,
    "total": 41220,
    "next": 50,
}
SUMMARIES: Final = Doc(
    summary="List jobs without their data",
    tag="queues",
    description="Jobs in a state: waiting ones in the order of their start, ended ones newest "
    f"first. `q` selects those that have it in their name or id among the next {MAX_SCAN}; "
    "`scanned` shows how far that is. Without a state, `q` looks in all states, newest first.",
    answer=JobSummariesBody,
    example=_EXAMPLE,
    problems=problems.ON_QUEUES,
)

_State = Annotated[
    str, one_of(("", *COLLECTIONS)), Query(description="of the listed jobs; empty: of all, for `q`")
]
_Text = Annotated[str, Query(max_length=255, description="a part of a name or an id")]


def summary_router(access: QueueAccess) -> APIRouter:
    """The route."""
    routes = wire_router()

    @routes.get(PATH + "/{queue}/summaries", openapi_extra=documented("read", SUMMARIES))
    async def list_job_summaries(
        queue: str,
        request: CurrentRequest,
        state: _State = "",
        q: _Text = "",
        first: First = 0,
        limit: PageSize = DEFAULT_PAGE,
    ) -> Response:
        opened = await access.existing(request, queue)
        text = q.strip()
        if state or not text:
            where = State(state or State.WAITING)
            page = await list_summaries(opened, where, first=first, count=limit, text=text)
        else:
            page = await search_summaries(opened, text, count=limit)
        return json_response(_body(page))

    return routes


def _body(page: SummaryPage) -> JobSummariesBody:
    return JobSummariesBody([_job(each) for each in page.jobs], *page[1:])


def _job(job: Summary) -> JobSummaryBody:
    return JobSummaryBody(
        id=readable(job.id),
        name=readable(job.name),
        state=str(job.state),
        timestamp=job.timestamp_ms,
        processed_on=job.processed_on_ms,
        finished_on=job.finished_on_ms,
        due_ts=job.due_ms,
        attempts_started=job.attempts_started,
        attempts_made=job.attempts_made,
        attempts=job.attempts,
        stalled=job.stalled,
        priority=job.priority,
        progress=job.progress,
        failed_reason=readable(job.failed_reason) or None,
        processed_by=readable(job.processed_by) or None,
        parent_key=readable(job.parent_key) or None,
        scheduler=readable(job.scheduler) or None,
    )
