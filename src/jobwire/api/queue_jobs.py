"""The operations of jobs of BullMQ's queues. Options have the names of npm BullMQ: what a Node team
writes there can be pasted here."""

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from jobwire.api.jobs import QUEUE_FULL
from jobwire.api.operation import Either, Operation
from jobwire.api.problems import ProblemKind
from jobwire.api.queues import BAD_JOB, EVENT_EXAMPLE, ON_QUEUES, QUEUE, QueueEventData
from jobwire.api.wire import WireJob

JOBS: Final = QUEUE + "/jobs"
JOB: Final = JOBS + "/{job_id}"
MAX_BULK_JOBS: Final = 1_000
MAX_BULK_BYTES: Final = 10 * 1024 * 1024
MAX_BODY: Final = MAX_BULK_BYTES + (2 << 20)
"""The largest body: data of the largest bulk, with names and options."""
MAX_PAGE: Final = 200
MAX_FIRST: Final = 1 << 30
MAX_SCAN: Final = 1_000
"""Jobs of a state that one request looks at for a text."""

StateName = Literal[
    "waiting", "prioritized", "delayed", "active", "waiting-children", "completed", "failed"
]
ENDED: Final = frozenset({"completed", "failed"})
"""States of a job that has ended."""
STATES: Final = (
    *("waiting", "prioritized", "delayed", "active", "waiting-children"),
    *("completed", "failed"),
)
Ms = Annotated[int, Meta(description="in milliseconds")]
AnyJson = Annotated[Any, Meta(description="any JSON")]

# ── requests ─────────────────────────────────────────────────────────────────────────────────────


class BackoffOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The wait before a retry."""

    type: Annotated[str, Meta(max_length=64)] = "fixed"
    delay: Ms = 0
    jitter: Annotated[float, Meta(description="the part of the wait that is random, 0 to 1")] = 0.0


class KeepOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Which finished jobs stay."""

    count: int | None = None
    age: Annotated[int | None, Meta(description="in seconds")] = None
    limit: int | None = None


class DeduplicationOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs of one id are not added while an earlier one owns it."""

    id: str
    ttl: Ms = 0
    extend: bool = False
    replace: bool = False
    keepLastIfActive: bool = False  # noqa: N815 - the wire's name
    reschedule: bool = False


class ParentOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The job that waits for this one."""

    id: str
    queue: Annotated[
        str, Meta(description="the name of its queue, with or without the prefix of the keys")
    ]


class TelemetryOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The trace that the job belongs to, for workers of Node with telemetry."""

    metadata: Annotated[str, Meta(max_length=8192)] = ""
    omitContext: bool = False  # noqa: N815 - the wire's name


# Without `gc` a body of many jobs is decoded in a fifth of the time. Bodies have no cycles.
class NewJobOptions(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """How a job is run; the names are those of BullMQ."""

    jobId: str = ""  # noqa: N815 - the wire's name
    delay: Ms = 0
    priority: int = 0
    lifo: bool = False
    attempts: int = 0
    backoff: int | BackoffOptions | None = None
    removeOnComplete: bool | int | KeepOptions | None = None  # noqa: N815
    removeOnFail: bool | int | KeepOptions | None = None  # noqa: N815
    keepLogs: int | None = None  # noqa: N815
    stackTraceLimit: int | None = None  # noqa: N815
    deduplication: DeduplicationOptions | None = None
    timestamp: Annotated[int | None, Meta(description="when it was made; now without it")] = None
    sizeLimit: Annotated[int | None, Meta(description="bytes of data")] = None  # noqa: N815
    telemetry: TelemetryOptions | None = None
    parent: ParentOptions | None = None
    failParentOnFailure: bool = False  # noqa: N815 - at most one of these four
    continueParentOnFailure: bool = False  # noqa: N815
    ignoreDependencyOnFailure: bool = False  # noqa: N815
    removeDependencyOnFailure: bool = False  # noqa: N815


class NewQueueJob(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A job to add."""

    name: str
    data: AnyJson = {}
    opts: NewJobOptions = NewJobOptions()


class NewQueueJobs(Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs to add at once; all are refused if one must be."""

    jobs: Annotated[list[NewQueueJob], Meta(min_length=1, max_length=10 * MAX_BULK_JOBS)]


First = Annotated[int, Meta(ge=0, le=MAX_FIRST, description="how many to skip")]
Limit = Annotated[int, Meta(ge=1, le=MAX_PAGE, description="how many; default 50", examples=[20])]


class PageQuery(Struct, frozen=True):
    """The query of a list."""

    first: First = 0
    limit: Limit = 50


class QueueJobFilter(Struct, frozen=True):
    """The query of a list of a queue's jobs."""

    state: Annotated[StateName, Meta(description="of the listed jobs")] = "waiting"
    first: First = 0
    limit: Limit = 50


class JobSummaryFilter(Struct, frozen=True):
    """The query of a list of jobs without their data."""

    state: Annotated[
        Literal["", StateName],
        Meta(
            description="of the listed jobs; empty: of all, for `q`",
            extra={"fault": f"must be empty or one of {', '.join(STATES)}"},
        ),
    ] = ""
    q: Annotated[str, Meta(max_length=255, description="a part of a name or an id")] = ""
    first: First = 0
    limit: Limit = 50


# ── answers ──────────────────────────────────────────────────────────────────────────────────────


class AddedToQueue(Struct, frozen=True):
    """What became of a job: `duplicate` and `deduplicated` name the job that exists instead."""

    id: str
    outcome: Annotated[
        str, Meta(extra_json_schema={"enum": ["added", "duplicate", "deduplicated"]})
    ]


class AddedQueueJobs(Struct, frozen=True):
    """The jobs in the order of the request."""

    jobs: list[AddedToQueue]


class QueueJobInfo(Struct, frozen=True, kw_only=True):
    """A job. Times are milliseconds since 1970."""

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
    problem: Annotated[
        str | None, Meta(description="why no worker can run it; null: nothing is wrong")
    ]

    @property
    def ended(self) -> bool:
        """Whether the job has completed or failed."""
        return self.state in ENDED


class QueueJobPage(Struct, frozen=True):
    """A page of the jobs in a state; `next` is the `first` of the next page."""

    jobs: list[QueueJobInfo]
    total: int
    next: int | None


class JobSummary(Struct, frozen=True, kw_only=True):
    """A job in a list; long texts are cut. Times are milliseconds since 1970."""

    id: str
    name: str
    state: str
    timestamp: int
    processed_on: int | None
    finished_on: int | None
    due_ts: Annotated[int | None, Meta(description="when a delayed job is due")]
    attempts_started: int
    attempts_made: int
    attempts: Annotated[int, Meta(description="how often it may run; 0: not known")]
    stalled: int
    priority: int
    progress: Any
    failed_reason: str | None
    processed_by: str | None
    parent_key: str | None
    scheduler: str | None


class JobSummaries(Struct, frozen=True):
    """A page; `next` is the `first` of the next one."""

    jobs: list[JobSummary]
    scanned: Annotated[int, Meta(description="how many jobs were searched")]
    total: Annotated[int, Meta(description="jobs in the state, or in the queue without a state")]
    next: int | None


class QueueLogs(Struct, frozen=True):
    """Lines of a job's log, the oldest first."""

    lines: list[str]
    total: int


class CancelResult(Struct, frozen=True):
    """`canceled`: it waited and is removed; `requested`: its worker stops it, and it fails as
    `canceled`; `requested_foreign`: another program runs it, and no program runs it again."""

    id: str
    outcome: str


class JobChanged(Struct, frozen=True):
    """The job's state after the change."""

    id: str
    state: str


# ── problems ─────────────────────────────────────────────────────────────────────────────────────

JOB_NOT_FOUND: Final = ProblemKind("job_not_found", 404, "there is no such job in this queue")
WRONG_STATE: Final = ProblemKind("wrong_state", 409, "the job's state does not allow this")
LOCKED: Final = ProblemKind("locked", 409, "a worker runs the job or one of its children")
SCHEDULED: Final = ProblemKind(
    "scheduled", 409, "the job is the next one of a scheduler: remove the scheduler instead"
)
PARENT_NOT_FOUND: Final = ProblemKind("parent_not_found", 409, "the parent does not exist")
HAS_PARENT: Final = ProblemKind("has_parent", 409, "the job exists and belongs to another parent")
BULK_TOO_LARGE: Final = ProblemKind(
    "bulk_too_large", 413, "at most 1000 jobs and 10 MiB of data in one request"
)
ON_JOBS: Final = (*ON_QUEUES, JOB_NOT_FOUND)
ON_CHANGES: Final = (*ON_JOBS, WRONG_STATE, LOCKED, SCHEDULED)
ON_ADDING: Final = (*ON_QUEUES, BAD_JOB, BULK_TOO_LARGE, PARENT_NOT_FOUND, HAS_PARENT, QUEUE_FULL)

# ── operations ───────────────────────────────────────────────────────────────────────────────────

_NEW_JOB: Final[dict[str, Any]] = {
    "name": "render",
    "data": {"videoId": "v1"},
    "opts": {"attempts": 3, "backoff": {"type": "exponential", "delay": 1000}},
}
_JOB: Final[dict[str, Any]] = {
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
_CHANGED: Final = {"id": "17", "state": "waiting"}

ADD: Final = Operation(
    "POST",
    JOBS,
    "submit",
    "Add a job, or many at once",
    tag="queues",
    description="A queue that does not exist is made.",
    body=Either("jobs", NewQueueJobs, NewQueueJob),
    body_example=_NEW_JOB,
    max_body=MAX_BODY,
    answer=AddedQueueJobs,
    example={"jobs": [{"id": "17", "outcome": "added"}]},
    status=201,
    problems=ON_ADDING,
)
LIST: Final = Operation(
    "GET",
    JOBS,
    "read",
    "Jobs in a state: waiting ones in the order of their start, ended ones newest first",
    tag="queues",
    query=QueueJobFilter,
    answer=QueueJobPage,
    example={"jobs": [_JOB], "total": 1, "next": None},
    problems=ON_QUEUES,
)
SUMMARIES: Final = Operation(
    "GET",
    QUEUE + "/summaries",
    "read",
    "List jobs without their data",
    tag="queues",
    description="Jobs in a state: waiting ones in the order of their start, ended ones newest "
    f"first. `q` selects those that have it in their name or id among the next {MAX_SCAN}; "
    "`scanned` shows how far that is. Without a state, `q` looks in all states, newest first.",
    query=JobSummaryFilter,
    answer=JobSummaries,
    example={
        "jobs": [
            {
                "id": "17",
                "name": "render",
                "state": "failed",
                "timestamp": 1767225600000,
                "processed_on": 1767225600100,
                "finished_on": 1767225604100,
                "due_ts": None,
                "attempts_started": 3,
                "attempts_made": 3,
                "attempts": 3,
                "stalled": 0,
                "priority": 0,
                "progress": 25,
                "failed_reason": "no disk",
                "processed_by": "w1",
                "parent_key": None,
                "scheduler": None,
            }
        ],
        "scanned": 50,
        "total": 41220,
        "next": 50,
    },
    problems=ON_QUEUES,
)
GET: Final = Operation(
    "GET",
    JOB,
    "read",
    "One job",
    tag="queues",
    description="With `Prefer: wait=N` the answer comes when it has ended, at the latest after N "
    "seconds.",
    answer=QueueJobInfo,
    example=_JOB,
    problems=ON_JOBS,
)
LOGS: Final = Operation(
    "GET",
    JOB + "/logs",
    "read",
    "Lines of a job's log, the oldest first",
    tag="queues",
    query=PageQuery,
    answer=QueueLogs,
    example={"lines": ["scene 1 of 4"], "total": 1},
    problems=ON_JOBS,
)
RETRY: Final = Operation(
    "POST",
    JOB + "/retry",
    "submit",
    "Run a failed or completed job again",
    tag="queues",
    answer=JobChanged,
    example=_CHANGED,
    problems=ON_CHANGES,
)
PROMOTE: Final = Operation(
    "POST",
    JOB + "/promote",
    "submit",
    "Let a delayed job run as soon as a worker is free",
    tag="queues",
    answer=JobChanged,
    example=_CHANGED,
    problems=ON_CHANGES,
)
CANCEL: Final = Operation(
    "POST",
    JOB + "/cancel",
    "submit",
    "Remove a job that waits; stop one that runs, which then fails as `canceled`",
    tag="queues",
    answer=CancelResult,
    example={"id": "17", "outcome": "canceled"},
    problems=ON_CHANGES,
)
DELETE: Final = Operation(
    "DELETE",
    JOB,
    "submit",
    "Delete a job with its children; one that runs is canceled instead (202)",
    tag="queues",
    answer=CancelResult,
    example={"id": "17", "outcome": "requested"},
    status=204,
    also={202: "its worker is asked to stop it"},
    problems=ON_CHANGES,
)
FOLLOW: Final = Operation(
    "GET",
    JOB + "/events",
    "read",
    "Follow a job of a queue until it has ended",
    tag="queues",
    description=(
        "Server-Sent Events: `hello` with the state, then the job's events, also past ones that "
        "the queue still has; `completed`, `failed` or `removed` ends the stream. After it a "
        "reconnect is answered with 204."
    ),
    answer=QueueEventData,
    example=EVENT_EXAMPLE,
    media_type="text/event-stream",
    also={204: "the client has seen the last event"},
    problems=ON_JOBS,
    stream=True,
)
WIRE: Final = Operation(
    "GET",
    JOB + "/wire",
    "read",
    "The keys of a job of a queue, as they are on the server",
    tag="queues",
    description="For authors of other clients. Read-only; long values are cut, and of the "
    "queue's events the last 500 are looked at.",
    answer=WireJob,
    example={
        "job_id": "17",
        "wire": "bullmq",
        "now_ts": 1767225601204,
        "keys": [
            {
                "key": "bull:video-generation:17",
                "type": "hash",
                "ttl_ms": None,
                "size": 9,
                "fields": [{"name": "name", "value": "render"}],
                "command": ["HGETALL", "bull:video-generation:17"],
                "path": "/v1/queues/video-generation/jobs/17",
            }
        ],
    },
    problems=ON_JOBS,
)
