"""Request and response bodies of the gateway's API.

Tolerant: unknown members of a newer gateway are ignored, missing ones have defaults.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from jobwire.job.messages import Json
else:
    Json = Any  # msgspec reads types at run time, and does not support recursive aliases

Status = Literal["queued", "running", "done", "error", "canceled"]
ENDED: Final = frozenset({"done", "error", "canceled"})


class Failure(Struct, frozen=True):
    """Why a job failed, as far as it is known."""

    code: str = ""
    message: str = ""
    retryable: bool = False
    attempt: int = 1
    partial: Json = None
    """The partial result, if the handler reported one."""


class JobLine(Struct, frozen=True, kw_only=True):
    """A job in a list: without payload and result. Times are milliseconds since 1970."""

    job_id: str
    task: str
    status: Status
    error: Json = None
    created_ts: int = 0
    started_ts: int | None = None
    updated_ts: int = 0
    attempt: int = 1
    worker: str | None = None
    progress: Json = None
    cancel_ts: int | None = None
    retry_of: str | None = None
    queue: str = "default"

    @property
    def ended(self) -> bool:
        """Whether the job is done, failed or canceled."""
        return self.status in ENDED

    @property
    def failure(self) -> Failure:
        """The error as an object; a foreign worker may have written any JSON."""
        if self.error is None:
            return Failure()
        try:
            return msgspec.convert(self.error, Failure)
        except msgspec.ValidationError:
            text = self.error if isinstance(self.error, str) else msgspec.json.encode(self.error)
            return Failure(message=text if isinstance(text, str) else text.decode())


class Job(JobLine, frozen=True, kw_only=True):
    """A job with its payload and result."""

    payload: Json = None
    result: Json = None
    ttl_s: int = 0
    max_attempts: int | None = None
    timeout_s: float | None = None
    exception_type: str | None = None
    """Of the latest failed attempt; like the next two, None without the scope `admin`."""
    exception_message: str | None = None
    traceback: str | None = None


class JobPage(Struct, frozen=True):
    """A page of a list, newest first."""

    jobs: list[JobLine]
    scanned: int
    cursor: str | None
    """The cursor of the next page; None: this is the last page."""


class JobOptions(TypedDict, total=False):
    """Options of a new job."""

    ttl_s: int
    """How long the job is kept after its last change."""
    delay_s: float
    """Start it after this delay."""
    max_attempts: int
    timeout_s: float
    """How long one attempt may take."""
    idempotency_key: str
    """One key creates one job, however often it is sent. Default: a random one."""
    queue: str
    """The queue that the job waits in. Default: the queue of its task."""


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to create. Options that are None have the default of the gateway or the handler."""

    task: str
    payload: object = None
    """A mapping, or a dataclass or msgspec Struct that becomes one; None is `{}`. A `msgspec.Raw`
    is sent byte for byte."""
    ttl_s: int | None = None
    delay_s: float | None = None
    max_attempts: int | None = None
    timeout_s: float | None = None
    idempotency_key: str | None = None
    queue: str | None = None


class Event(Struct, frozen=True, kw_only=True):
    """One event of a job."""

    type: str
    """`queued`, `running`, `progress`, `token`, `log`, `retrying`, `done`, `error`, `canceled`, a
    type of the handler's own; or `gap`: events before the next one may be lost."""
    ts: int = 0
    step: str = ""
    data: Json = None
    id: str | None = None

    @property
    def ends_job(self) -> bool:
        """Whether this is the job's last event."""
        return self.type in ENDED


class CancelAnswer(Struct, frozen=True):
    """The result of a cancel request."""

    job_id: str
    outcome: Literal["canceled", "canceling", "cancel_requested"]


class BatchResult(Struct, frozen=True):
    """The result of one item of a batch."""

    status: int
    job_id: str | None = None
    replayed: bool = False
    problem: dict[str, object] | None = None


class BatchAnswer(Struct, frozen=True):
    """The results of a batch, in the order of its items."""

    results: list[BatchResult]


class Hello(Struct, frozen=True):
    """The first event of every stream."""

    status: str = ""


class TaskInfo(Struct, frozen=True):
    """A task that can be submitted."""

    name: str
    live: bool = False
    """Whether a live worker has it."""
    queue: str = "default"
    """The queue in which its jobs are enqueued."""
    schema: dict[str, Any] | None = None
    """JSON Schema of its payload, if known."""
    example: Json = None
    """An example payload, if known."""


class TaskList(Struct, frozen=True):
    """The response of `/v1/tasks`."""

    tasks: list[TaskInfo]


class CronInfo(Struct, frozen=True):
    """A cron entry of the workers. Times are milliseconds since 1970."""

    name: str
    schedule: str = ""
    tz: str = "UTC"
    last_ts: int | None = None
    """The last due time that has run."""
    next_ts: int | None = None
    live: bool = False
    """Whether a live worker has it."""


class CronList(Struct, frozen=True):
    """The response of `/v1/crons`."""

    crons: list[CronInfo]


class Now(Struct, frozen=True):
    """The queue now."""

    waiting: int = 0
    delayed: int = 0
    running: int = 0
    oldest_waiting_ms: int | None = None


class Quantiles(Struct, frozen=True):
    """In milliseconds; None without samples."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


class Minute(Struct, frozen=True, kw_only=True):
    """Counts of one minute, or of one hour."""

    start_ts: int = 0
    submitted: int | None = 0
    """None: the chosen systems do not count it."""
    done: int = 0
    error: int = 0
    canceled: int = 0
    retried: int = 0
    latency_ms: Quantiles = Quantiles()
    duration_ms: Quantiles = Quantiles()


class Stats(Struct, frozen=True):
    """All systems now, the last hour, and its minutes, oldest first."""

    now: Now
    hour: Minute
    minutes: list[Minute]


class UnavailableSystem(Struct, frozen=True):
    """A system that could not be read."""

    system: str
    detail: str = ""


class SystemInfo(Struct, frozen=True, kw_only=True):
    """A system, or one queue of a system, now and in the last hour."""

    system: str
    name: str
    wire: str
    waiting: int = 0
    paused: bool = False
    """No worker starts what waits."""
    delayed: int = 0
    running: int = 0
    oldest_waiting_ms: int | None = None
    workers: int | None = None
    """None: unknown, or it needs none."""
    slots: int | None = None
    submitted: int | None = None
    done: int = 0
    error: int = 0
    canceled: int = 0
    ended_by_minute: list[int] = []
    failed_by_minute: list[int] = []
    duration_ms: Quantiles = Quantiles()


class Overview(Struct, frozen=True, kw_only=True):
    """All systems; those that could not be read, and how many further queues there are."""

    systems: list[SystemInfo]
    unavailable: list[UnavailableSystem] = []
    left_out: int = 0


class FailureInfo(Struct, frozen=True):
    """Jobs that failed in the same way: task, error code and first line of the message."""

    system: str
    task: str
    code: str
    message: str
    count: int
    first_ts: int
    last_ts: int
    by_hour: list[int]
    sample_job_id: str
    worker: str | None
    """Where all of them ran; None: on several workers, or on none."""


class FailureList(Struct, frozen=True):
    """The kinds of failures, the most frequent first."""

    failures: list[FailureInfo]


class FoundJob(Struct, frozen=True):
    """A job that a search has found."""

    system: str
    wire: str
    id: str
    task: str
    status: str
    created_ts: int


class SearchAnswer(Struct, frozen=True):
    """What a search has found; if the text is not an id, the newest `scanned` of `total` jobs were
    looked at."""

    found: list[FoundJob]
    scanned: int
    total: int


class Slot(Struct, frozen=True):
    """A job that a worker runs; id and task of another tenant's job are None."""

    job_id: str | None
    task: str | None
    since_ts: int
    wire: str = "streams"
    queue: str = ""
    """Of the wire `bullmq`."""


class MissingRequirementInfo(Struct, frozen=True):
    """A requirement of some of its tasks that a worker does not meet."""

    part: str
    wrong: str
    what_to_do: str


class PredictionInfo(Struct, frozen=True, kw_only=True):
    """One task of the photo bot."""

    id: str
    task_id: str | None = None
    status: str
    state: str | None = None
    chat_id: int
    tenant: str = ""
    model: str | None = None
    input_key: str | None = None
    output_key: str | None = None
    error: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    prompt: str | None = None
    message: str | None = None
    """The provider's words about a failure."""
    pictures: int = 0
    """How many output pictures are stored."""


class PredictionPage(Struct, frozen=True):
    """The response of `/v1/predictions`; `next` is the `after` of the next page."""

    predictions: list[PredictionInfo]
    next: str | None = None


class ServedQueueInfo(Struct, frozen=True):
    """A queue that a worker's process serves; the task `*` is a handler of all other tasks."""

    wire: str
    queue: str
    tasks: list[str] = []


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """One worker."""

    name: str
    system: str = "jobs"
    wire: str = "streams"
    ours: bool = True
    host: str | None = None
    pid: int | None = None
    version: str | None = None
    slots: int | None = None
    handlers: list[str] = []
    serves: list[ServedQueueInfo] = []
    """The queues of its process, on all wires."""
    started_ts: int | None = None
    heartbeat_age_ms: int = 0
    running: list[Slot] = []
    lacks: list[MissingRequirementInfo] = []
    queues: list[str] = []
    """The queues of its wire that it reads."""


class WorkerList(Struct, frozen=True):
    """The response of `/v1/workers`."""

    workers: list[WorkerInfo]


class JobQueueInfo(Struct, frozen=True, kw_only=True):
    """One queue of jobs."""

    name: str
    paused: bool = False
    """Whether workers start none of its jobs."""
    waiting: int = 0
    running: int = 0
    oldest_waiting_ms: int | None = None
    workers: int = 0
    """Live workers that read it."""


class JobQueueList(Struct, frozen=True):
    """The response of `/v1/jobs/queues`."""

    queues: list[JobQueueInfo]


class PauseAnswer(Struct, frozen=True):
    """The state of a queue after pause or resume."""

    queue: str
    paused: bool
    warning: str | None = None
    """What does not stop."""


class PurgeAnswer(Struct, frozen=True):
    """The result of a purge."""

    queue: str
    canceled: int
    """Jobs that waited or were delayed."""
