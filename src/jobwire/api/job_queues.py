"""The operations of the queues of jobs."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from jobwire.api.jobs import JOBS, QUEUE_NAME
from jobwire.api.operation import Operation
from jobwire.api.problems import UNAVAILABLE, ProblemKind

# All of them stand in the place of a job's id: no job has the id `queues`.
QUEUES: Final = f"{JOBS}/queues"
_OF_QUEUE: Final = {"queue": Annotated[str, Meta(pattern=f"^{QUEUE_NAME}$")]}

# ── answers ───────────────────────────────────────────────────────────────────────────────────────


class JobQueueInfo(Struct, frozen=True, kw_only=True):
    """One queue."""

    name: str
    paused: Annotated[bool, Meta(description="whether workers start none of its jobs")]
    waiting: int
    running: Annotated[int, Meta(description="leased to a worker")]
    oldest_waiting_ms: int | None
    workers: Annotated[
        int, Meta(description="live workers that read it; foreign ones count for the default queue")
    ]


class JobQueues(Struct, frozen=True, omit_defaults=True):
    """All queues, the default one first."""

    queues: list[JobQueueInfo]
    incomplete: Annotated[
        list[int], Meta(description="shards that did not answer; absent if all did")
    ] = []


class PauseAnswer(Struct, frozen=True):
    """The state of a queue after pause or resume."""

    queue: str
    paused: bool
    warning: Annotated[str | None, Meta(description="programs that the pause does not stop")]


class PurgeFilter(Struct, frozen=True):
    """The query of a purge."""

    suspended: Annotated[
        Literal["true", "false"],
        Meta(description="`true`: also jobs that are suspended", examples=["true"]),
    ] = "false"


class PurgeAnswer(Struct, frozen=True):
    """The result of a purge."""

    queue: str
    canceled: Annotated[int, Meta(description="jobs that waited or were delayed")]


# ── problems ──────────────────────────────────────────────────────────────────────────────────────

QUEUE_NOT_FOUND: Final = ProblemKind(
    "queue_not_found", 404, "there is no such queue; GET /v1/jobs/queues lists the queues"
)

# ── operations ────────────────────────────────────────────────────────────────────────────────────

LIST: Final = Operation(
    "GET",
    QUEUES,
    "read",
    "The queues",
    tag="jobs",
    answer=JobQueues,
    example={
        "queues": [
            {
                "name": "default",
                "paused": False,
                "waiting": 0,
                "running": 1,
                "oldest_waiting_ms": None,
                "workers": 2,
            }
        ]
    },
    problems=(UNAVAILABLE,),
    hides=True,
)
PAUSE: Final = Operation(
    "POST",
    QUEUES + "/{queue}/pause",
    "admin",
    "Pause a queue: workers start none of its jobs",
    tag="jobs",
    parameter_types=_OF_QUEUE,
    description="Running jobs continue, and new ones are accepted and wait.",
    answer=PauseAnswer,
    example={"queue": "billing", "paused": True, "warning": None},
    problems=(QUEUE_NOT_FOUND, UNAVAILABLE),
    hides=True,
)
RESUME: Final = Operation(
    "POST",
    QUEUES + "/{queue}/resume",
    "admin",
    "Resume a paused queue",
    tag="jobs",
    parameter_types=_OF_QUEUE,
    answer=PauseAnswer,
    example={"queue": "billing", "paused": False, "warning": None},
    problems=(QUEUE_NOT_FOUND, UNAVAILABLE),
    hides=True,
)
PURGE: Final = Operation(
    "POST",
    QUEUES + "/{queue}/purge",
    "admin",
    "Cancel all jobs of a queue that wait or are delayed",
    tag="jobs",
    parameter_types=_OF_QUEUE,
    description="With keys of several tenants, a key cancels the jobs of its own tenant.",
    query=PurgeFilter,
    answer=PurgeAnswer,
    example={"queue": "billing", "canceled": 12},
    problems=(QUEUE_NOT_FOUND, UNAVAILABLE),
    hides=True,
)
