"""Texts of the wire to values of the domain model, and back.

The queue and the engine call it. Reading is tolerant: a hash of a foreign program may lack our
extras, an entry's payload may be anything. Writing is strict.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Final, NamedTuple, cast

import msgspec

from jobwire.job.errors import ContractError
from jobwire.job.messages import (
    RAW,
    JobError,
    JobId,
    Json,
    MissingRequirement,
    ServedQueue,
    TaskDefinition,
)
from jobwire.json_depth import bounded, has_large_number
from jobwire.systems.jobs.contract import (
    DEFAULT_QUEUE,
    MAX_EVENT_BYTES,
    Code,
    Extra,
    Field,
    RecordField,
    Status,
)
from jobwire.valkey import Reply

_MAX_MESSAGE: Final = 2_000
_MAX_MISSING: Final = 16
_MAX_TRACEBACK: Final = 16_384
_MAX_QUEUES: Final = 1_000
_STATUSES: Final = {status.value: status for status in Status}
_decode = bounded(msgspec.json.Decoder().decode)
_decode_raw = bounded(msgspec.json.Decoder(msgspec.Raw).decode)
_encode = msgspec.json.Encoder().encode


class ErrorObject(msgspec.Struct):
    """J-6: why a job failed; public."""

    code: str
    message: str
    retryable: bool
    attempt: int
    partial: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class ShortError(msgspec.Struct):
    """The short form, in a `retrying` event."""

    code: str
    message: str


class Retrying(msgspec.Struct):
    """J-4: the data of a `retrying` event."""

    attempt: int
    delay_ms: int
    error: ShortError


class FollowingTask(msgspec.Struct):
    """D-23: the job that follows a failed one."""

    task: str
    queue: str


class RegistrationTask(msgspec.Struct, omit_defaults=True):
    """A task in a worker's registration; `null` where there is no schema or example."""

    schema: msgspec.Raw
    example: msgspec.Raw
    queue: str = DEFAULT_QUEUE
    on_failure: FollowingTask | None = None


class RegistrationQueue(msgspec.Struct):
    """A queue in a worker's registration."""

    wire: str
    queue: str
    tasks: tuple[str, ...]


class RegistrationRequirement(msgspec.Struct, omit_defaults=True):
    """A missing requirement in a worker's registration."""

    part: str
    wrong: str
    fix: str = ""
    cure: str = ""
    """The former name of `fix`, read from workers of an earlier version."""


class WaitData(msgspec.Struct):
    """D-8: the data of a `suspended` event."""

    kind: str = msgspec.field(name="for")
    name: str
    until: int
    more: int = 0


_decode_waits: Final = msgspec.json.Decoder(WaitData).decode
_decode_queues: Final = bounded(msgspec.json.Decoder(list[RegistrationQueue]).decode)
_decode_missing: Final = bounded(msgspec.json.Decoder(list[RegistrationRequirement]).decode)


class Record(NamedTuple):
    """The fields of a job hash."""

    job_id: JobId
    task: str
    payload_json: str
    status: Status
    created_ms: int
    updated_ms: int
    ttl_s: int
    result_json: str
    error_json: str
    attempt: int
    deliveries: int
    max_attempts: int | None
    timeout_s: float | None
    worker: str
    entry_id: str
    started_ms: int | None
    cancel_ms: int | None
    tenant: str
    traceparent: str
    progress_json: str
    retry_of: str
    exception_type: str
    exception_message: str
    traceback: str
    fingerprint: str
    queue: str
    steps: int = 0
    on_failure: str = ""
    failure_of: str = ""
    waits_for: str = ""
    parent: str = ""
    deadline_s: float | None = None
    due_ms: int | None = None
    """When a delayed job is due. Not in the hash: only set where it was read from
    `jobs:delayed`."""


_QUEUED: Final = Status.QUEUED
_RECORD_FIELDS: Final = tuple(
    name.value
    for name in (
        *(Field.JOB_ID, Field.TASK, Field.PAYLOAD, Field.STATUS, Field.CREATED_TS),
        *(Field.UPDATED_TS, Field.TTL_S, Field.RESULT, Field.ERROR),
        *(Extra.ATTEMPT, Extra.DELIVERIES, Extra.MAX_ATTEMPTS, Extra.TIMEOUT_S, Extra.WORKER),
        *(Extra.ENTRY_ID, Extra.STARTED_TS, Extra.CANCEL_TS, Extra.TENANT, Extra.TRACEPARENT),
        *(Extra.PROGRESS, Extra.RETRY_OF, Extra.EXCEPTION_TYPE, Extra.EXCEPTION_MESSAGE),
        *(Extra.TRACEBACK, Extra.FINGERPRINT, Extra.QUEUE, Extra.STEPS, Extra.ON_FAILURE),
        *(Extra.FAILURE_OF, Extra.WAITS_FOR, Extra.PARENT, Extra.DEADLINE_S),
    )
)
"""In the order of Record. On the hot path a plain text is cheaper than an enum member."""


def read_record(reply: Reply) -> Record | None:
    """The reply to HGETALL; None where there is no such job."""
    if not reply:
        return None
    values = map(cast("dict[str, str]", reply).get, _RECORD_FIELDS)
    job_id, task, payload, status, created, updated, ttl, result, error, *extras = values
    attempt, deliveries, max_attempts, timeout, worker, entry, started, canceled, *texts = extras
    tenant, traceparent, progress, retry_of, cause, message, trace, *others = texts
    fingerprint, queue, steps, on_failure, failure_of, waits_for, parent, deadline = others
    return Record(
        JobId(job_id or ""),
        task or "",
        payload or "",
        _QUEUED if status is None else read_status(status),
        number(created) or 0,
        number(updated) or 0,
        number(ttl) or 0,
        result or "",
        error or "",
        number(attempt) or 1,
        number(deliveries) or 0,
        number(max_attempts),
        seconds(timeout) if timeout else None,
        worker or "",
        entry or "",
        number(started),
        number(canceled),
        tenant or "",
        traceparent or "",
        progress or "",
        retry_of or "",
        cause or "",
        message or "",
        trace or "",
        fingerprint or "",
        DEFAULT_QUEUE if queue is None else queue,
        number(steps) or 0,
        on_failure or "",
        failure_of or "",
        waits_for or "",
        parent or "",
        seconds(deadline) if deadline else None,
    )


def read_submitted(text: str) -> tuple[str, str]:
    """Id and task of a child, from the record of its parent; empty for any other text."""
    try:
        return msgspec.json.decode(text, type=tuple[str, str])
    except (msgspec.DecodeError, ValueError):
        return "", ""


def open_children(fields: Set[str]) -> list[str]:
    """Of the fields of a record, those of children without an end."""
    return [
        field
        for field in fields
        if field.startswith(RecordField.CHILD)
        and RecordField.ENDED_CHILD + field.removeprefix(RecordField.CHILD) not in fields
    ]


def read_waits_for(text: str) -> "WaitData | None":
    """D-8: what a suspended job waits for; None for any other text."""
    try:
        return _decode_waits(text) if text else None
    except (msgspec.DecodeError, ValueError):
        return None


def read_child(fields: Mapping[str, str], name: str) -> str:
    """The id of a child, from the field of its parent's record that has its end."""
    field = RecordField.CHILD + name.removeprefix(RecordField.ENDED_CHILD)
    return read_submitted(fields.get(field, ""))[0]


def read_status(text: str) -> Status:
    """One of the five statuses; ContractError for anything else."""
    status = _STATUSES.get(text)
    if status is None:
        raise ContractError("a job has an unknown status", clause="J-5", detail=text)
    return status


def read_payload(text: str) -> Json:
    """J-38: the JSON object, or `{"_raw": text}` for any other text."""
    try:
        value = cast(Json, _decode(text))
    except (msgspec.DecodeError, ValueError):
        value = None
    if isinstance(value, dict):
        return value
    # Invalid UTF-8 arrives as lone surrogates, which no handler could encode.
    return {RAW: readable(text)}


def readable(text: str) -> str:
    """Text of a foreign program, which may hold invalid UTF-8, as text that can be encoded."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def written(text: str) -> str:
    """Our text; a lone surrogate, which cannot be encoded, becomes a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def json_or_text(text: str) -> bytes:
    """A JSON text of the wire unchanged, for a response; any other text as a JSON string."""
    if not text:
        return b"null"
    try:
        # Fails for invalid bytes and lone surrogates.
        whole = text.encode()
        _decode_raw(whole)
    except (msgspec.DecodeError, ValueError):
        return _encode(readable(text))
    return _encode(text) if has_large_number(whole) else whole


def write_error(error: JobError, attempt: int) -> str:
    """J-6: the error object of the hash and the event."""
    body = ErrorObject(_clip(error.code), _clip(error.message), error.retryable, attempt)
    without = _encode(body)
    if not error.partial_json:
        return without.decode()
    body.partial = msgspec.Raw(error.partial_json.encode())
    whole = _encode(body)
    # An event has a size limit (J-4); a truncated partial result would not be JSON.
    return (whole if len(whole) <= MAX_EVENT_BYTES else without).decode()


def write_exception(error: JobError) -> str:
    """J-55: type, message and traceback of the exception, for the scripts; empty for none."""
    if not (error.detail or error.cause_type):
        return ""
    trace = error.detail.encode("utf-8", "replace")
    if len(trace) > _MAX_TRACEBACK:  # its end names the exception
        trace = trace[-_MAX_TRACEBACK:]
    parts = (_clip(error.cause_type), _clip(error.cause_text), trace.decode("utf-8", "ignore"))
    return _encode(parts).decode()


def write_canceled(partial_json: str, attempt: int) -> str:
    """The error object of a job that was canceled."""
    return write_error(JobError(Code.CANCELED, "canceled on request", False, partial_json), attempt)


def write_retrying(error: JobError, attempt: int, delay_ms: int) -> str:
    """J-4: the data of a `retrying` event."""
    short = ShortError(_clip(error.code), _clip(error.message))
    return _encode(Retrying(attempt, delay_ms, short)).decode()


def write_registration(task: TaskDefinition, task_queues: Mapping[str, str]) -> str:
    """One task in a worker's registration."""
    schema, example = (
        msgspec.Raw(text.encode() or b"null") for text in (task.schema_json, task.example_json)
    )
    following = None
    if task.on_failure:
        queue = task_queues.get(task.on_failure, DEFAULT_QUEUE)
        following = FollowingTask(task.on_failure, queue)
    queue = task_queues.get(task.name, DEFAULT_QUEUE)
    return _encode(RegistrationTask(schema, example, queue, following)).decode()


def write_missing_requirements(missing: Sequence[MissingRequirement]) -> str:
    """The missing requirements in a worker's registration."""
    rows = [RegistrationRequirement(*map(_clip, each)) for each in missing[:_MAX_MISSING]]
    return _encode(rows).decode()


def read_missing_requirements(text: str) -> tuple[MissingRequirement, ...]:
    """The missing requirements of a registration; empty for any other text."""
    try:
        rows = _decode_missing(text)
    except (msgspec.DecodeError, ValueError):
        return ()
    return tuple(
        MissingRequirement(_clip(each.part), _clip(each.wrong), _clip(each.fix or each.cure))
        for each in rows[:_MAX_MISSING]
    )


def write_served_queues(served: Sequence[ServedQueue]) -> str:
    """The queues of a process in its registration."""
    rows = [
        RegistrationQueue(readable(wire), readable(queue), tuple(map(readable, tasks)))
        for wire, queue, tasks in served[:_MAX_QUEUES]
    ]
    return _encode(rows).decode()


def read_served_queues(text: str) -> tuple[ServedQueue, ...]:
    """The queues of a registration; empty for any other text."""
    try:
        rows = _decode_queues(text)
    except (msgspec.DecodeError, ValueError):
        return ()
    return tuple(ServedQueue(each.wire, each.queue, each.tasks) for each in rows[:_MAX_QUEUES])


def seconds(text: str) -> float | None:
    """A positive number of seconds, or None for any other text."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None


def number(text: str | None) -> int | None:
    """A whole number, or None for any other text."""
    try:
        return int(text) if text else None
    except ValueError:
        return None


def _clip(text: str) -> str:
    """Bounded and encodable: a message may quote invalid bytes, or whole files."""
    return written(text[:_MAX_MESSAGE])
