"""Workers and statistics of all systems: response bodies, and what a system's view returns."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, NamedTuple

from msgspec import Meta, Struct

MINUTES: Final = 60
"""Of the last hour."""


class UnavailableBody(Struct, frozen=True):
    """A system that could not be read."""

    system: str
    detail: str


class SlotBody(Struct, frozen=True, omit_defaults=True):
    """The job of one slot; id and task are null for a job of another tenant."""

    job_id: str | None
    task: str | None
    since_ts: int
    wire: Annotated[str, Meta(description="left out: `streams`")] = "streams"
    queue: Annotated[str, Meta(description="of the wire `bullmq`")] = ""


class MissingRequirementBody(Struct, frozen=True):
    """A requirement of some of a worker's tasks that is missing."""

    part: str
    wrong: str
    what_to_do: str


class ServedQueueBody(Struct, frozen=True):
    """A queue that a worker's process serves."""

    wire: str
    queue: str
    tasks: Annotated[list[str], Meta(description="`*` is a handler of all other tasks")]


class WorkerBody(Struct, frozen=True, kw_only=True):
    """One worker. Of a worker that is not ours, only what the server knows."""

    name: str
    system: Annotated[str, Meta(description="by which it was found, for example `jobs`")]
    wire: str
    ours: bool
    host: str | None = None
    pid: int | None = None
    version: str | None = None
    slots: int | None = None
    handlers: list[str] = []
    serves: Annotated[
        list[ServedQueueBody], Meta(description="the queues of its process, on all wires")
    ] = []
    started_ts: int | None = None
    heartbeat_age_ms: Annotated[
        int,
        Meta(
            description="since its last heartbeat; if not ours: since its last call; 0 on the wire "
            "`bullmq`, where a worker is seen by its open socket"
        ),
    ]
    running: list[SlotBody] = []
    lacks: list[MissingRequirementBody] = []
    queues: Annotated[
        list[str], Meta(description="the queues of its wire that it reads; empty: unknown")
    ] = []


class WorkersBody(Struct, frozen=True, omit_defaults=True):
    """The workers of all systems."""

    workers: list[WorkerBody]
    unavailable: Annotated[
        list[UnavailableBody], Meta(description="systems that could not be read; left out: none")
    ] = []


class QuantilesBody(Struct, frozen=True):
    """In milliseconds, with an error of at most 10 %; null without samples."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


class MinuteLine(Struct, frozen=True):
    """One minute."""

    start_ts: int
    submitted: Annotated[int | None, Meta(description="null: these systems do not count it")]
    done: int
    error: int
    canceled: int
    retried: int
    latency_ms: Annotated[QuantilesBody, Meta(description="from submit to first start")]
    duration_ms: Annotated[QuantilesBody, Meta(description="from start to end")]


class NowBody(Struct, frozen=True):
    """All systems now."""

    waiting: Annotated[int, Meta(description="in a queue")]
    delayed: Annotated[int, Meta(description="not due yet: delayed, or waiting for a retry")]
    running: Annotated[int, Meta(description="leased to a worker")]
    oldest_waiting_ms: Annotated[
        int | None, Meta(description="waiting time of the oldest job in a queue")
    ]


class StatsBody(Struct, frozen=True, omit_defaults=True):
    """All systems now, and the last hour: in total, and by minute with the oldest first. The last
    minute is incomplete."""

    now: NowBody
    hour: MinuteLine
    minutes: list[MinuteLine]
    unavailable: Annotated[
        list[UnavailableBody], Meta(description="systems that could not be read; left out: none")
    ] = []


class MinuteCounts(NamedTuple):
    """What a system has counted in one minute; `submitted` is None if it does not count it. Time
    spans are counted in the buckets of `job.time_buckets`."""

    submitted: int | None = None
    done: int = 0
    error: int = 0
    canceled: int = 0
    retried: int = 0
    latency: Mapping[int, int] = {}
    duration: Mapping[int, int] = {}


class SystemStats(NamedTuple):
    """A system now, and the minutes of the last hour; the last one is incomplete."""

    now: NowBody
    minutes: Sequence[MinuteCounts]
