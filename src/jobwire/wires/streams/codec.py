"""Texts of the wire to values of the heart, and back.

The queue and the engine call it. Others' bytes are read with tolerance: a hash that a stranger
wrote may lack our extras, an entry's payload may be anything. What is ours is written strictly.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

import msgspec

from jobwire.job.errors import ContractError
from jobwire.job.messages import JobError, JobId, Json, MissingRequirement
from jobwire.valkey import Reply
from jobwire.wires.streams.contract import MAX_EVENT_BYTES, RAW, Code, Extra, Field, Status

_MAX_MESSAGE: Final = 2_000
_MOST_LACKS: Final = 16
_STATUSES: Final = frozenset(Status)
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class ErrorObject(msgspec.Struct):
    """J-6: why a job failed, for everybody's eyes."""

    code: str
    message: str
    retryable: bool
    attempt: int
    partial: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class ReportText(msgspec.Struct):
    """The short form, while the job goes on."""

    code: str
    message: str


class Retrying(msgspec.Struct):
    """J-4: the data of a `retrying` event."""

    attempt: int
    delay_ms: int
    error: ReportText


class RegistrationTask(msgspec.Struct):
    """A task on a worker's card; `null` where there is nothing to say."""

    schema: msgspec.Raw
    example: msgspec.Raw


class RegistrationRequirement(msgspec.Struct):
    """What a worker lacks, on its card."""

    part: str
    wrong: str
    fix: str


_decode_lacks: Final = msgspec.json.Decoder(list[RegistrationRequirement]).decode


class Record(NamedTuple):
    """A job hash, read."""

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
    traceback: str
    fingerprint: str


def read_record(reply: Reply) -> Record | None:
    """What HGETALL answered; None where there is no such job."""
    if not reply:
        return None
    found = cast("dict[str, str]", reply)
    get = found.get
    return Record(
        job_id=JobId(get(Field.JOB_ID, "")),
        task=get(Field.TASK, ""),
        payload_json=get(Field.PAYLOAD, ""),
        status=read_status(get(Field.STATUS, Status.QUEUED)),
        created_ms=number(get(Field.CREATED_TS)) or 0,
        updated_ms=number(get(Field.UPDATED_TS)) or 0,
        ttl_s=number(get(Field.TTL_S)) or 0,
        result_json=get(Field.RESULT, ""),
        error_json=get(Field.ERROR, ""),
        attempt=number(get(Extra.ATTEMPT)) or 1,
        deliveries=number(get(Extra.DELIVERIES)) or 0,
        max_attempts=number(get(Extra.MAX_ATTEMPTS)),
        timeout_s=seconds(get(Extra.TIMEOUT_S, "")),
        worker=get(Extra.WORKER, ""),
        entry_id=get(Extra.ENTRY_ID, ""),
        started_ms=number(get(Extra.STARTED_TS)),
        cancel_ms=number(get(Extra.CANCEL_TS)),
        tenant=get(Extra.TENANT, ""),
        traceparent=get(Extra.TRACEPARENT, ""),
        progress_json=get(Extra.PROGRESS, ""),
        retry_of=get(Extra.RETRY_OF, ""),
        traceback=get(Extra.TRACEBACK, ""),
        fingerprint=get(Extra.FINGERPRINT, ""),
    )


def read_status(text: str) -> Status:
    """One of the five; anything else is no status."""
    if text not in _STATUSES:
        raise ContractError("a job has a status that is none", clause="J-5", detail=text)
    return Status(text)


def read_payload(text: str) -> Json:
    """J-38: the object that the text says, or `{"_raw": text}` where it says none."""
    try:
        value = cast(Json, _decode(text))
    except (msgspec.DecodeError, ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    # Bytes that are no text arrive as half surrogates, which no handler could write anywhere.
    return {RAW: readable(text)}


def readable(text: str) -> str:
    """Text of a stranger, which may hold bytes that are none, as text that can be written."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def written(text: str) -> str:
    """Text of ours; half a character, which no server takes, becomes a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def json_or_text(text: str) -> bytes:
    """A JSON text of the wire as it stands, for an answer; what is no JSON, as a JSON string."""
    if not text:
        return b"null"
    try:
        # Invalid bytes and half surrogates are no text, whatever stands around them.
        whole = text.encode()
        msgspec.json.decode(whole, type=msgspec.Raw)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _encode(readable(text))
    return whole


def write_error(error: JobError, attempt: int) -> str:
    """J-6: the error object, as it stands in the hash and in the event."""
    said = ErrorObject(_plain(error.code), _plain(error.message), error.retryable, attempt)
    without = _encode(said)
    if not error.partial_json:
        return without.decode()
    said.partial = msgspec.Raw(error.partial_json.encode())
    whole = _encode(said)
    # An event has its limit (J-4); half a partial result would be no JSON at all.
    return (whole if len(whole) <= MAX_EVENT_BYTES else without).decode()


def write_canceled(partial_json: str, attempt: int) -> str:
    """The same for a job that was stopped on request."""
    return write_error(JobError(Code.CANCELED, "canceled on request", False, partial_json), attempt)


def write_retrying(error: JobError, attempt: int, delay_ms: int) -> str:
    """J-4: the data of a `retrying` event."""
    said = ReportText(_plain(error.code), _plain(error.message))
    return _encode(Retrying(attempt, delay_ms, said)).decode()


def write_registration(schema_json: str, example_json: str) -> str:
    """What a worker's card says of one task."""
    schema, example = (
        msgspec.Raw(text.encode() or b"null") for text in (schema_json, example_json)
    )
    return _encode(RegistrationTask(schema, example)).decode()


def write_missing_requirements(lacks: Sequence[MissingRequirement]) -> str:
    """What a worker's card says of what it lacks."""
    said = [RegistrationRequirement(*map(_plain, each)) for each in lacks[:_MOST_LACKS]]
    return _encode(said).decode()


def read_missing_requirements(text: str) -> tuple[MissingRequirement, ...]:
    """The same, read; nothing where a stranger wrote something else."""
    try:
        said = _decode_lacks(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ()
    return tuple(
        MissingRequirement(*(_plain(word) for word in (each.part, each.wrong, each.fix)))
        for each in said[:_MOST_LACKS]
    )


def seconds(text: str) -> float | None:
    """A positive number of seconds, or None for anything else a stranger may have written."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None


def number(text: str | None) -> int | None:
    """A whole number, or None for anything else a stranger may have written."""
    try:
        return int(text) if text else None
    except ValueError:
        return None


def _plain(text: str) -> str:
    """A message may quote bytes that were no text, or whole files; what is written must not."""
    return written(text[:_MAX_MESSAGE])
