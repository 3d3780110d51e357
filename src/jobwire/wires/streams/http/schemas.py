"""Request and response bodies of jobs, as types; the OpenAPI document is generated from them.

Request bodies are strict: an unknown member is an error. Members with JSON of callers and handlers
(payload, result, error) are passed byte for byte.
"""

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from jobwire.api.jobs import JobLineBody, StatusName
from jobwire.job.messages import JobRequest, Submitted
from jobwire.wires.streams.codec import Record, json_or_text, readable
from jobwire.wires.streams.contract import DEFAULT_QUEUE, MAX_TTL_S, QUEUE_NAME, RAW, Status

MAX_BATCH: Final = 1_000

TaskName = Annotated[str, Meta(min_length=1, max_length=200)]
Object = Annotated[Raw, Meta(extra_json_schema={"type": "object"})]
Anything = Annotated[Raw, Meta(extra_json_schema={})]
# In JSON 5.0 is a whole number as well.
Whole = Annotated[float, Meta(multiple_of=1, extra_json_schema={"type": "integer"})]

# ── requests ─────────────────────────────────────────────────────────────────────────────────────


class JobRequestBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A job to submit."""

    task: TaskName
    payload: Object
    ttl_s: Annotated[Whole, Meta(ge=1, le=MAX_TTL_S)] | None = None
    delay_s: Annotated[float, Meta(ge=0, le=MAX_TTL_S)] | None = None
    max_attempts: Annotated[Whole, Meta(ge=1, le=1000)] | None = None
    timeout_s: Annotated[float, Meta(gt=0, le=MAX_TTL_S)] | None = None
    queue: Annotated[str, Meta(pattern=f"^{QUEUE_NAME.pattern}$")] | None = None


class BatchItem(JobRequestBody, frozen=True, forbid_unknown_fields=True):
    """An item of a batch; it may have its own idempotency key."""

    idempotency_key: Annotated[str, Meta(pattern=r"^[\x20-\x7e]{1,255}$")] | None = None


_Item = Annotated[
    Raw,
    Meta(
        description="as the body of `POST /v1/jobs`, optionally with `idempotency_key`",
        extra_json_schema={},
    ),
]


class Batch(Struct, frozen=True, forbid_unknown_fields=True):
    """Many jobs at once; a fault in one of them is reported in its result."""

    jobs: Annotated[list[_Item], Meta(min_length=1, max_length=MAX_BATCH)]


class RawBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """The same, with items not parsed yet: a fault in one must not affect the others."""

    jobs: Raw


# ── responses ────────────────────────────────────────────────────────────────────────────────────


_Error = Annotated[Raw, Meta(extra_json_schema={"type": ["object", "string", "null"]})]


class JobBody(Struct, frozen=True, kw_only=True):
    """The current state of a job. Times are milliseconds since 1970, by Valkey's clock. Without
    the scope `read`, `payload`, `result`, `error` and `progress` are omitted. `exception_type`,
    `exception_message` and `traceback` are those of the latest failed attempt; they need the scope
    `admin`."""

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
    due_ts: Annotated[int | None, Meta(description="when a delayed job is due")] = None
    retry_of: str | None = None
    queue: str = DEFAULT_QUEUE
    exception_type: str | UnsetType = UNSET
    exception_message: str | UnsetType = UNSET
    traceback: str | UnsetType = UNSET

    def without_content(self) -> "JobBody":
        """The same for a key without the scope `read`: no data of caller or handler."""
        return msgspec.structs.replace(
            self.without_exception(), payload=UNSET, result=UNSET, error=UNSET, progress=UNSET
        )

    def without_exception(self) -> "JobBody":
        """The same for a key without the scope `admin`: an exception may quote secrets (J-55)."""
        if self.traceback is UNSET and self.exception_type is UNSET:
            return self
        return msgspec.structs.replace(
            self, exception_type=UNSET, exception_message=UNSET, traceback=UNSET
        )


_ProblemDocument = Annotated[Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/Problem"})]


class BatchResultBody(Struct, frozen=True, omit_defaults=True):
    """The result of one item."""

    status: Annotated[int, Meta(description="the status that `POST /v1/jobs` would return")]
    job_id: str | UnsetType = UNSET
    replayed: bool = False
    problem: _ProblemDocument | UnsetType = UNSET


class BatchAnswerBody(Struct, frozen=True):
    """The result of each item, in order."""

    results: list[BatchResultBody]


class ServerSentEvent(Struct, frozen=True):
    """Each event of a stream; its `data` is JSON."""

    event: str
    data: str
    id: Annotated[
        str | UnsetType, Meta(description="position to resume after; not on `hello` and `gap`")
    ] = UNSET


class HelloBody(Struct, frozen=True):
    """The first event of every stream; it has no id."""

    job_id: str
    status: StatusName


_NULL: Final = Raw(b"null")
_QUEUED: Final = Status.QUEUED.value


def job(record: Record) -> JobBody:
    """A job for the response; invalid JSON of other programs is shown as text."""
    return JobBody(
        job_id=readable(record.job_id),
        task=readable(record.task),
        status=record.status.value,
        payload=_object(record.payload_json),
        result=_json(record.result_json),
        error=_json(record.error_json),
        created_ts=record.created_ms,
        started_ts=record.started_ms,
        updated_ts=record.updated_ms,
        ttl_s=record.ttl_s,
        attempt=record.attempt,
        max_attempts=record.max_attempts,
        timeout_s=record.timeout_s,
        worker=readable(record.worker) if record.worker else None,
        progress=_json(record.progress_json),
        cancel_ts=record.cancel_ms,
        due_ts=record.due_ms,
        retry_of=readable(record.retry_of) if record.retry_of else None,
        queue=readable(record.queue),
        exception_type=readable(record.exception_type) if record.exception_type else UNSET,
        exception_message=readable(record.exception_message) if record.exception_message else UNSET,
        traceback=readable(record.traceback) if record.traceback else UNSET,
    )


def new_job(job_request: JobRequest, made: Submitted, ttl_s: int) -> JobBody:
    """A job that was just submitted."""
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
        queue=job_request.queue or DEFAULT_QUEUE,
    )


def line(record: Record) -> JobLineBody:
    """A job for a list."""
    return JobLineBody(
        job_id=readable(record.job_id),
        task=readable(record.task),
        status=record.status.value,
        error=_json(record.error_json),
        created_ts=record.created_ms,
        started_ts=record.started_ms,
        updated_ts=record.updated_ms,
        attempt=record.attempt,
        worker=readable(record.worker) or None,
        progress=_json(record.progress_json),
        cancel_ts=record.cancel_ms,
        due_ts=record.due_ms,
        retry_of=readable(record.retry_of) or None,
        queue=readable(record.queue),
    )


def _json(text: str) -> Raw:
    return Raw(json_or_text(text)) if text else _NULL


def _object(text: str) -> Raw:
    """J-38: the payload, or `{"_raw": text}` if it is not an object."""
    raw = json_or_text(text)
    if raw.lstrip(b" \t\r\n").startswith(b"{"):
        return Raw(raw)
    return Raw(msgspec.json.encode({RAW: readable(text)}))
