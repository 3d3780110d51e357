"""What clients send and get about jobs, as types; the OpenAPI document is made from them.

Strict in what is sent, so that a misspelt member is told and not ignored. Members that hold JSON
of somebody else's making (payload, result, error) travel as they are, byte for byte.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from jobwire.job.messages import JobRequest, Submitted
from jobwire.wires.streams.codec import Record, json_or_text, readable
from jobwire.wires.streams.contract import MAX_TTL_S, RAW, Status

MAX_BATCH: Final = 1_000

TaskName = Annotated[str, Meta(min_length=1, max_length=200)]
Object = Annotated[Raw, Meta(extra_json_schema={"type": "object"})]
Anything = Annotated[Raw, Meta(extra_json_schema={})]
# In JSON 5.0 is a whole number as well.
Whole = Annotated[float, Meta(multiple_of=1, extra_json_schema={"type": "integer"})]
StatusName = Literal["queued", "running", "done", "error", "canceled"]
assert set(StatusName.__args__) == set(Status)

# ── asked ────────────────────────────────────────────────────────────────────────────────────────


class JobRequestBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A job that somebody wants done."""

    task: TaskName
    payload: Object
    ttl_s: Annotated[Whole, Meta(ge=1, le=MAX_TTL_S)] | None = None
    delay_s: Annotated[float, Meta(ge=0, le=MAX_TTL_S)] | None = None
    max_attempts: Annotated[Whole, Meta(ge=1, le=1000)] | None = None
    timeout_s: Annotated[float, Meta(gt=0, le=MAX_TTL_S)] | None = None


class BatchItem(JobRequestBody, frozen=True, forbid_unknown_fields=True):
    """One of many; each may have an idempotency key of its own."""

    idempotency_key: Annotated[str, Meta(pattern=r"^[\x20-\x7e]{1,255}$")] | None = None


_Item = Annotated[
    Raw,
    Meta(
        description="as the body of `POST /v1/jobs`, and perhaps `idempotency_key`",
        extra_json_schema={},
    ),
]


class Batch(Struct, frozen=True, forbid_unknown_fields=True):
    """Many jobs at once; what is wrong with one of them is told in its result."""

    jobs: Annotated[list[_Item], Meta(min_length=1, max_length=MAX_BATCH)]


class RawBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """The same, with items not read yet: one that is wrong must not spoil the others."""

    jobs: Raw


# ── answered ─────────────────────────────────────────────────────────────────────────────────────


_Error = Annotated[Raw, Meta(extra_json_schema={"type": ["object", "string", "null"]})]


class JobBody(Struct, frozen=True, kw_only=True):
    """A job as it stands. Times are milliseconds since 1970, of the server's clock. A key without
    the scope `read` gets it without `payload`, `result`, `error` and `progress`."""

    job_id: str
    task: str
    status: StatusName
    payload: Object | UnsetType = UNSET
    result: Anything | UnsetType = UNSET
    error: _Error | UnsetType = UNSET
    created_ts: int
    started_ts: int | None = None
    updated_ts: int
    ttl_s: int
    attempt: int = 1
    max_attempts: int | None = None
    timeout_s: float | None = None
    worker: str | None = None
    progress: Anything | UnsetType = UNSET
    cancel_ts: int | None = None
    retry_of: str | None = None
    traceback: str | UnsetType = UNSET

    def without_content(self) -> "JobBody":
        """The same for a key without the scope `read`: nothing that caller or handler wrote."""
        return msgspec.structs.replace(
            self, payload=UNSET, result=UNSET, error=UNSET, progress=UNSET, traceback=UNSET
        )


class JobLineBody(Struct, frozen=True, kw_only=True):
    """A job in a list: without what may be large."""

    job_id: str
    task: str
    status: StatusName
    error: _Error
    created_ts: int
    started_ts: int | None = None
    updated_ts: int
    attempt: int = 1
    worker: str | None = None
    progress: Anything
    cancel_ts: int | None = None
    retry_of: str | None = None


class JobList(Struct, frozen=True):
    """A page of jobs, newest first."""

    jobs: list[JobLineBody]
    scanned: Annotated[int, Meta(description="how many jobs were looked at for this page")]
    cursor: Annotated[
        str | None, Meta(description="where the next page begins; null where this was the last")
    ]


_ProblemDocument = Annotated[Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/Problem"})]


class BatchResultBody(Struct, frozen=True, omit_defaults=True):
    """What became of one item."""

    status: Annotated[int, Meta(description="as the answer would have been to this job alone")]
    job_id: str | UnsetType = UNSET
    replayed: bool = False
    problem: _ProblemDocument | UnsetType = UNSET


class BatchAnswerBody(Struct, frozen=True):
    """What became of each item, in their job_request."""

    results: list[BatchResultBody]


CancelOutcome = Literal["canceled", "canceling", "cancel_requested"]


class CancelAnswerBody(Struct, frozen=True):
    """What became of a wish to cancel."""

    job_id: str
    outcome: Annotated[
        CancelOutcome,
        Meta(
            description="`canceled`: it has ended. `canceling`: its worker was told. "
            "`cancel_requested`: it runs on a worker that is not ours and may not listen."
        ),
    ]


class ServerSentEvent(Struct, frozen=True):
    """Each event of a stream; its `data` is JSON."""

    event: str
    data: str
    id: Annotated[
        str | UnsetType, Meta(description="where to go on after; `hello` and `gap` have none")
    ] = UNSET


class HelloBody(Struct, frozen=True):
    """The first event of every stream; it has no id."""

    job_id: str
    status: StatusName


_NULL: Final = Raw(b"null")
_QUEUED: Final = Status.QUEUED.value


def job(record: Record) -> JobBody:
    """A job as its reader gets it; what a stranger wrote badly is shown as the text it is."""
    return JobBody(
        job_id=readable(record.job_id),
        task=readable(record.task),
        status=record.status.value,
        payload=_object(record.payload_json),
        result=Raw(json_or_text(record.result_json)),
        error=Raw(json_or_text(record.error_json)),
        created_ts=record.created_ms,
        started_ts=record.started_ms,
        updated_ts=record.updated_ms,
        ttl_s=record.ttl_s,
        attempt=record.attempt,
        max_attempts=record.max_attempts,
        timeout_s=record.timeout_s,
        worker=readable(record.worker) or None,
        progress=Raw(json_or_text(record.progress_json)),
        cancel_ts=record.cancel_ms,
        retry_of=readable(record.retry_of) or None,
        traceback=readable(record.traceback) or UNSET,
    )


def new_job(job_request: JobRequest, made: Submitted, ttl_s: int) -> JobBody:
    """A job that was made this moment."""
    return JobBody(
        job_id=made.job_id,
        task=job_request.task,
        status=_QUEUED,
        payload=Raw(job_request.payload_json.encode()),
        result=_NULL,
        error=_NULL,
        created_ts=made.created_ms,
        updated_ts=made.created_ms,
        ttl_s=ttl_s,
        max_attempts=job_request.max_attempts,
        timeout_s=job_request.timeout_s,
        progress=_NULL,
        retry_of=job_request.retry_of,
    )


def line(record: Record) -> JobLineBody:
    """A job as a list shows it."""
    return JobLineBody(
        job_id=readable(record.job_id),
        task=readable(record.task),
        status=record.status.value,
        error=Raw(json_or_text(record.error_json)),
        created_ts=record.created_ms,
        started_ts=record.started_ms,
        updated_ts=record.updated_ms,
        attempt=record.attempt,
        worker=readable(record.worker) or None,
        progress=Raw(json_or_text(record.progress_json)),
        cancel_ts=record.cancel_ms,
        retry_of=readable(record.retry_of) or None,
    )


def _object(text: str) -> Raw:
    """J-38 for readers: the payload, or `{"_raw": text}` where it is no object."""
    raw = json_or_text(text)
    if raw.lstrip(b" \t\r\n").startswith(b"{"):
        return Raw(raw)
    return Raw(msgspec.json.encode({RAW: readable(text)}))
