"""Request and response bodies of the queues' API, as types.

Options have the names of npm BullMQ: what a Node team writes there can be pasted here.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt

from jobwire.wires.bullmq.contract import MAX_BULK_JOBS

_OPTS: Final[dict[str, Any]] = {"attempts": 3, "backoff": {"type": "exponential", "delay": 1000}}
_JOB: Final[dict[str, Any]] = {"name": "render", "data": {"videoId": "v1"}, "opts": _OPTS}
_COUNTS: Final[dict[str, int]] = {
    "waiting": 3,
    "prioritized": 0,
    "delayed": 1,
    "active": 2,
    "waiting-children": 0,
    "completed": 120,
    "failed": 4,
}
_QUEUE: Final[dict[str, Any]] = {
    "name": "video-generation",
    "tenant": None,
    "paused": False,
    "counts": _COUNTS,
    "oldest_waiting_ms": 420,
    "workers": 2,
}


def example(given: dict[str, Any], **more: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [given]}, **more)


class BackoffOptions(BaseModel):
    """The wait before a retry."""

    model_config = example({"type": "fixed", "delay": 1000}, extra="forbid")
    type: Annotated[str, Field(max_length=64)] = "fixed"
    delay: StrictInt = Field(default=0, description="in milliseconds")
    jitter: float = Field(default=0.0, description="the part of the wait that is random, 0 to 1")


class KeepOptions(BaseModel):
    """Which finished jobs stay."""

    model_config = example({"count": 1000}, extra="forbid")
    count: StrictInt | None = None
    age: StrictInt | None = Field(default=None, description="in seconds")
    limit: StrictInt | None = None


class DeduplicationOptions(BaseModel):
    """Jobs of one id are not added while an earlier one owns it."""

    model_config = example({"id": "video-v1"}, extra="forbid")
    id: str
    ttl: StrictInt = Field(default=0, description="in milliseconds")
    extend: StrictBool = False
    replace: StrictBool = False
    keepLastIfActive: StrictBool = False  # noqa: N815 - the wire's name
    reschedule: StrictBool = False


class NewJobOptions(BaseModel):
    """How a job is run; the names are those of BullMQ."""

    model_config = example(_OPTS, extra="forbid")
    jobId: str = ""  # noqa: N815 - the wire's name
    delay: StrictInt = Field(default=0, description="in milliseconds")
    priority: StrictInt = 0
    lifo: StrictBool = False
    attempts: StrictInt = 0
    backoff: StrictInt | BackoffOptions | None = None
    removeOnComplete: StrictBool | StrictInt | KeepOptions | None = None  # noqa: N815
    removeOnFail: StrictBool | StrictInt | KeepOptions | None = None  # noqa: N815
    keepLogs: StrictInt | None = None  # noqa: N815
    stackTraceLimit: StrictInt | None = None  # noqa: N815
    deduplication: DeduplicationOptions | None = None


class NewQueueJob(BaseModel):
    """A job to add."""

    model_config = example(_JOB, extra="forbid")
    name: str
    data: Any = Field(default_factory=dict, description="any JSON")
    opts: NewJobOptions = NewJobOptions()


class NewQueueJobs(BaseModel):
    """Jobs to add at once; all are refused if one must be."""

    model_config = example({"jobs": [_JOB, _JOB]}, extra="forbid")
    jobs: list[NewQueueJob] = Field(min_length=1, max_length=10 * MAX_BULK_JOBS)


class AddedQueueJob(BaseModel):
    """What became of a job: `duplicate` and `deduplicated` name the job that exists instead."""

    model_config = example({"id": "17", "outcome": "added"})
    id: str
    outcome: Literal["added", "duplicate", "deduplicated"]


class AddedQueueJobs(BaseModel):
    """The jobs in the order of the request."""

    model_config = example({"jobs": [{"id": "17", "outcome": "added"}]})
    jobs: list[AddedQueueJob]


class QueueSummary(BaseModel):
    """A queue now."""

    model_config = example(_QUEUE)
    name: str
    tenant: str | None = Field(description="tenant of the queue; null: for keys with scope admin")
    paused: bool
    counts: dict[str, int] = Field(description="jobs by state")
    oldest_waiting_ms: int | None
    workers: int | None = Field(description="that `getWorkers` of Node lists; null: unknown")


class Queues(BaseModel):
    """All queues that the caller may see."""

    model_config = example({"queues": [_QUEUE]})
    queues: list[QueueSummary]


class QueueRates(BaseModel):
    """Ended jobs, where workers of the queue count them; by minute, the newest first."""

    model_config = example({"total": 120, "by_minute": [3, 0, 7]})
    total: int
    by_minute: list[int]


class QueueInfo(QueueSummary):
    """A queue now, with its limits and the last hour."""

    model_config = example(
        {
            **_QUEUE,
            "stalled": 0,
            "schedulers": 1,
            "concurrency": None,
            "rate_limit": None,
            "completed": {"total": 120, "by_minute": [3, 0, 7]},
            "failed": {"total": 4, "by_minute": [0, 0, 1]},
        }
    )
    stalled: int = Field(description="active jobs without a lock")
    schedulers: int
    concurrency: int | None = Field(description="how many jobs all workers may run at a time")
    rate_limit: dict[str, int] | None = Field(description="`max` jobs in `duration` ms")
    completed: QueueRates
    failed: QueueRates


class QueueJob(BaseModel):
    """A job. Times are milliseconds since 1970."""

    model_config = example(
        {
            "id": "17",
            "queue": "video-generation",
            "name": "render",
            "state": "failed",
            "data": {"videoId": "v1"},
            "opts": {"attempts": 3},
            "progress": 25,
            "returnvalue": None,
            "failed_reason": "no disk",
            "stacktrace": [],
            "attempts_made": 3,
            "attempts_started": 3,
            "stalled": 0,
            "priority": 0,
            "delay": 0,
            "timestamp": 1767225600000,
            "processed_on": 1767225600100,
            "finished_on": 1767225604100,
            "processed_by": "w1",
            "parent_key": None,
            "scheduler": None,
            "deduplication_id": None,
            "problem": None,
        }
    )
    id: str
    queue: str
    name: str
    state: str
    data: Any
    opts: dict[str, Any]
    progress: Any
    returnvalue: Any
    failed_reason: str | None
    stacktrace: list[str]
    attempts_made: int
    attempts_started: int
    stalled: int
    priority: int
    delay: int
    timestamp: int
    processed_on: int | None
    finished_on: int | None
    processed_by: str | None
    parent_key: str | None
    scheduler: str | None
    deduplication_id: str | None
    problem: str | None = Field(description="why no worker can run it; null: nothing is wrong")


class QueueJobs(BaseModel):
    """A page of the jobs in a state; `next` is the `first` of the next page."""

    model_config = example({"jobs": [], "total": 0, "next": None})
    jobs: list[QueueJob]
    total: int
    next: int | None


class QueueLogs(BaseModel):
    """Lines of a job's log, the oldest first."""

    model_config = example({"lines": ["scene 1 of 4"], "total": 1})
    lines: list[str]
    total: int


class Canceled(BaseModel):
    """`canceled`: it waited and is removed; `requested`: its worker stops it, and it fails as
    `canceled`; `requested_foreign`: another program runs it, and no program runs it again."""

    model_config = example({"id": "17", "outcome": "canceled"})
    id: str
    outcome: str


class JobChanged(BaseModel):
    """The job's state after the change."""

    model_config = example({"id": "17", "state": "waiting"})
    id: str
    state: str


class Affected(BaseModel):
    """How many jobs were changed."""

    model_config = example({"count": 12})
    count: int


class CleanRequest(BaseModel):
    """Which jobs are deleted."""

    model_config = example({"state": "completed", "grace_ms": 3600000}, extra="forbid")
    state: str = "completed"
    grace_ms: StrictInt = Field(default=0, description="younger jobs stay")
    limit: StrictInt = Field(default=0, description="0: all")


class DrainRequest(BaseModel):
    """What is deleted besides the waiting jobs."""

    model_config = example({"delayed": False}, extra="forbid")
    delayed: StrictBool = False


class ObliterateRequest(BaseModel):
    """Whether jobs that workers run are deleted too."""

    model_config = example({"force": False}, extra="forbid")
    force: StrictBool = False


class RetryRequest(BaseModel):
    """Which jobs run again."""

    model_config = example({"state": "failed"}, extra="forbid")
    state: Literal["failed", "completed"] = "failed"


class PauseState(BaseModel):
    """Whether the queue is paused."""

    model_config = example({"paused": True})
    paused: bool
