"""The operations that change a job of a BullMQ queue from outside its worker."""

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
from jobwire.api.queues import BAD_JOB

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


# ── answers ──────────────────────────────────────────────────────────────────────────────────────


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
