"""The operations of job schedulers of BullMQ's queues. Options have the names of npm BullMQ."""

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from jobwire.api.jobs import QUEUE_FULL
from jobwire.api.operation import Operation
from jobwire.api.problems import ProblemKind
from jobwire.api.queue_jobs import AnyJson, NewJobOptions, PageQuery
from jobwire.api.queues import BAD_JOB, ON_QUEUES, QUEUE

SCHEDULERS: Final = QUEUE + "/schedulers"
SCHEDULER: Final = SCHEDULERS + "/{scheduler_id}"

# ── requests ─────────────────────────────────────────────────────────────────────────────────────


class RepeatOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """When a scheduler's jobs are due: either `every` or `pattern`. Times are milliseconds."""

    every: Annotated[int | None, Meta(description="the interval")] = None
    offset: Annotated[
        int | None, Meta(description="offset of the due time within the interval")
    ] = None
    pattern: Annotated[
        Annotated[str, Meta(max_length=200)] | None,
        Meta(description="a cron entry of five fields, or six with seconds in front"),
    ] = None
    tz: Annotated[
        Annotated[str, Meta(max_length=64)] | None,
        Meta(description="the time zone of the pattern; without it that of the programs"),
    ] = None
    immediately: Annotated[bool, Meta(description="the first job of a pattern is due at once")] = (
        False
    )
    limit: Annotated[int | None, Meta(description="how many jobs are made in all")] = None
    startDate: int | None = None  # noqa: N815 - the wire's name
    endDate: int | None = None  # noqa: N815


class NewScheduler(Struct, frozen=True, forbid_unknown_fields=True):
    """When jobs are made, and from which template; `name` is the scheduler's id without it."""

    repeat: RepeatOptions
    name: str = ""
    data: AnyJson = {}
    opts: NewJobOptions = NewJobOptions()


# ── answers ──────────────────────────────────────────────────────────────────────────────────────


class SchedulerSet(Struct, frozen=True):
    """The scheduler's next job; null if none is due before its end: then nothing was set."""

    id: str
    job_id: str | None
    next: int | None


class SchedulerRepeat(Struct, frozen=True, kw_only=True):
    """When a scheduler's jobs are due, as a program wrote it. Times are milliseconds."""

    every: int | None = None
    offset: int | None = None
    pattern: str | None = None
    tz: str | None = None
    immediately: bool = False
    limit: int | None = None
    startDate: int | None = None  # noqa: N815 - the wire's name
    endDate: int | None = None  # noqa: N815


class SchedulerInfo(Struct, frozen=True, kw_only=True):
    """A scheduler; times are milliseconds since 1970."""

    id: str
    name: str
    next: Annotated[
        int | None, Meta(description="when the next job is due; null: the scheduler has ended")
    ]
    next_runs: Annotated[list[int], Meta(description="when the next jobs are due")]
    made: Annotated[int, Meta(description="how many jobs it has made")]
    repeat: SchedulerRepeat
    data: Any
    opts: Any


class SchedulerPage(Struct, frozen=True):
    """A page of schedulers; `next` is the `first` of the next page."""

    schedulers: list[SchedulerInfo]
    total: int
    next: int | None


# ── problems ─────────────────────────────────────────────────────────────────────────────────────

SCHEDULER_NOT_FOUND: Final = ProblemKind(
    "scheduler_not_found", 404, "there is no such scheduler in this queue"
)
SCHEDULER_BUSY: Final = ProblemKind(
    "scheduler_busy",
    409,
    "jobs with the ids of the scheduler's next ones exist; remove them or choose another time",
)

# ── operations ───────────────────────────────────────────────────────────────────────────────────

_REPEAT: Final[dict[str, Any]] = {"pattern": "0 0 3 * * *", "tz": "Europe/Berlin"}
_OPTS: Final = {"attempts": 3}
_SCHEDULER: Final[dict[str, Any]] = {
    "id": "nightly",
    "name": "report",
    "next": 1767225600000,
    "next_runs": [1767225600000, 1767312000000, 1767398400000],
    "made": 12,
    "repeat": _REPEAT,
    "data": {},
    "opts": _OPTS,
}

LIST: Final = Operation(
    "GET",
    SCHEDULERS,
    "read",
    "Schedulers in the order of their next jobs, with their next runs",
    tag="queues",
    query=PageQuery,
    answer=SchedulerPage,
    example={"schedulers": [_SCHEDULER], "total": 1, "next": None},
    problems=ON_QUEUES,
)
GET: Final = Operation(
    "GET",
    SCHEDULER,
    "read",
    "One scheduler with its next runs",
    tag="queues",
    answer=SchedulerInfo,
    example=_SCHEDULER,
    problems=(*ON_QUEUES, SCHEDULER_NOT_FOUND),
)
SET: Final = Operation(
    "PUT",
    SCHEDULER,
    "admin",
    "Set a scheduler, new or changed, and make its next job",
    tag="queues",
    description="A queue that does not exist is made.",
    body=NewScheduler,
    body_example={"repeat": _REPEAT, "name": "report", "data": {}, "opts": _OPTS},
    answer=SchedulerSet,
    example={
        "id": "nightly",
        "job_id": "repeat:nightly:1767225600000",
        "next": 1767225600000,
    },
    problems=(*ON_QUEUES, BAD_JOB, SCHEDULER_BUSY, QUEUE_FULL),
)
REMOVE: Final = Operation(
    "DELETE",
    SCHEDULER,
    "admin",
    "Remove a scheduler and its delayed job; a job that waits or runs already goes on",
    tag="queues",
    status=204,
    problems=(*ON_QUEUES, SCHEDULER_NOT_FOUND),
)
