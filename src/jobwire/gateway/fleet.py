"""Workers and statistics of all systems: `/v1/workers`, `/v1/stats` (O-11)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Final, Literal, TypeVar

from msgspec import Meta, defstruct, structs

from jobwire.api import fleet as api
from jobwire.api.operation import Operation
from jobwire.api.problems import UNAVAILABLE
from jobwire.gateway.all_systems import read_each
from jobwire.gateway.minute_counts import MINUTES, MinuteCounts, SystemStats
from jobwire.gateway.operator_view import QUIET_HOUR, SHARES, OperatorView
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.route import Route, serve
from jobwire.job import time_buckets
from jobwire.job.clock import SystemClock

A = TypeVar("A")
_MINUTE_MS: Final = 60_000


def routes(views: Sequence[OperatorView]) -> list[Route]:
    """The routes, over the views of all features."""

    async def list_workers(request: HttpRequest, query: api.SystemFilter) -> api.Workers:
        chosen = _chosen(views, query)
        parts, unavailable = await read_each(chosen, lambda view: view.workers(request))
        _refuse_nothing(parts, unavailable)
        return api.Workers(_merged(worker for part in parts for worker in part), unavailable)

    async def read_stats(request: HttpRequest, query: api.SystemFilter) -> api.Stats:
        chosen = _chosen(views, query)
        parts, unavailable = await read_each(chosen, lambda view: view.stats(request))
        _refuse_nothing(parts, unavailable)
        stats = _stats([each for part in parts for each in part], SystemClock().now_ms())
        return structs.replace(stats, unavailable=unavailable)

    return [
        serve(_of_these(api.WORKERS, views), list_workers),
        serve(_of_these(api.STATS, views), read_stats),
    ]


def _of_these(operation: Operation[A], views: Sequence[OperatorView]) -> Operation[A]:
    """The operation with the names of this gateway's systems and wires as values of its query."""
    systems = tuple(dict.fromkeys(view.system for view in views))
    wires = tuple(dict.fromkeys(view.wire for view in views))
    members = [
        (
            name,
            Annotated[Literal[names] | None, Meta(description=f"only of this {name}")],
            None,
        )
        for name, names in (("system", systems), ("wire", wires))
    ]
    query = defstruct("SystemFilter", members, bases=(api.SystemFilter,), frozen=True)
    return replace(operation, query=query)


def _chosen(views: Sequence[OperatorView], query: api.SystemFilter) -> Sequence[OperatorView]:
    return [
        view
        for view in views
        if query.system in (None, view.system) and query.wire in (None, view.wire)
    ]


def _refuse_nothing(parts: Sequence[object], unavailable: Sequence[api.UnavailableSystem]) -> None:
    """503 if no system answers: an empty answer would look like an idle fleet."""
    if unavailable and not parts:
        details = ", ".join(f"{each.system}: {each.detail}" for each in unavailable)
        raise Problem(UNAVAILABLE, details)


def _merged(found: Iterator[api.WorkerInfo]) -> list[api.WorkerInfo]:
    """Each process once. A process that registered itself gets the jobs that another wire has seen
    it run; sockets that it opened on that wire are not workers of their own."""
    workers = list(found)
    by_process = {(each.host, each.pid): each for each in workers if each.pid and each.serves}
    registered = {
        (served.wire, served.queue) for each in by_process.values() for served in each.serves
    }
    merged: list[api.WorkerInfo] = []
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


def _stats(found: Sequence[SystemStats], now_ms: int) -> api.Stats:
    """The sum over all systems. Pure."""
    ages = [each.now.oldest_waiting_ms for each in found if each.now.oldest_waiting_ms is not None]
    now = api.Now(
        sum(each.now.waiting for each in found),
        sum(each.now.delayed for each in found),
        sum(each.now.running for each in found),
        max(ages, default=None),
        sum(each.now.suspended for each in found),
    )
    # All count by the minute of the clock; the last one is the current minute.
    first_ms = (now_ms // _MINUTE_MS - MINUTES + 1) * _MINUTE_MS
    counted = [each.minutes for each in found if each.minutes is not QUIET_HOUR]
    minutes = [[hour[at] for hour in counted] for at in range(MINUTES)]
    lines = [_line(first_ms + at * _MINUTE_MS, minute) for at, minute in enumerate(minutes)]
    hour = _line(first_ms, [each for minute in minutes for each in minute])
    return api.Stats(now, hour, lines)


def _line(start_ms: int, counts: Sequence[MinuteCounts]) -> api.Minute:
    submitted = [each.submitted for each in counts if each.submitted is not None]
    return api.Minute(
        start_ts=start_ms,
        submitted=sum(submitted) if submitted else None,
        done=sum(each.done for each in counts),
        error=sum(each.error for each in counts),
        canceled=sum(each.canceled for each in counts),
        retried=sum(each.retried for each in counts),
        latency_ms=_quantiles([each.latency for each in counts]),
        duration_ms=_quantiles([each.duration for each in counts]),
    )


def _quantiles(spans: Sequence[Mapping[int, int]]) -> api.Quantiles:
    return api.Quantiles(*time_buckets.quantiles_ms(time_buckets.merged(spans), SHARES))
