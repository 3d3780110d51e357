"""Response bodies of tasks, workers and the last hour, as types for the OpenAPI document."""

from typing import Annotated

from msgspec import Meta, Raw, Struct

_AnyObject = Annotated[Raw, Meta(extra_json_schema={"type": ["object", "null"]})]


class TaskBody(Struct, frozen=True):
    """A task that can be submitted."""

    name: str
    live: Annotated[bool, Meta(description="whether a live worker has this task")]
    queue: Annotated[str, Meta(description="the queue in which its jobs are enqueued")]
    schema: Annotated[_AnyObject, Meta(description="JSON Schema of its payload, if known")]
    example: Annotated[_AnyObject, Meta(description="a valid payload, if one is known")]


class TasksBody(Struct, frozen=True):
    """All tasks."""

    tasks: list[TaskBody]


class CronBody(Struct, frozen=True):
    """A cron entry of the workers. Times are milliseconds since 1970."""

    name: str
    schedule: str
    tz: str
    last_ts: Annotated[int | None, Meta(description="the last due time that has run")]
    next_ts: int | None
    live: Annotated[bool, Meta(description="whether a live worker has this entry")]


class CronsBody(Struct, frozen=True):
    """All cron entries."""

    crons: list[CronBody]


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


class ServedQueueBody(Struct, frozen=True):
    """A queue that a worker's process serves."""

    wire: str
    queue: str
    tasks: Annotated[list[str], Meta(description="`*` is a handler of all other tasks")]


class WorkerBody(Struct, frozen=True):
    """One worker. Of a worker that is not ours, only what the consumer group knows."""

    name: str
    ours: bool
    host: str | None
    pid: int | None
    version: str | None
    slots: int | None
    handlers: list[str]
    serves: Annotated[
        list[ServedQueueBody], Meta(description="the queues of its process, on all wires")
    ]
    started_ts: int | None
    heartbeat_age_ms: Annotated[
        int, Meta(description="since its last heartbeat; if not ours: since its last read")
    ]
    running: list[SlotBody]
    lacks: list[MissingRequirementBody]
    queues: Annotated[list[str], Meta(description="the queues that it reads; empty if not ours")]


class Workers(Struct, frozen=True):
    """All workers."""

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


class JobQueueBody(Struct, frozen=True, kw_only=True):
    """One queue."""

    name: str
    paused: Annotated[bool, Meta(description="whether workers start none of its jobs")]
    waiting: int
    running: Annotated[int, Meta(description="leased to a worker")]
    oldest_waiting_ms: int | None
    workers: Annotated[int, Meta(description="live workers that read it, without foreign ones")]


class JobQueuesBody(Struct, frozen=True):
    """All queues, the default one first."""

    queues: list[JobQueueBody]


class PauseAnswerBody(Struct, frozen=True):
    """The state of a queue after pause or resume."""

    queue: str
    paused: bool
    warning: Annotated[str | None, Meta(description="what does not stop")]


class PurgeAnswerBody(Struct, frozen=True):
    """The result of a purge."""

    queue: str
    canceled: Annotated[int, Meta(description="jobs that waited or were delayed")]


class NowBody(Struct, frozen=True):
    """All queues now."""

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


class ScaleBody(Struct, frozen=True):
    """What an autoscaler needs (G-28)."""

    waiting: Annotated[int, Meta(description="in the queues, or delayed and due within 60 s")]
    running: int
    slots: Annotated[int, Meta(description="of one worker: the largest live one, else the setting")]
    oldest_waiting_s: float
    load: Annotated[
        float, Meta(description="(waiting + running) / slots: rounded up, the workers needed")
    ]
