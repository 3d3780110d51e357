"""Tasks, workers and the last hour over HTTP (J-10, O-11).

Every key with the scope `read` sees all workers; a slot that runs a job of another tenant is shown
without the job.
"""

from collections import Counter as Counted
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Raw, Struct

from jobwire.gateway.health import HealthStatus
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.job.messages import MissingRequirement
from jobwire.valkey import Connection
from jobwire.wires.streams.contract import Counter, Status, StreamsKeys
from jobwire.wires.streams.depth import depth
from jobwire.wires.streams.http import request_parser
from jobwire.wires.streams.registry import RegisteredWorker, RunningJob, WorkerRegistry
from jobwire.wires.streams.stats import MinuteStats, last_hour, quantile_ms

_encode = msgspec.json.Encoder().encode
_MOST_PARTS: Final = 20
_AnyObject = Annotated[Raw, Meta(extra_json_schema={"type": ["object", "null"]})]


class TaskBody(Struct, frozen=True):
    """A task that can be submitted."""

    name: str
    live: Annotated[bool, Meta(description="whether a live worker has this task")]
    schema: Annotated[_AnyObject, Meta(description="JSON Schema of its payload, if known")]
    example: Annotated[_AnyObject, Meta(description="a valid payload, if one is known")]


class TasksBody(Struct, frozen=True):
    """All tasks."""

    tasks: list[TaskBody]


class SlotBody(Struct, frozen=True):
    """The job of one slot; null for a job of another tenant."""

    job_id: str | None
    task: str | None
    since_ts: int


class MissingRequirementBody(Struct, frozen=True):
    """A requirement of some of a worker's tasks that is missing."""

    part: str
    wrong: str
    what_to_do: str


class WorkerBody(Struct, frozen=True):
    """One worker. Of a worker that is not ours, only what the consumer group knows."""

    name: str
    ours: bool
    host: str | None
    pid: int | None
    version: str | None
    slots: int | None
    handlers: list[str]
    started_ts: int | None
    heartbeat_age_ms: Annotated[
        int, Meta(description="since its last heartbeat; if not ours: since its last read")
    ]
    running: list[SlotBody]
    lacks: list[MissingRequirementBody]


class Workers(Struct, frozen=True):
    """All workers of this queue."""

    workers: list[WorkerBody]


class QuantilesBody(Struct, frozen=True):
    """In milliseconds, with an error of at most 10 %; null without samples."""

    p50: float | None
    p90: float | None
    p99: float | None


class MinuteLine(Struct, frozen=True):
    """One minute."""

    start_ts: int
    submitted: int
    done: int
    error: int
    canceled: int
    retried: int
    latency_ms: Annotated[QuantilesBody, Meta(description="from submit to first start")]
    duration_ms: Annotated[QuantilesBody, Meta(description="from start to end")]


class NowBody(Struct, frozen=True):
    """The queue now."""

    waiting: Annotated[int, Meta(description="in the queue")]
    delayed: Annotated[int, Meta(description="not due yet: delayed, or waiting for a retry")]
    running: Annotated[int, Meta(description="leased to a worker")]
    oldest_waiting_ms: Annotated[
        int | None, Meta(description="waiting time of the oldest job in the queue")
    ]


class StatsBody(Struct, frozen=True):
    """The queue now, and the last hour: in total, and by minute with the oldest first. The last
    minute is incomplete."""

    now: NowBody
    hour: MinuteLine
    minutes: list[MinuteLine]


class FleetRoutes:
    """The endpoints."""

    def __init__(self, registry: WorkerRegistry, connection: Connection, keys: StreamsKeys) -> None:
        self._registry = registry
        self._connection = connection
        self._keys = keys

    async def tasks(self, _: HttpRequest) -> Reply:
        listed = [
            TaskBody(info.name, live, _raw(info.schema_json), _raw(info.example_json))
            for info, live in await self._registry.tasks()
        ]
        return Reply(_encode(TasksBody(listed)))

    async def workers(self, request: HttpRequest) -> Reply:
        workers = await self._registry.workers()
        return Reply(_encode(Workers([_worker(worker, request) for worker in workers])))

    async def missing_requirements(self) -> Mapping[str, HealthStatus]:
        """What live workers miss, for /readyz (J-51): jobs that need it fail, all others run."""
        return requirements_health(await self._registry.missing_requirements())

    async def stats(self, _: HttpRequest) -> Reply:
        queue = await depth(self._connection, self._keys)
        now = NowBody(queue.waiting, queue.delayed, queue.running, queue.oldest_waiting_ms)
        minutes = await last_hour(self._connection, self._keys)
        lines = [_line([minute]) for minute in minutes]
        return Reply(_encode(StatsBody(now, _line(minutes), lines)))


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
        started_ts=seen.started_ms,
        heartbeat_age_ms=seen.silent_ms,
        running=[_slot(holding, request) for holding in seen.holding],
        lacks=[MissingRequirementBody(*missing) for missing in seen.missing_requirements],
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
