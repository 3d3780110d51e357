"""`GET /v1/queues/{queue}/summaries`: lists of jobs without their data (B-12).

A list of fifty jobs that is read every two seconds must not carry their data, which may be large.
"""

from typing import Annotated, Final

from fastapi import APIRouter, Query, Response

from jobwire.gateway.parameters import DEFAULT_PAGE, PageSize, one_of
from jobwire.gateway.router import CurrentRequest, documented, json_response
from jobwire.gateway.routes import Doc
from jobwire.wires.bullmq.contract import COLLECTIONS, State
from jobwire.wires.bullmq.http import problems
from jobwire.wires.bullmq.http.access import QueueAccess
from jobwire.wires.bullmq.http.failures import wire_router
from jobwire.wires.bullmq.http.jobs import First
from jobwire.wires.bullmq.http.queues import PATH
from jobwire.wires.bullmq.summaries import (
    MAX_SCAN,
    JobSummariesBody,
    list_summaries,
    search_summaries,
)

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
        return json_response(page)

    return routes
