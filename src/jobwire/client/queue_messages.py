"""Request and response bodies of queues."""

from typing import Any, Final

from msgspec import Struct, field

ENDED: Final = frozenset({"completed", "failed"})
"""States of a job that has ended."""
_LAST_EVENTS: Final = frozenset({"completed", "failed", "removed"})


class QueueStatus(Struct, frozen=True, kw_only=True):
    """A queue now."""

    name: str
    tenant: str | None = None
    paused: bool = False
    counts: dict[str, int] = {}
    """Jobs by state."""
    oldest_waiting_ms: int | None = None
    workers: int | None = None
    stalled: int = 0
    schedulers: int = 0
    concurrency: int | None = None
    rate_limit: dict[str, int] | None = None


class QueueStatusList(Struct, frozen=True):
    """The response of `/v1/queues`."""

    queues: list[QueueStatus]


class AddedToQueue(Struct, frozen=True):
    """What became of a job: `added`, or `duplicate` or `deduplicated` with the existing job."""

    id: str
    outcome: str


class AddedToQueueList(Struct, frozen=True):
    """The response of adding jobs."""

    jobs: list[AddedToQueue]


class QueueJobInfo(Struct, frozen=True, kw_only=True):
    """A job of a queue. Times are milliseconds since 1970."""

    id: str
    queue: str
    name: str
    state: str
    data: Any = None
    opts: dict[str, Any] = {}
    progress: Any = None
    returnvalue: Any = None
    failed_reason: str | None = None
    stacktrace: list[str] = []
    attempts_made: int = 0
    attempts_started: int = 0
    stalled: int = 0
    priority: int = 0
    delay: int = 0
    timestamp: int = 0
    processed_on: int | None = None
    finished_on: int | None = None
    processed_by: str | None = None
    parent_key: str | None = None
    scheduler: str | None = None
    deduplication_id: str | None = None
    problem: str | None = None

    @property
    def ended(self) -> bool:
        return self.state in ENDED


class QueueJobPage(Struct, frozen=True):
    """A page of jobs; `next` is the `first` of the next one."""

    jobs: list[QueueJobInfo]
    total: int
    next: int | None = None


class QueueLogPage(Struct, frozen=True):
    """Lines of a job's log, the oldest first."""

    lines: list[str]
    total: int


class QueueEventInfo(Struct, frozen=True, kw_only=True):
    """Something that happened on a queue; `gap`: events may be missing."""

    event: str
    job_id: str | None = None
    ts: int = 0
    fields: dict[str, Any] = {}
    id: str | None = None

    @property
    def ends_job(self) -> bool:
        return self.event in _LAST_EVENTS


class QueueHello(Struct, frozen=True):
    """The first event of every stream; with the state if it is a job's."""

    state: str = ""


class CancelResult(Struct, frozen=True):
    """What a cancel did: `canceled`, `requested` or `requested_foreign`."""

    id: str
    outcome: str


class QueueJobChange(Struct, frozen=True):
    """The state of a job after a change."""

    id: str
    state: str


class AffectedJobs(Struct, frozen=True):
    count: int


class PausedState(Struct, frozen=True):
    paused: bool


class FlowIds(Struct, frozen=True):
    """The ids of an added flow, as a tree of the same form."""

    queue: str
    id: str
    children: "list[FlowIds]" = []


class ChildrenCount(Struct, frozen=True):
    """Children of a job by what became of them."""

    completed: int = 0
    failed: int = 0
    ignored: int = 0
    """They failed without an effect on the parent."""
    pending: int = 0


class FlowJobInfo(Struct, frozen=True, kw_only=True):
    """A job of a flow; `children` are those that are shown, `counts` has all of them."""

    queue: str
    id: str
    name: str
    state: str
    removed: bool = False
    """The job is deleted; the state is what its parent recorded."""
    progress: Any = None
    failed_reason: str | None = None
    counts: ChildrenCount = field(default_factory=ChildrenCount)
    children: "list[FlowJobInfo]" = []


class FlowInfo(Struct, frozen=True):
    """A job with the jobs below it and the one above it."""

    job: FlowJobInfo
    parent: FlowJobInfo | None = None


class SchedulerInfo(Struct, frozen=True, kw_only=True):
    """A job scheduler; times are milliseconds since 1970."""

    id: str
    name: str
    next: int | None = None
    """When the next job is due; None: the scheduler has ended."""
    next_runs: list[int] = []
    made: int = 0
    repeat: dict[str, Any] = {}
    data: Any = None
    opts: Any = None


class SchedulerPage(Struct, frozen=True):
    """A page of schedulers; `next` is the `first` of the next one."""

    schedulers: list[SchedulerInfo]
    total: int
    next: int | None = None


class SchedulerSet(Struct, frozen=True):
    """The next job of a scheduler; None if none is due before its end: then nothing was set."""

    id: str
    job_id: str | None = None
    next: int | None = None
