"""The operations of BullMQ's queues; `queue_jobs`, `flows` and `schedulers` have the rest."""

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from jobwire.api.operation import Operation
from jobwire.api.problems import UNAVAILABLE, ProblemKind

QUEUES: Final = "/v1/queues"
QUEUE: Final = QUEUES + "/{queue}"

# ── requests ─────────────────────────────────────────────────────────────────────────────────────


class CleanRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs are deleted."""

    state: str = "completed"
    grace_ms: Annotated[int, Meta(description="younger jobs stay")] = 0
    limit: Annotated[int, Meta(description="0: all")] = 0


class DrainRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What is deleted besides the waiting jobs."""

    delayed: bool = False


class ObliterateRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether jobs that workers run are deleted too."""

    force: bool = False


class RetryRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs run again."""

    state: Literal["failed", "completed"] = "failed"


# ── answers ──────────────────────────────────────────────────────────────────────────────────────


class QueueSummary(Struct, frozen=True, kw_only=True):
    """A queue now."""

    name: str
    tenant: Annotated[
        str | None, Meta(description="tenant of the queue; null: for keys with scope admin")
    ]
    paused: bool
    counts: Annotated[dict[str, int], Meta(description="jobs by state")]
    oldest_waiting_ms: int | None
    workers: Annotated[
        int | None, Meta(description="that `getWorkers` of Node lists; null: unknown")
    ]


class Queues(Struct, frozen=True):
    """All queues that the caller may see."""

    queues: list[QueueSummary]


class QueueRates(Struct, frozen=True):
    """Ended jobs, where workers of the queue count them; by minute, the newest first."""

    total: int
    by_minute: list[int]


class QueueStatus(QueueSummary, frozen=True, kw_only=True):
    """A queue now, with its limits and the last hour."""

    stalled: Annotated[int, Meta(description="active jobs without a lock")]
    schedulers: int
    concurrency: Annotated[
        int | None, Meta(description="how many jobs all workers may run at a time")
    ]
    rate_limit: Annotated[dict[str, int] | None, Meta(description="`max` jobs in `duration` ms")]
    completed: QueueRates
    failed: QueueRates


class PauseState(Struct, frozen=True):
    """Whether the queue is paused."""

    paused: bool


class Affected(Struct, frozen=True):
    """How many jobs were changed."""

    count: int


class QueueHello(Struct, frozen=True, omit_defaults=True):
    """The first event of every stream; with id and state if it is a job's."""

    queue: str
    job_id: str = ""
    state: str = ""


class QueueEventData(Struct, frozen=True):
    """The `data:` of a server-sent event."""

    event: str
    job_id: str | None
    ts: int
    fields: dict[str, Any]


# ── problems ─────────────────────────────────────────────────────────────────────────────────────

QUEUE_NOT_FOUND: Final = ProblemKind("queue_not_found", 404, "there is no such queue")
BAD_QUEUE_NAME: Final = ProblemKind("bad_queue_name", 422, "this cannot be the name of a queue")
QUEUE_ACTIVE: Final = ProblemKind(
    "queue_active", 409, "workers run jobs of the queue; wait for them, or use force"
)
BAD_JOB: Final = ProblemKind("bad_job", 422, "the queue does not accept this job")
UNKNOWN_STATE: Final = ProblemKind("unknown_state", 422, "there is no such state of jobs")
ON_QUEUES: Final = (QUEUE_NOT_FOUND, BAD_QUEUE_NAME, UNAVAILABLE)

# ── operations ───────────────────────────────────────────────────────────────────────────────────

_QUEUE: Final[dict[str, Any]] = {
    "name": "video-generation",
    "tenant": None,
    "paused": False,
    "counts": {
        "waiting": 3,
        "prioritized": 0,
        "delayed": 1,
        "active": 2,
        "waiting-children": 0,
        "completed": 120,
        "failed": 4,
    },
    "oldest_waiting_ms": 420,
    "workers": 2,
}
_COUNT: Final = {"count": 12}
EVENT_EXAMPLE: Final = {
    "event": "progress",
    "job_id": "17",
    "ts": 1767225600000,
    "fields": {"data": 25},
}

LIST: Final = Operation(
    "GET",
    QUEUES,
    "read",
    "The queues that the settings name and those that were found on the server",
    tag="queues",
    answer=Queues,
    example={"queues": [_QUEUE]},
    problems=(UNAVAILABLE,),
)
GET: Final = Operation(
    "GET",
    QUEUE,
    "read",
    "One queue: jobs by state, limits, ended jobs by minute",
    tag="queues",
    answer=QueueStatus,
    example={
        **_QUEUE,
        "stalled": 0,
        "schedulers": 1,
        "concurrency": None,
        "rate_limit": None,
        "completed": {"total": 120, "by_minute": [3, 0, 7]},
        "failed": {"total": 4, "by_minute": [0, 0, 1]},
    },
    problems=ON_QUEUES,
)
PAUSE: Final = Operation(
    "POST",
    QUEUE + "/pause",
    "admin",
    "Pause a queue: no worker of any program starts its jobs",
    tag="queues",
    description="Running jobs go on.",
    answer=PauseState,
    example={"paused": True},
    problems=ON_QUEUES,
)
RESUME: Final = Operation(
    "POST",
    QUEUE + "/resume",
    "admin",
    "Resume a paused queue",
    tag="queues",
    answer=PauseState,
    example={"paused": False},
    problems=ON_QUEUES,
)
DRAIN: Final = Operation(
    "POST",
    QUEUE + "/drain",
    "admin",
    "Delete all jobs that wait, and the delayed ones if asked",
    tag="queues",
    body=DrainRequest | None,
    body_example={"delayed": False},
    answer=Affected,
    example=_COUNT,
    problems=ON_QUEUES,
)
CLEAN: Final = Operation(
    "POST",
    QUEUE + "/clean",
    "admin",
    "Delete the jobs of a state that are old enough",
    tag="queues",
    body=CleanRequest | None,
    body_example={"state": "completed", "grace_ms": 3600000},
    answer=Affected,
    example=_COUNT,
    problems=(*ON_QUEUES, BAD_JOB, UNKNOWN_STATE),
)
OBLITERATE: Final = Operation(
    "POST",
    QUEUE + "/obliterate",
    "admin",
    "Delete the queue with its jobs, schedulers and events",
    tag="queues",
    description="Jobs that wait for children stay: the children may be in other queues. A queue "
    "whose jobs are run is refused, unless forced.",
    body=ObliterateRequest | None,
    body_example={"force": False},
    answer=Affected,
    example=_COUNT,
    problems=(*ON_QUEUES, QUEUE_ACTIVE),
)
RETRY_ALL: Final = Operation(
    "POST",
    QUEUE + "/retry",
    "admin",
    "Run all failed jobs again, or all completed ones",
    tag="queues",
    body=RetryRequest | None,
    body_example={"state": "failed"},
    answer=Affected,
    example=_COUNT,
    problems=ON_QUEUES,
)
PROMOTE_ALL: Final = Operation(
    "POST",
    QUEUE + "/promote",
    "admin",
    "Let all delayed jobs run as soon as workers are free",
    tag="queues",
    answer=Affected,
    example=_COUNT,
    problems=ON_QUEUES,
)
FOLLOW: Final = Operation(
    "GET",
    QUEUE + "/events",
    "read",
    "Follow a queue",
    tag="queues",
    description=(
        "Server-Sent Events: `hello`, then everything that happens on the queue, from now or from "
        "`Last-Event-ID`. The names are those of BullMQ's events; an event that BullMQ does not "
        "define is named `custom`. `gap`: events may be missing."
    ),
    answer=QueueEventData,
    example=EVENT_EXAMPLE,
    media_type="text/event-stream",
    problems=ON_QUEUES,
    stream=True,
)
