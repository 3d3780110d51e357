"""What an operator asks of all systems at once: `/v1/overview`, `/v1/failures`, `/v1/search`.

The routes join the answers of the systems' views. A system whose backend does not answer is named
in `unavailable`, and the others are shown.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Query, Response
from msgspec import Meta, Struct
from pydantic.json_schema import SkipJsonSchema

from jobwire.api.problems import INVALID
from jobwire.gateway.cached_value import CachedValue
from jobwire.gateway.fleet_schemas import QuantilesBody, UnavailableBody
from jobwire.gateway.joined import audience, read_each
from jobwire.gateway.parameters import matching
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.router import CurrentRequest, documented, json_response, new_router
from jobwire.gateway.routes import Doc, HotRoute
from jobwire.gateway.system_view import FailureBody, FoundBody, SystemRowBody, SystemView

_encode = msgspec.json.Encoder().encode
MAX_HOURS: Final = 24
FRESH_S: Final = 0.5
"""How old an overview may be: all pages of a tenant that ask within this time share one reading."""
_TAG: Final = "fleet"


class OverviewBody(Struct, frozen=True, omit_defaults=True):
    """All systems that the caller may see."""

    systems: list[SystemRowBody]
    unavailable: list[UnavailableBody]
    left_out: Annotated[
        int, Meta(description="further queues, with fewer jobs than those that are shown")
    ] = 0


class FailuresBody(Struct, frozen=True):
    """The kinds of failures, the most frequent first. Queues are read as far as `scanned`."""

    hours: int
    count: Annotated[int, Meta(description="failed jobs of all these kinds")]
    failures: list[FailureBody]
    unavailable: list[UnavailableBody]
    scanned: Annotated[int, Meta(description="failed jobs that were read, the newest ones")]
    total: Annotated[int, Meta(description="failed jobs of this period")]


class SearchBody(Struct, frozen=True):
    """Exact matches first. If the text is not an id, only the newest jobs are searched."""

    found: list[FoundBody]
    scanned: int
    total: int
    unavailable: list[UnavailableBody]


_ROW: Final = SystemRowBody(
    system="jobs",
    name="jobs",
    wire="streams",
    waiting=12,
    delayed=0,
    running=9,
    oldest_waiting_ms=400,
    workers=2,
    slots=12,
    heartbeat_age_ms=1200,
    submitted=142,
    done=119,
    error=2,
    canceled=0,
    ended_by_minute=[2, 0, 1],
    failed_by_minute=[0, 0, 1],
    duration_ms=QuantilesBody(120.0, 1900.0, 4100.0),
)
_ID: Final = "0b7c1d52-7d0e-4c55-9a0f-2f6d1c1f7a10"
_FAILURE: Final = FailureBody(
    system="jobs",
    name="jobs",
    wire="streams",
    task="rag",
    code="timeout",
    message="no answer from the model within 30 s",
    count=11,
    first_ts=1767225600000,
    last_ts=1767229200000,
    by_hour=[0, 1, 10],
    sample_job_id=_ID,
    worker=None,
)
_FOUND: Final = FoundBody(
    system="jobs",
    name="jobs",
    wire="streams",
    id=_ID,
    task="chat",
    status="done",
    created_ts=1767225600000,
)
OVERVIEW: Final = Doc(
    summary="All systems: jobs, age of the oldest, workers, the last hour",
    tag=_TAG,
    description="One row for each system, and for each of the busiest 50 queues. At most half a "
    "second old; what is read from a bucket or a database, a few seconds.",
    answer=OverviewBody,
    example=OverviewBody([_ROW], []),
)
FAILURES: Final = Doc(
    summary="Failed jobs, grouped by kind",
    tag=_TAG,
    description="Failures are counted for 24 hours. A kind is a task, an error code and the first "
    "line of the message; in it `…` stands for ids and long numbers. Of queues, the newest failed "
    "jobs that are still stored are grouped; `scanned` and `total` show how far that is.",
    answer=FailuresBody,
    example=FailuresBody(24, 11, [_FAILURE], [], 11, 11),
    problems=(INVALID,),
)
SEARCH: Final = Doc(
    summary="Find by id from anywhere",
    tag=_TAG,
    description="An id or an Idempotency-Key is found however old it is. Other text is searched "
    "in the ids and tasks of the newest 1000 jobs; `scanned` and `total` show how far that is.",
    answer=SearchBody,
    example=SearchBody([_FOUND], 1000, 41220, []),
    problems=(INVALID,),
)

_Hours = Annotated[
    int,
    matching(r"([1-9]|1\d|2[0-4])", f"must be a number from 1 to {MAX_HOURS}"),
    Query(
        description="the last hours, at most 24",
        json_schema_extra={"minimum": 1, "maximum": MAX_HOURS, "example": 24},
    ),
]
_Text = Annotated[
    str,
    Query(
        min_length=1,
        max_length=255,
        description="an id, an idempotency key, or a part of an id or a task",
        json_schema_extra={"example": "0b7c1d52"},
    ),
]
_Tenant = Annotated[
    str | SkipJsonSchema[None],
    Query(
        description="for a key of the tenant `*`: the failures of this tenant",
        json_schema_extra={"example": "default"},
    ),
]


def hot_route(views: Sequence[SystemView]) -> HotRoute:
    """The overview, over the views of all features: every open page asks for it every two
    seconds."""
    replies: dict[tuple[str, bool], CachedValue[Reply]] = {}

    async def read(request: HttpRequest) -> Reply:
        parts, unavailable = await read_each(views, lambda view: view.rows(request))
        rows = [row for part in parts for row in part.rows]
        left_out = sum(part.left_out for part in parts)
        return Reply(_encode(OverviewBody(rows, unavailable, left_out)))

    async def overview(request: HttpRequest) -> Reply:
        # One for each tenant of the settings, with and without `admin`: they are few.
        seen_by = audience(request)
        cached = replies.get(seen_by)
        if cached is None:
            cached = replies[seen_by] = CachedValue(FRESH_S)
        return await cached.get(lambda: read(request))

    return HotRoute("GET", "/v1/overview", "read", overview, OVERVIEW)


def router(views: Sequence[SystemView]) -> APIRouter:
    """The other routes."""
    routes = new_router(_TAG)

    @routes.get("/v1/failures", openapi_extra=documented("read", FAILURES))
    async def failures(
        request: CurrentRequest, hours: _Hours = MAX_HOURS, tenant: _Tenant = None
    ) -> Response:
        parts, unavailable = await read_each(
            views, lambda view: view.failures(request, hours, tenant)
        )
        kinds = [kind for part in parts for kind in part.kinds]
        kinds.sort(key=lambda kind: (-kind.count, -kind.last_ts))
        body = FailuresBody(
            hours,
            sum(kind.count for kind in kinds),
            kinds,
            unavailable,
            sum(part.scanned for part in parts),
            sum(part.total for part in parts),
        )
        return json_response(body)

    @routes.get("/v1/search", openapi_extra=documented("read", SEARCH))
    async def search(request: CurrentRequest, q: _Text) -> Response:
        parts, unavailable = await read_each(views, lambda view: view.search(request, q.strip()))
        body = SearchBody(
            [found for part in parts for found in part.found],
            sum(part.scanned for part in parts),
            sum(part.total for part in parts),
            unavailable,
        )
        return json_response(body)

    return routes
