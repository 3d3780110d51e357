"""The operations that change a BullMQ queue, or a job of it from outside its worker."""

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from jobwire.api.jobs import QUEUE_FULL
from jobwire.api.operation import Operation
from jobwire.api.queue_jobs import (
    JOB,
    MAX_BODY,
    ON_CHANGES,
    ON_JOBS,
    PARENT_NOT_FOUND,
    WRONG_STATE,
    AnyJson,
    JobChanged,
    Ms,
)
from jobwire.api.queues import BAD_JOB, ON_QUEUES, QUEUE

MAX_PROGRESS: Final = 16 * 1024
"""Bytes of a request that sets a progress: each is an event too, and a queue keeps thousands."""

# ── requests ─────────────────────────────────────────────────────────────────────────────────────


class PriorityRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The new priority."""

    priority: Annotated[int, Meta(description="1 is the highest; 0: none, which is before all")]
    lifo: Annotated[bool, Meta(description="before the others of its priority")] = False


class DelayRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The new delay."""

    delay: Annotated[Ms, Meta(description="from now, in milliseconds")]


class DataRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The new data."""

    data: AnyJson


class ProgressRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The new progress."""

    progress: AnyJson
    message: Annotated[str, Meta(description="a line of the job's log")] = ""


class LogRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A line of a job's log."""

    line: str
    keep: Annotated[
        int, Meta(description="how many lines stay; 0: as many as `queues.max_log_lines`")
    ] = 0


class ClearLogsQuery(Struct, frozen=True):
    """The query of a deletion of log lines."""

    keep: Annotated[int, Meta(ge=0, le=1_000_000, description="how many of the newest stay")] = 0


class ConcurrencyRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The concurrency of all workers together."""

    concurrency: Annotated[int | None, Meta(description="null: no limit")]


class RateLimitRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The rate limit of all workers together."""

    max: Annotated[int | None, Meta(description="jobs in `duration`; null: no limit")]
    duration: Ms = 0


class HoldRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """How long workers start nothing."""

    for_ms: Annotated[int, Meta(description="0 ends it")]


class DeduplicationQuery(Struct, frozen=True):
    """Which deduplication id."""

    id: Annotated[str, Meta(min_length=1, max_length=255, examples=["order-17"])]


class TrimRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Which events stay."""

    keep: Annotated[int, Meta(description="about so many of the newest; 0: none")]


# ── answers ──────────────────────────────────────────────────────────────────────────────────────


class SharedLimits(Struct, frozen=True):
    """The limits of all workers together; null: no limit."""

    concurrency: int | None
    rate_limit: Annotated[dict[str, int] | None, Meta(description="`max` jobs in `duration` ms")]


class Held(Struct, frozen=True):
    """How long workers start nothing."""

    for_ms: int


class DeduplicationOwner(Struct, frozen=True):
    """The job that owns a deduplication id; null: none."""

    id: str
    job_id: str | None


class DeduplicationFreed(Struct, frozen=True):
    """Whether the id was owned."""

    id: str
    freed: bool


class EventsTrimmed(Struct, frozen=True):
    """How many events were deleted."""

    count: int


class LogAdded(Struct, frozen=True):
    """How many lines the log has."""

    id: str
    total: int


# ── operations ───────────────────────────────────────────────────────────────────────────────────

_DELAYED: Final[dict[str, Any]] = {"id": "17", "state": "delayed"}
_WAITING: Final[dict[str, Any]] = {"id": "17", "state": "waiting"}

PRIORITY: Final = Operation(
    "PUT",
    JOB + "/priority",
    "submit",
    "Give a job another priority; one that waits takes its new place at once",
    tag="queues",
    body=PriorityRequest,
    body_example={"priority": 1},
    answer=JobChanged,
    example=_WAITING,
    problems=(*ON_JOBS, BAD_JOB),
)
DELAY: Final = Operation(
    "PUT",
    JOB + "/delay",
    "submit",
    "Let a delayed job wait for another time, counted from now",
    tag="queues",
    body=DelayRequest,
    body_example={"delay": 60000},
    answer=JobChanged,
    example=_DELAYED,
    problems=(*ON_JOBS, BAD_JOB, WRONG_STATE),
)
DATA: Final = Operation(
    "PUT",
    JOB + "/data",
    "submit",
    "Replace a job's data",
    tag="queues",
    description="A running attempt keeps the data that it has.",
    body=DataRequest,
    body_example={"data": {"videoId": "v2"}},
    max_body=MAX_BODY,
    answer=JobChanged,
    example=_DELAYED,
    problems=(*ON_JOBS, BAD_JOB, QUEUE_FULL),
)
PROGRESS: Final = Operation(
    "PUT",
    JOB + "/progress",
    "submit",
    "Set a job's progress from outside its worker: a number, or any other JSON",
    tag="queues",
    body=ProgressRequest,
    body_example={"progress": 40, "message": "scene 2 of 5"},
    max_body=MAX_PROGRESS,
    answer=JobChanged,
    example=_WAITING,
    problems=(*ON_JOBS, BAD_JOB, QUEUE_FULL),
)
ADD_LOG: Final = Operation(
    "POST",
    JOB + "/logs",
    "submit",
    "Append a line to a job's log",
    tag="queues",
    description="A line is cut at `queues.max_log_chars`.",
    body=LogRequest,
    body_example={"line": "checked by hand"},
    answer=LogAdded,
    example={"id": "17", "total": 3},
    problems=(*ON_JOBS, BAD_JOB, QUEUE_FULL),
)
CLEAR_LOGS: Final = Operation(
    "DELETE",
    JOB + "/logs",
    "submit",
    "Delete a job's log, or its oldest lines",
    tag="queues",
    query=ClearLogsQuery,
    status=204,
    problems=ON_JOBS,
)
DETACH: Final = Operation(
    "POST",
    JOB + "/detach",
    "submit",
    "Let the job's parent not wait for it any more",
    tag="queues",
    description="The job itself continues. Its parent's queue must be the caller's too.",
    answer=JobChanged,
    example=_WAITING,
    problems=(*ON_JOBS, WRONG_STATE, PARENT_NOT_FOUND),
)
REMOVE_CHILDREN: Final = Operation(
    "DELETE",
    JOB + "/children",
    "submit",
    "Delete the children that a job waits for and that no worker has",
    tag="queues",
    answer=JobChanged,
    example=_WAITING,
    problems=ON_CHANGES,
)

_LIMITS: Final[dict[str, Any]] = {
    "concurrency": 10,
    "rate_limit": {"max": 100, "duration": 60000},
}

CONCURRENCY: Final = Operation(
    "PUT",
    QUEUE + "/concurrency",
    "admin",
    "Set or remove how many jobs of a queue all workers together run at a time",
    tag="queues",
    body=ConcurrencyRequest,
    body_example={"concurrency": 10},
    answer=SharedLimits,
    example=_LIMITS,
    problems=(*ON_QUEUES, BAD_JOB),
)
RATE_LIMIT: Final = Operation(
    "PUT",
    QUEUE + "/rate-limit",
    "admin",
    "Set or remove how many jobs of a queue all workers together start in a time",
    tag="queues",
    body=RateLimitRequest,
    body_example={"max": 100, "duration": 60000},
    answer=SharedLimits,
    example=_LIMITS,
    problems=(*ON_QUEUES, BAD_JOB),
)
HOLD: Final = Operation(
    "POST",
    QUEUE + "/rate-limit",
    "admin",
    "Let workers that have a rate limit start nothing for a while",
    tag="queues",
    body=HoldRequest,
    body_example={"for_ms": 60000},
    answer=Held,
    example={"for_ms": 60000},
    problems=(*ON_QUEUES, BAD_JOB),
)
DEDUPLICATION: Final = Operation(
    "GET",
    QUEUE + "/deduplication",
    "read",
    "The job that owns a deduplication id",
    tag="queues",
    query=DeduplicationQuery,
    answer=DeduplicationOwner,
    example={"id": "order-17", "job_id": "17"},
    problems=ON_QUEUES,
)
FREE_DEDUPLICATION: Final = Operation(
    "DELETE",
    QUEUE + "/deduplication",
    "submit",
    "Let the next job of a deduplication id be added",
    tag="queues",
    query=DeduplicationQuery,
    answer=DeduplicationFreed,
    example={"id": "order-17", "freed": True},
    problems=ON_QUEUES,
)
TRIM_EVENTS: Final = Operation(
    "POST",
    QUEUE + "/events/trim",
    "admin",
    "Delete the oldest events of a queue",
    tag="queues",
    body=TrimRequest,
    body_example={"keep": 1000},
    answer=EventsTrimmed,
    example={"count": 9000},
    problems=(*ON_QUEUES, BAD_JOB),
)
