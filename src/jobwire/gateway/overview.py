"""What an operator asks of all systems at once: `/v1/overview`, `/v1/failures`, `/v1/search`.

A system answers by a `SystemView` in its feature; the routes join the answers of all systems. A
system whose backend does not answer is named in `unavailable`, and the others are shown.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Final, Protocol, TypeVar

import msgspec
from fastapi import APIRouter, Query, Response
from msgspec import Meta, Struct, to_builtins
from pydantic.json_schema import SkipJsonSchema

from jobwire.gateway.parameters import matching
from jobwire.gateway.problems import INVALID
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.router import CurrentRequest, documented, new_router, response
from jobwire.gateway.routes import Doc, HotRoute
from jobwire.job.errors import BackendUnavailable

_encode = msgspec.json.Encoder().encode
_T = TypeVar("_T")
MAX_HOURS: Final = 24
_TAG: Final = "fleet"


class RunTimeBody(Struct, frozen=True):
    """Quantiles of the last hour in milliseconds; null without samples."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


class SystemRowBody(Struct, frozen=True, kw_only=True):
    """A system, or one queue of a system, now and in the last hour."""

    system: Annotated[str, Meta(description="for example `jobs`")]
    name: Annotated[str, Meta(description="of the queue; of the system, if it has one queue")]
    wire: Annotated[str, Meta(description="the protocol, for example `streams`")]
    waiting: int
    delayed: Annotated[int, Meta(description="not due yet: delayed, or waiting for a retry")]
    running: int
    oldest_waiting_ms: int | None
    workers: Annotated[int | None, Meta(description="live workers; null: it needs none")]
    slots: Annotated[int | None, Meta(description="of all workers that tell; null: unknown")]
    heartbeat_age_ms: Annotated[int | None, Meta(description="of the worker heard last")]
    submitted: Annotated[int, Meta(description="in the last hour")]
    done: int
    error: int
    canceled: int
    ended_by_minute: Annotated[list[int], Meta(description="oldest first; the last is incomplete")]
    failed_by_minute: list[int]
    duration_ms: RunTimeBody


class FailureBody(Struct, frozen=True, kw_only=True):
    """Failed jobs of one kind: the same task, error code and first line of the message, in which
    `…` stands for ids and long numbers."""

    system: str
    name: str
    wire: str
    task: str
    code: str
    message: str
    count: int
    first_ts: int
    last_ts: int
    by_hour: Annotated[list[int], Meta(description="oldest first; the last hour is incomplete")]
    sample_job_id: Annotated[str, Meta(description="the last job of this kind")]
    worker: Annotated[str | None, Meta(description="where all of them ran; null: several, or none")]


class FoundBody(Struct, frozen=True, kw_only=True):
    """Something that a search has found."""

    system: str
    name: str
    wire: str
    id: str
    task: str
    status: str
    created_ts: int


class SearchPart(Struct, frozen=True):
    """What one system has found, and how far it has looked."""

    found: list[FoundBody]
    scanned: int
    total: int


class UnavailableBody(Struct, frozen=True):
    """A system that could not be read."""

    system: str
    detail: str


class OverviewBody(Struct, frozen=True):
    """All systems."""

    systems: list[SystemRowBody]
    unavailable: list[UnavailableBody]


class FailuresBody(Struct, frozen=True):
    """The kinds of failures, the most frequent first."""

    hours: int
    count: Annotated[int, Meta(description="failed jobs of all kinds")]
    failures: list[FailureBody]
    unavailable: list[UnavailableBody]


class SearchBody(Struct, frozen=True):
    """Exact matches first. Of text that is no id, the newest jobs were scanned."""

    found: list[FoundBody]
    scanned: int
    total: int
    unavailable: list[UnavailableBody]


class SystemView(Protocol):
    """A system's answers. Each raises BackendUnavailable if its backend does not answer, and shows
    the caller only what its tenant may see."""

    @property
    def system(self) -> str: ...

    async def rows(self) -> Sequence[SystemRowBody]: ...

    async def failures(
        self, request: HttpRequest, hours: int, tenant: str | None
    ) -> Sequence[FailureBody]: ...

    async def search(self, request: HttpRequest, text: str) -> SearchPart: ...


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
    duration_ms=RunTimeBody(120.0, 1900.0, 4100.0),
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
    summary="All systems: who takes what, how old the oldest is, the last hour",
    tag=_TAG,
    answer=OverviewBody,
    example=to_builtins(OverviewBody([_ROW], [])),
)
FAILURES: Final = Doc(
    summary="Failed jobs, grouped by kind",
    tag=_TAG,
    description="Failures are counted for 24 hours. A kind is a task, an error code and the first "
    "line of the message; in it `…` stands for ids and long numbers.",
    answer=FailuresBody,
    example=to_builtins(FailuresBody(24, 11, [_FAILURE], [])),
    problems=(INVALID,),
)
SEARCH: Final = Doc(
    summary="Find by id from anywhere",
    tag=_TAG,
    description="An id or an Idempotency-Key is found however old it is. Other text is searched "
    "in the ids and tasks of the newest 1000 jobs; `scanned` and `total` show how far that is.",
    answer=SearchBody,
    example=to_builtins(SearchBody([_FOUND], 1000, 41220, [])),
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

    async def overview(_: HttpRequest) -> Reply:
        answers, unavailable = await _each(views, lambda view: view.rows())
        rows = [row for answer in answers for row in answer]
        return Reply(_encode(OverviewBody(rows, unavailable)))

    return HotRoute("GET", "/v1/overview", "read", overview, OVERVIEW)


def router(views: Sequence[SystemView]) -> APIRouter:
    """The other routes."""
    routes = new_router(_TAG)

    @routes.get("/v1/failures", openapi_extra=documented("read", FAILURES))
    async def failures(
        request: CurrentRequest, hours: _Hours = MAX_HOURS, tenant: _Tenant = None
    ) -> Response:
        answers, unavailable = await _each(
            views, lambda view: view.failures(request, hours, tenant)
        )
        kinds = [kind for answer in answers for kind in answer]
        kinds.sort(key=lambda kind: (-kind.count, -kind.last_ts))
        count = sum(kind.count for kind in kinds)
        return response(Reply(_encode(FailuresBody(hours, count, kinds, unavailable))))

    @routes.get("/v1/search", openapi_extra=documented("read", SEARCH))
    async def search(request: CurrentRequest, q: _Text) -> Response:
        parts, unavailable = await _each(views, lambda view: view.search(request, q.strip()))
        body = SearchBody(
            [found for part in parts for found in part.found],
            sum(part.scanned for part in parts),
            sum(part.total for part in parts),
            unavailable,
        )
        return response(Reply(_encode(body)))

    return routes


async def _each(
    views: Sequence[SystemView], read: Callable[[SystemView], Awaitable[_T]]
) -> tuple[list[_T], list[UnavailableBody]]:
    """The answers of the systems that answer, and the others by name."""

    async def one(view: SystemView) -> tuple[str, _T | BackendUnavailable]:
        try:
            return view.system, await read(view)
        except BackendUnavailable as error:
            return view.system, error

    answers: list[_T] = []
    unavailable: list[UnavailableBody] = []
    for system, answer in await asyncio.gather(*map(one, views)):
        if isinstance(answer, BackendUnavailable):
            unavailable.append(UnavailableBody(system, answer.message))
        else:
            answers.append(answer)
    return answers, unavailable
