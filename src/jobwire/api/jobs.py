"""The operations of jobs. JSON of callers and handlers is passed byte for byte."""

from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from jobwire.api.operation import Operation
from jobwire.api.problems import UNAVAILABLE, ProblemKind

JOBS: Final = "/v1/jobs"
DEFAULT_QUEUE: Final = "default"
MAX_PAGE: Final = 200
_CURSOR: Final = r"^[0-9]{1,16}-[\x21-\x7e]{1,512}$"

StatusName = Literal["queued", "running", "done", "error", "canceled"]
STATUSES: Final = ("queued", "running", "done", "error", "canceled")
Status = Annotated[str, Meta(extra_json_schema={"enum": list(STATUSES)})]
Anything = Annotated[Any, Meta(extra_json_schema={})]
ErrorValue = Annotated[Any, Meta(extra_json_schema={"type": ["object", "string", "null"]})]

# ── requests ─────────────────────────────────────────────────────────────────────────────────────


class JobFilter(Struct, frozen=True):
    """The query of a list of jobs."""

    status: Annotated[
        StatusName | None, Meta(description="only jobs in this state", examples=["error"])
    ] = None
    task: Annotated[str, Meta(description="only jobs of this task", examples=["chat"])] = ""
    q: Annotated[
        str,
        Meta(
            max_length=200,
            description="only jobs with this text in their id or task, in any case",
            examples=["cha"],
        ),
    ] = ""
    delayed: Annotated[
        Literal["true", "false"] | None,
        Meta(
            description="`true`: of the waiting jobs only those that are not due yet; `false`: "
            "only those in the queue. Selects waiting jobs.",
            examples=["true"],
        ),
    ] = None
    limit: Annotated[
        int, Meta(ge=1, le=MAX_PAGE, description="how many; default 50", examples=[20])
    ] = 50
    cursor: Annotated[
        Annotated[str, Meta(pattern=_CURSOR)] | None,
        Meta(
            description="`cursor` of the previous page",
            examples=["1767225600000-0b7c1d52-7d0e-4c55-9a0f-2f6d1c1f7a10"],
            extra={"fault": "is not a cursor of a list"},
        ),
    ] = None
    tenant: Annotated[
        str | None,
        Meta(
            description="for a key of the tenant `*`: the jobs of this tenant",
            examples=["default"],
        ),
    ] = None


# ── answers ──────────────────────────────────────────────────────────────────────────────────────


class JobLineBody(Struct, frozen=True, kw_only=True):
    """A job in a list: without members that may be large."""

    job_id: str
    task: str
    status: Status
    error: ErrorValue
    created_ts: int
    started_ts: int | None = None
    updated_ts: int
    attempt: int = 1
    worker: str | None = None
    progress: Anything
    cancel_ts: int | None = None
    due_ts: Annotated[int | None, Meta(description="when a delayed job is due")] = None
    retry_of: str | None = None
    queue: str = DEFAULT_QUEUE


class JobList(Struct, frozen=True):
    """A page of jobs, newest first."""

    jobs: list[JobLineBody]
    scanned: Annotated[int, Meta(description="how many jobs were scanned for this page")]
    total: Annotated[
        int, Meta(description="how many jobs are stored; may count some that have just expired")
    ]
    cursor: Annotated[
        str | None, Meta(description="where the next page begins; null on the last page")
    ]


class CancelAnswerBody(Struct, frozen=True):
    """The result of a cancel request."""

    job_id: str
    outcome: Annotated[
        str,
        Meta(
            description="`canceled`: the job has ended. `canceling`: its worker was notified. "
            "`cancel_requested`: its worker is not ours and may ignore the request.",
            extra_json_schema={"enum": ["canceled", "canceling", "cancel_requested"]},
        ),
    ]


# ── problems ─────────────────────────────────────────────────────────────────────────────────────

JOB_NOT_FOUND: Final = ProblemKind(
    "job_not_found", 404, "there is no such job; a job is removed when its time to live is over"
)
BAD_IDEMPOTENCY_KEY: Final = ProblemKind(
    "bad_idempotency_key", 400, "Idempotency-Key must be 1 to 255 printable ASCII characters"
)
UNKNOWN_TASK: Final = ProblemKind(
    "unknown_task", 422, "no worker has or had this task; GET /v1/tasks lists the known tasks"
)
INVALID_PAYLOAD: Final = ProblemKind(
    "invalid_payload", 422, "the payload must be a strict JSON object, at most 64 levels deep"
)
PAYLOAD_TOO_LARGE: Final = ProblemKind(
    "payload_too_large", 413, "the payload must not have more than 204800 bytes"
)
IDEMPOTENCY_MISMATCH: Final = ProblemKind(
    "idempotency_mismatch", 409, "this Idempotency-Key was used with another request body"
)
QUEUE_NOT_FOUND: Final = ProblemKind(
    "queue_not_found", 404, "there is no such queue; GET /v1/jobs/queues lists the queues"
)
UNKNOWN_QUEUE: Final = ProblemKind(
    "unknown_queue", 422, "the job cannot be put into this queue; GET /v1/jobs/queues lists them"
)
QUEUE_FULL: Final = ProblemKind("queue_full", 429, "too many jobs are waiting; retry later")
ALREADY_FINISHED: Final = ProblemKind("already_finished", 409, "the job has already ended")
NOT_RETRYABLE: Final = ProblemKind(
    "not_retryable", 409, "only a failed or canceled job can be retried"
)
CONTRACT_VIOLATED: Final = ProblemKind(
    "contract_violated", 502, "another program has written an invalid job"
)

# ── operations ───────────────────────────────────────────────────────────────────────────────────

_ID: Final = "0b7c1d52-7d0e-4c55-9a0f-2f6d1c1f7a10"
CANCEL: Final = Operation(
    "POST",
    JOBS + "/{id}/cancel",
    "submit",
    "Cancel a job",
    tag="jobs",
    answer=CancelAnswerBody,
    example={"job_id": _ID, "outcome": "canceled"},
    also={202: "The job is running: its worker was asked to stop"},
    problems=(JOB_NOT_FOUND, ALREADY_FINISHED, CONTRACT_VIOLATED, UNAVAILABLE),
)

LIST: Final = Operation(
    "GET",
    JOBS,
    "read",
    "Jobs, newest first",
    tag="jobs",
    description="At most 1000 jobs are scanned for a page, however few of them match.",
    query=JobFilter,
    answer=JobList,
    example={
        "jobs": [
            {
                "job_id": _ID,
                "task": "chat",
                "status": "done",
                "error": None,
                "created_ts": 1767225600000,
                "started_ts": 1767225600004,
                "updated_ts": 1767225601204,
                "attempt": 1,
                "worker": "jobwire-host-4711-a1b2c3d4",
                "progress": None,
                "cancel_ts": None,
                "due_ts": None,
                "retry_of": None,
                "queue": "default",
            }
        ],
        "scanned": 1,
        "total": 1,
        "cursor": None,
    },
    problems=(UNAVAILABLE,),
)
DELETE: Final = replace(CANCEL, method="DELETE", path=JOBS + "/{id}")
