"""Tasks, workers and the last hour over HTTP (J-10, O-11).

Every key with the scope `read` sees all workers; a slot that runs a job of another tenant is shown
without the job.
"""

from collections import Counter as Counted
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Query, Response
from msgspec import Raw
from pydantic.json_schema import SkipJsonSchema

from jobwire.gateway.health import HealthStatus
from jobwire.gateway.parameters import matching
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.router import CurrentRequest, documented, new_router, response
from jobwire.job.messages import MissingRequirement
from jobwire.valkey import Connection
from jobwire.wires.streams.contract import Counter, Status, StreamsKeys
from jobwire.wires.streams.cron_list import cron_list
from jobwire.wires.streams.depth import depth
from jobwire.wires.streams.http import docs, request_parser
from jobwire.wires.streams.http.fleet_schemas import (
    CronBody,
    CronsBody,
    MinuteLine,
    MissingRequirementBody,
    NowBody,
    QuantilesBody,
    ScaleBody,
    ServedQueueBody,
    SlotBody,
    StatsBody,
    TaskBody,
    TasksBody,
    WorkerBody,
    Workers,
)
from jobwire.wires.streams.registry import RegisteredWorker, RunningJob, WorkerRegistry
from jobwire.wires.streams.stats import LastHour, MinuteStats, quantile_ms

_encode = msgspec.json.Encoder().encode
_MOST_PARTS: Final = 20
DEFAULT_SLOTS: Final = 10
"""Of a worker, as in its settings."""
_Slots = Annotated[
    int | SkipJsonSchema[None],
    matching(r"[1-9]\d{0,5}", "must be a number from 1 to 999999"),
    Query(
        description="of one worker; without it those of the largest live worker, or 10",
        json_schema_extra={"minimum": 1, "maximum": 999_999, "example": 10},
    ),
]


def router(registry: WorkerRegistry, connection: Connection, keys: StreamsKeys) -> APIRouter:
    """The routes."""
    routes = new_router("fleet")
    hour = LastHour(connection, keys)

    @routes.get("/v1/tasks", openapi_extra=documented("read", docs.TASKS))
    async def list_tasks() -> Response:
        listed = [
            TaskBody(info.name, live, queue, _raw(info.schema_json), _raw(info.example_json))
            for info, live, queue in await registry.tasks()
        ]
        return response(Reply(_encode(TasksBody(listed))))

    @routes.get("/v1/workers", openapi_extra=documented("read", docs.WORKERS))
    async def list_workers(request: CurrentRequest) -> Response:
        listed = [_worker(worker, request) for worker in await registry.workers()]
        return response(Reply(_encode(Workers(listed))))

    @routes.get("/v1/crons", openapi_extra=documented("read", docs.CRONS))
    async def list_crons() -> Response:
        listed = [CronBody(*each) for each in await cron_list(connection, keys)]
        return response(Reply(_encode(CronsBody(listed))))

    @routes.get("/v1/stats", openapi_extra=documented("read", docs.STATS))
    async def read_stats() -> Response:
        found = await depth(connection, keys, await registry.queue_names())
        now = NowBody(found.waiting, found.delayed, found.running, found.oldest_waiting_ms)
        minutes = await hour.read()
        lines = [_line([minute]) for minute in minutes]
        return response(Reply(_encode(StatsBody(now, _line(minutes), lines))))

    @routes.get("/v1/scale", openapi_extra=documented("read", docs.SCALE))
    async def read_scale(slots: _Slots = None) -> Response:
        found = await depth(connection, keys, await registry.queue_names())
        of_one = slots or (await registry.summary()).most_slots or DEFAULT_SLOTS
        waiting = found.waiting + found.due_soon
        body = ScaleBody(
            waiting=waiting,
            running=found.running,
            slots=of_one,
            oldest_waiting_s=(found.oldest_waiting_ms or 0) / 1000,
            load=(waiting + found.running) / of_one,
        )
        return response(Reply(_encode(body)))

    return routes


async def missing_requirements(registry: WorkerRegistry) -> Mapping[str, HealthStatus]:
    """What live workers miss, for /readyz (J-51): jobs that need it fail, all others run."""
    return requirements_health(await registry.missing_requirements())


def requirements_health(workers: Sequence[Sequence[MissingRequirement]]) -> dict[str, HealthStatus]:
    """Each missing part once, with the number of workers that miss it. Pure."""
    first: dict[str, MissingRequirement] = {}
    count: Counted[str] = Counted()
    for requirements in workers:
        count.update({missing.part for missing in requirements})
        for missing in requirements:
            first.setdefault(missing.part, missing)
    return {
        part: HealthStatus(
            "degraded", f"{missing.wrong} ({count[part]} of {len(workers)} workers)", missing.fix
        )
        for part, missing in list(first.items())[:_MOST_PARTS]
    }


def _raw(text: str) -> Raw:
    return Raw(text.encode() or b"null")


def _worker(seen: RegisteredWorker, request: HttpRequest) -> WorkerBody:
    return WorkerBody(
        name=seen.name,
        ours=seen.ours,
        host=seen.host or None,
        pid=seen.pid,
        version=seen.version or None,
        slots=seen.slots,
        handlers=list(seen.tasks),
        serves=[ServedQueueBody(wire, queue, list(tasks)) for wire, queue, tasks in seen.serves],
        started_ts=seen.started_ms,
        heartbeat_age_ms=seen.silent_ms,
        running=[_slot(holding, request) for holding in seen.holding],
        lacks=[MissingRequirementBody(*missing) for missing in seen.missing_requirements],
        queues=list(seen.queues),
    )


def _slot(holding: RunningJob, request: HttpRequest) -> SlotBody:
    if not request_parser.may_see(request, holding.tenant):
        return SlotBody(None, None, holding.since_ms)
    return SlotBody(holding.job_id, holding.task, holding.since_ms)


def _line(minutes: Sequence[MinuteStats]) -> MinuteLine:
    def total(name: Status | Counter) -> int:
        return sum(minute.count(name) for minute in minutes)

    return MinuteLine(
        start_ts=minutes[0].start_ms,
        submitted=total(Counter.SUBMISSIONS),
        done=total(Status.DONE),
        error=total(Status.ERROR),
        canceled=total(Status.CANCELED),
        retried=total(Counter.RETRIED),
        latency_ms=_quantiles([minute.latency for minute in minutes]),
        duration_ms=_quantiles([minute.duration for minute in minutes]),
    )


def _quantiles(steps: Sequence[Mapping[int, int]]) -> QuantilesBody:
    return QuantilesBody(*(quantile_ms(share, steps) for share in (0.5, 0.9, 0.99)))
