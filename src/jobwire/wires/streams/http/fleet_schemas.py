"""Response bodies of tasks, cron entries and queues, as types for the OpenAPI document."""

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
    warning: Annotated[str | None, Meta(description="programs that the pause does not stop")]


class PurgeAnswerBody(Struct, frozen=True):
    """The result of a purge."""

    queue: str
    canceled: Annotated[int, Meta(description="jobs that waited or were delayed")]


class ScaleBody(Struct, frozen=True):
    """What an autoscaler needs (G-28)."""

    waiting: Annotated[int, Meta(description="in the queues, or delayed and due within 60 s")]
    running: int
    slots: Annotated[int, Meta(description="of one worker: the largest live one, else the setting")]
    oldest_waiting_s: float
    load: Annotated[
        float, Meta(description="(waiting + running) / slots: rounded up, the workers needed")
    ]
