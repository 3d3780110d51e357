"""Tasks, workers and the last hour over HTTP (J-10, O-11).

Everybody with the scope `read` sees the fleet; what a worker holds for another tenant is shown as
a taken slot, without the job.
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
    """A task that can be asked for."""

    name: str
    live: Annotated[bool, Meta(description="whether a worker that has it is there now")]
    schema: Annotated[_AnyObject, Meta(description="JSON Schema of its payload, if it is known")]
    example: Annotated[_AnyObject, Meta(description="a payload that works, if one is known")]


class TasksBody(Struct, frozen=True):
    """All of them."""

    tasks: list[TaskBody]


class SlotBody(Struct, frozen=True):
    """What one slot runs; another tenant's job is not named."""

    job_id: str | None
    task: str | None
    since_ts: int


class MissingRequirementBody(Struct, frozen=True):
    """Something that a worker needs for some of its tasks and does not have."""

    part: str
    wrong: str
    what_to_do: str


class WorkerBody(Struct, frozen=True):
    """One worker. Of one that is not ours, only what the server knows of it."""

    name: str
    ours: bool
    host: str | None
    pid: int | None
    version: str | None
    slots: int | None
    handlers: list[str]
    started_ts: int | None
    heartbeat_age_ms: Annotated[
        int, Meta(description="since its last heartbeat; not ours: since it last asked for a job")
    ]
    running: list[SlotBody]
    lacks: list[MissingRequirementBody]


class Workers(Struct, frozen=True):
    """Everybody who takes jobs from this queue."""

    workers: list[WorkerBody]


class QuantilesBody(Struct, frozen=True):
    """In milliseconds, at most a tenth off; null where there was nothing to measure."""

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
    latency_ms: Annotated[QuantilesBody, Meta(description="in line until its first start")]
    duration_ms: Annotated[QuantilesBody, Meta(description="from start to end")]


class NowBody(Struct, frozen=True):
    """How much there is to do right now."""

    waiting: Annotated[int, Meta(description="in line")]
    delayed: Annotated[int, Meta(description="not due yet: a delay, or a retry to come")]
    running: Annotated[int, Meta(description="held by a worker")]
    oldest_waiting_ms: Annotated[
        int | None, Meta(description="how long the first in line has been in it")
    ]


class StatsBody(Struct, frozen=True):
    """Now; and the last hour: as a whole, and by minute, oldest first; the last is not over yet."""

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
        found = await self._registry.tasks()
        listed = [
            TaskBody(card.name, live, _raw(card.schema_json), _raw(card.example_json))
            for card, live in found
        ]
        return Reply(_encode(TasksBody(listed)))

    async def workers(self, request: HttpRequest) -> Reply:
        found = await self._registry.workers()
        return Reply(_encode(Workers([_worker(worker, request) for worker in found])))

    async def missing_requirements(self) -> Mapping[str, HealthStatus]:
        """What live workers lack, for /readyz (J-51): jobs that need it fail, all others run."""
        return requirements_health(await self._registry.missing_requirements())

    async def stats(self, _: HttpRequest) -> Reply:
        seen = await depth(self._connection, self._keys)
        now = NowBody(seen.waiting, seen.delayed, seen.running, seen.oldest_waiting_ms)
        minutes = await last_hour(self._connection, self._keys)
        lines = [_line([minute]) for minute in minutes]
        return Reply(_encode(StatsBody(now, _line(minutes), lines)))


def requirements_health(workers: Sequence[Sequence[MissingRequirement]]) -> dict[str, HealthStatus]:
    """Each missing part once, with how many of the workers miss it. Pure."""
    first: dict[str, MissingRequirement] = {}
    count: Counted[str] = Counted()
    for lacks in workers:
        count.update({lack.part for lack in lacks})
        for lack in lacks:
            first.setdefault(lack.part, lack)
    return {
        part: HealthStatus(
            "degraded", f"{lack.wrong} ({count[part]} of {len(workers)} workers)", lack.fix
        )
        for part, lack in list(first.items())[:_MOST_PARTS]
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
        lacks=[MissingRequirementBody(*lack) for lack in seen.missing_requirements],
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
