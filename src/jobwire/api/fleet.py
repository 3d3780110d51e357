"""The operations over all workers: workers, statistics, tasks, cron entries, the load."""

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from jobwire.api.operation import Operation
from jobwire.api.problems import UNAVAILABLE, ProblemKind

MAX_SLOTS: Final = 999_999
_AnyObject = Annotated[Any, Meta(extra_json_schema={"type": ["object", "null"]})]

# ── requests ─────────────────────────────────────────────────────────────────────────────────────


class SystemFilter(Struct, frozen=True):
    """The query of workers and statistics. A gateway takes the names of its own systems."""

    system: Annotated[str | None, Meta(description="only of this system", examples=["jobs"])] = None
    wire: Annotated[str | None, Meta(description="only of this wire", examples=["streams"])] = None


class ScaleFilter(Struct, frozen=True):
    """The query of the load."""

    slots: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_SLOTS)] | None,
        Meta(
            description="of one worker; without it those of the largest live worker, or 10",
            examples=[10],
        ),
    ] = None


# ── answers ──────────────────────────────────────────────────────────────────────────────────────


class UnavailableSystem(Struct, frozen=True):
    """A system that could not be read."""

    system: str
    detail: str


class WorkerSlot(Struct, frozen=True):
    """The job of one slot; id and task are null for a job of another tenant."""

    job_id: str | None
    task: str | None
    since_ts: int
    wire: str = "streams"
    queue: Annotated[str, Meta(description="of the wire `bullmq`")] = ""


class MissingRequirementInfo(Struct, frozen=True):
    """A requirement of some of a worker's tasks that is missing."""

    part: str
    wrong: str
    what_to_do: str


class ServedQueueInfo(Struct, frozen=True):
    """A queue that a worker's process serves."""

    wire: str
    queue: str
    tasks: Annotated[list[str], Meta(description="`*` is a handler of all other tasks")]


class WorkerInfo(Struct, frozen=True, kw_only=True):
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
        list[ServedQueueInfo], Meta(description="the queues of its process, on all wires")
    ] = []
    started_ts: int | None = None
    heartbeat_age_ms: Annotated[
        int,
        Meta(
            description="since its last heartbeat; if not ours: since its last call; 0 on the wire "
            "`bullmq`, where a worker is seen by its open socket"
        ),
    ]
    running: list[WorkerSlot] = []
    lacks: list[MissingRequirementInfo] = []
    queues: Annotated[
        list[str], Meta(description="the queues of its wire that it reads; empty: unknown")
    ] = []


class Workers(Struct, frozen=True, omit_defaults=True):
    """The workers of all systems."""

    workers: list[WorkerInfo]
    unavailable: Annotated[
        list[UnavailableSystem], Meta(description="systems that could not be read; left out: none")
    ] = []


class Quantiles(Struct, frozen=True):
    """In milliseconds, with an error of at most 10 %; null without samples."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


class Minute(Struct, frozen=True):
    """One minute."""

    start_ts: int
    submitted: Annotated[int | None, Meta(description="null: these systems do not count it")]
    done: int
    error: int
    canceled: int
    retried: int
    latency_ms: Annotated[Quantiles, Meta(description="from submit to first start")]
    duration_ms: Annotated[Quantiles, Meta(description="from start to end")]


class Now(Struct, frozen=True):
    """All systems now."""

    waiting: Annotated[int, Meta(description="in a queue")]
    delayed: Annotated[int, Meta(description="not due yet: delayed, or waiting for a retry")]
    running: Annotated[int, Meta(description="leased to a worker")]
    oldest_waiting_ms: Annotated[
        int | None, Meta(description="waiting time of the oldest job in a queue")
    ]
    suspended: Annotated[int, Meta(description="in no queue: they wait for a time or an event")] = 0


class Stats(Struct, frozen=True, omit_defaults=True):
    """All systems now, and the last hour: in total, and by minute with the oldest first. The last
    minute is incomplete."""

    now: Now
    hour: Minute
    minutes: list[Minute]
    unavailable: Annotated[
        list[UnavailableSystem], Meta(description="systems that could not be read; left out: none")
    ] = []


class TaskInfo(Struct, frozen=True):
    """A task that can be submitted."""

    name: str
    live: Annotated[bool, Meta(description="whether a live worker has this task")]
    queue: Annotated[str, Meta(description="the queue in which its jobs are enqueued")]
    schema: Annotated[_AnyObject, Meta(description="JSON Schema of its payload, if known")]
    example: Annotated[_AnyObject, Meta(description="a valid payload, if one is known")]
    workers: Annotated[int, Meta(description="live workers that have it, without foreign ones")] = 0
    queues: Annotated[
        list[str],
        Meta(description="in which live workers have it; several are a mistake in the fleet"),
    ] = []


class Tasks(Struct, frozen=True):
    """All tasks."""

    tasks: list[TaskInfo]


class CronInfo(Struct, frozen=True):
    """A cron entry of the workers. Times are milliseconds since 1970."""

    name: str
    schedule: str
    tz: str
    last_ts: Annotated[int | None, Meta(description="the last due time that has run")]
    next_ts: int | None
    live: Annotated[bool, Meta(description="whether a live worker has this entry")]
    paused: Annotated[bool, Meta(description="whether its due times pass without a job")] = False


class CronPause(Struct, frozen=True):
    """The state of a cron entry after pause or resume."""

    name: str
    paused: bool


class Crons(Struct, frozen=True):
    """All cron entries."""

    crons: list[CronInfo]


class Scale(Struct, frozen=True):
    """What an autoscaler needs (G-28)."""

    waiting: Annotated[int, Meta(description="in the queues, or delayed and due within 60 s")]
    running: int
    slots: Annotated[int, Meta(description="of one worker: the largest live one, else the setting")]
    oldest_waiting_s: float
    load: Annotated[
        float, Meta(description="(waiting + running) / slots: rounded up, the workers needed")
    ]


# ── problems ─────────────────────────────────────────────────────────────────────────────────────

CRON_NOT_FOUND: Final = ProblemKind(
    "cron_not_found", 404, "there is no such cron entry; GET /v1/crons lists the entries"
)

# ── operations ───────────────────────────────────────────────────────────────────────────────────

_ID: Final = "0b7c1d52-7d0e-4c55-9a0f-2f6d1c1f7a10"
_LINE: Final = Minute(1767225600000, 142, 119, 2, 0, 1, Quantiles(), Quantiles())
WORKERS: Final = Operation(
    "GET",
    "/v1/workers",
    "read",
    "The workers of all systems, and the job of each slot",
    tag="fleet",
    description="Workers of the wire `bullmq` are those that its `getWorkers` lists, of any "
    "program. A process of ours that has registered itself is listed once, with all its queues.",
    query=SystemFilter,
    answer=Workers,
    example=Workers(
        [
            WorkerInfo(
                name="jobwire-web1-4711-9f2c",
                system="jobs",
                wire="streams",
                ours=True,
                host="web1",
                pid=4711,
                version="1.0.0",
                slots=10,
                handlers=["chat"],
                serves=[ServedQueueInfo("streams", "default", ["chat"])],
                started_ts=1767225600000,
                heartbeat_age_ms=1200,
                running=[WorkerSlot(_ID, "chat", 1767225600000)],
                queues=["default"],
            )
        ]
    ),
    problems=(UNAVAILABLE,),
)
STATS: Final = Operation(
    "GET",
    "/v1/stats",
    "read",
    "All systems now, and the last hour by minute",
    tag="fleet",
    description="The sum over all systems. Ended jobs of queues come from the wire's "
    "own counts, where a worker writes them, and from the ended jobs that are still stored.",
    query=SystemFilter,
    answer=Stats,
    example=Stats(Now(12, 0, 9, 400), _LINE, [_LINE]),
    problems=(UNAVAILABLE,),
)
TASKS: Final = Operation(
    "GET",
    "/v1/tasks",
    "read",
    "The tasks that can be submitted",
    tag="fleet",
    answer=Tasks,
    example={
        "tasks": [
            {
                "name": "chat",
                "live": True,
                "queue": "default",
                "workers": 2,
                "queues": ["default"],
                "schema": {"type": "object"},
                "example": {"prompt": "?"},
            }
        ]
    },
    problems=(UNAVAILABLE,),
)
CRONS: Final = Operation(
    "GET",
    "/v1/crons",
    "read",
    "The cron entries of the workers, with their last and next runs",
    tag="fleet",
    answer=Crons,
    example={
        "crons": [
            {
                "name": "cleanup",
                "schedule": "*/5 * * * *",
                "tz": "UTC",
                "last_ts": 1_790_000_100_000,
                "next_ts": 1_790_000_400_000,
                "live": True,
                "paused": False,
            }
        ]
    },
    problems=(UNAVAILABLE,),
)
PAUSE_CRON: Final = Operation(
    "POST",
    "/v1/crons/{name}/pause",
    "admin",
    "Pause a cron entry: its due times pass without a job",
    tag="fleet",
    description="It is kept on the server, and holds for all workers that have the entry.",
    answer=CronPause,
    example={"name": "cleanup", "paused": True},
    problems=(CRON_NOT_FOUND, UNAVAILABLE),
)
RESUME_CRON: Final = Operation(
    "POST",
    "/v1/crons/{name}/resume",
    "admin",
    "Resume a paused cron entry",
    tag="fleet",
    description="It goes on with its next due time; those that have passed are not made up for.",
    answer=CronPause,
    example={"name": "cleanup", "paused": False},
    problems=(CRON_NOT_FOUND, UNAVAILABLE),
)
SCALE: Final = Operation(
    "GET",
    "/v1/scale",
    "read",
    "How many workers are needed, for an autoscaler",
    tag="fleet",
    description="`load` rounded up is the number of workers with `slots` slots each that the jobs "
    "need now. Running jobs count, so that busy workers are not stopped. 503 if the server does "
    "not answer: never a wrong zero.",
    query=ScaleFilter,
    answer=Scale,
    example={"waiting": 31, "running": 9, "slots": 10, "oldest_waiting_s": 2.4, "load": 4.0},
    problems=(UNAVAILABLE,),
)
