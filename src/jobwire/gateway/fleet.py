"""Workers and statistics of all systems: `/v1/workers`, `/v1/stats` (O-11)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final

from fastapi import APIRouter, Query, Response
from msgspec import structs
from pydantic import JsonValue
from pydantic.json_schema import SkipJsonSchema

from jobwire.api.problems import INVALID, UNAVAILABLE
from jobwire.gateway.fleet_schemas import (
    MINUTES,
    MinuteCounts,
    MinuteLine,
    NowBody,
    QuantilesBody,
    ServedQueueBody,
    SlotBody,
    StatsBody,
    SystemStats,
    UnavailableBody,
    WorkerBody,
    WorkersBody,
)
from jobwire.gateway.joined import read_each
from jobwire.gateway.problems import Problem, invalid
from jobwire.gateway.router import CurrentRequest, documented, json_response, new_router
from jobwire.gateway.routes import Doc
from jobwire.gateway.system_view import QUIET_HOUR, SHARES, SystemView
from jobwire.job import time_buckets
from jobwire.job.clock import SystemClock

_TAG: Final = "fleet"
_MINUTE_MS: Final = 60_000

_WORKER: Final = WorkerBody(
    name="jobwire-web1-4711-9f2c",
    system="jobs",
    wire="streams",
    ours=True,
    host="web1",
    pid=4711,
    version="1.0.0",
    slots=10,
    handlers=["chat"],
    serves=[ServedQueueBody("streams", "default", ["chat"])],
    started_ts=1767225600000,
    heartbeat_age_ms=1200,
    running=[SlotBody("0b7c1d52-7d0e-4c55-9a0f-2f6d1c1f7a10", "chat", 1767225600000)],
    queues=["default"],
)
_LINE: Final = MinuteLine(1767225600000, 142, 119, 2, 0, 1, QuantilesBody(), QuantilesBody())
WORKERS: Final = Doc(
    summary="The workers of all systems, and the job of each slot",
    tag=_TAG,
    description="Workers of the wire `bullmq` are those that its `getWorkers` lists, of any "
    "program. A process of ours that has registered itself is listed once, with all its queues.",
    answer=WorkersBody,
    example=WorkersBody([_WORKER]),
    problems=(INVALID, UNAVAILABLE),
)
STATS: Final = Doc(
    summary="All systems now, and the last hour by minute",
    tag=_TAG,
    description="The sum over all systems. Ended jobs of queues come from the wire's "
    "own counts, where a worker writes them, and from the ended jobs that are still stored.",
    answer=StatsBody,
    example=StatsBody(NowBody(12, 0, 9, 400), _LINE, [_LINE]),
    problems=(INVALID, UNAVAILABLE),
)
_Name = str | SkipJsonSchema[None]


def router(views: Sequence[SystemView]) -> APIRouter:
    """The routes, over the views of all features."""
    routes = new_router(_TAG)
    of_system = Query(
        description="only of this system", json_schema_extra=_names(view.system for view in views)
    )
    of_wire = Query(
        description="only of this wire", json_schema_extra=_names(view.wire for view in views)
    )

    @routes.get("/v1/workers", openapi_extra=documented("read", WORKERS))
    async def list_workers(
        request: CurrentRequest,
        system: Annotated[_Name, of_system] = None,
        wire: Annotated[_Name, of_wire] = None,
    ) -> Response:
        chosen = _chosen(views, system, wire)
        parts, unavailable = await read_each(chosen, lambda view: view.workers(request))
        _refuse_nothing(parts, unavailable)
        workers = _merged(worker for part in parts for worker in part)
        return json_response(WorkersBody(workers, unavailable))

    @routes.get("/v1/stats", openapi_extra=documented("read", STATS))
    async def read_stats(
        request: CurrentRequest,
        system: Annotated[_Name, of_system] = None,
        wire: Annotated[_Name, of_wire] = None,
    ) -> Response:
        chosen = _chosen(views, system, wire)
        parts, unavailable = await read_each(chosen, lambda view: view.stats(request))
        _refuse_nothing(parts, unavailable)
        body = _stats([each for part in parts for each in part], SystemClock().now_ms())
        return json_response(structs.replace(body, unavailable=unavailable))

    return routes


def _names(names: Iterator[str]) -> dict[str, JsonValue]:
    return {"enum": [*dict.fromkeys(names)]}


def _chosen(
    views: Sequence[SystemView], system: str | None, wire: str | None
) -> Sequence[SystemView]:
    """The views of a system or a wire; a Problem if this gateway has none of that name."""
    for name, given, known in (
        ("system", system, [view.system for view in views]),
        ("wire", wire, [view.wire for view in views]),
    ):
        if given is not None and given not in known:
            raise invalid("query", f"/{name}", f"must be one of {', '.join(dict.fromkeys(known))}")
    return [view for view in views if system in (None, view.system) and wire in (None, view.wire)]


def _refuse_nothing(parts: Sequence[object], unavailable: Sequence[UnavailableBody]) -> None:
    """503 if no system answers: an empty answer would look like an idle fleet."""
    if unavailable and not parts:
        details = ", ".join(f"{each.system}: {each.detail}" for each in unavailable)
        raise Problem(UNAVAILABLE, details)


def _merged(found: Iterator[WorkerBody]) -> list[WorkerBody]:
    """Each process once. A process that registered itself gets the jobs that another wire has seen
    it run; sockets that it opened on that wire are not workers of their own."""
    workers = list(found)
    by_process = {(each.host, each.pid): each for each in workers if each.pid and each.serves}
    registered = {
        (served.wire, served.queue) for each in by_process.values() for served in each.serves
    }
    merged: list[WorkerBody] = []
    for worker in workers:
        if worker.serves or not worker.ours:
            merged.append(worker)
            continue
        process = by_process.get((worker.host, worker.pid)) if worker.pid else None
        if process is not None:
            # Only the list is extended: the body was made for this answer.
            process.running.extend(worker.running)
        elif (
            worker.pid
            or not worker.queues
            or not {(worker.wire, queue) for queue in worker.queues} <= registered
        ):
            merged.append(worker)
    return merged


def _stats(found: Sequence[SystemStats], now_ms: int) -> StatsBody:
    """The sum over all systems. Pure."""
    ages = [each.now.oldest_waiting_ms for each in found if each.now.oldest_waiting_ms is not None]
    now = NowBody(
        sum(each.now.waiting for each in found),
        sum(each.now.delayed for each in found),
        sum(each.now.running for each in found),
        max(ages, default=None),
    )
    # All count by the minute of the clock; the last one is the current minute.
    first_ms = (now_ms // _MINUTE_MS - MINUTES + 1) * _MINUTE_MS
    counted = [each.minutes for each in found if each.minutes is not QUIET_HOUR]
    minutes = [[hour[at] for hour in counted] for at in range(MINUTES)]
    lines = [_line(first_ms + at * _MINUTE_MS, minute) for at, minute in enumerate(minutes)]
    hour = _line(first_ms, [each for minute in minutes for each in minute])
    return StatsBody(now, hour, lines)


def _line(start_ms: int, counts: Sequence[MinuteCounts]) -> MinuteLine:
    submitted = [each.submitted for each in counts if each.submitted is not None]
    return MinuteLine(
        start_ts=start_ms,
        submitted=sum(submitted) if submitted else None,
        done=sum(each.done for each in counts),
        error=sum(each.error for each in counts),
        canceled=sum(each.canceled for each in counts),
        retried=sum(each.retried for each in counts),
        latency_ms=_quantiles([each.latency for each in counts]),
        duration_ms=_quantiles([each.duration for each in counts]),
    )


def _quantiles(spans: Sequence[Mapping[int, int]]) -> QuantilesBody:
    return QuantilesBody(*time_buckets.quantiles_ms(time_buckets.merged(spans), SHARES))
