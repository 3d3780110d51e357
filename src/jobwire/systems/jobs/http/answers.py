"""Jobs as answers: from the wire's records to the types of `api/jobs.py`. Pure.

JSON of callers and handlers (payload, result, error) is passed byte for byte.
"""

import contextlib
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType, structs

from jobwire.api import jobs as api
from jobwire.job.messages import RAW, JobRequest, Submitted
from jobwire.json_depth import bounded
from jobwire.systems.jobs.codec import (
    ErrorObject,
    Record,
    json_or_text,
    read_waits_for,
    readable,
)
from jobwire.systems.jobs.contract import DEFAULT_QUEUE, Status
from jobwire.systems.jobs.queue import RecordSummary

_NULL: Final = Raw(b"null")
_QUEUED: Final = Status.QUEUED.value
_MAX_PREVIEW: Final = 1024
"""Characters of a value in a list."""
_MAX_TEXT: Final = 500
"""Characters of a text in a list."""
_decode: Final = bounded(msgspec.json.Decoder().decode)
_decode_error: Final = bounded(msgspec.json.Decoder(ErrorObject).decode)
_HIDDEN: Final[Any] = UNSET
"""The value of a member that is left out of the response."""


class _Job(api.Job, frozen=True, kw_only=True):
    """Without an exception by default: a call with more arguments than `new_job` has is slower."""

    steps: list[api.StepInfo] | None = _HIDDEN
    durability: str | None = _HIDDEN
    on_failure: str | None = _HIDDEN
    failure_of: str | None = _HIDDEN
    parent: api.ParentInfo | None = _HIDDEN
    children: api.ChildrenInfo | None = _HIDDEN
    exception_type: str | None = _HIDDEN
    exception_message: str | None = _HIDDEN
    traceback: str | None = _HIDDEN


class _NewJob(_Job, frozen=True, kw_only=True):
    """The same for the answer to a submission."""

    durability: str | None = "memory"


def job(record: Record) -> api.Job:
    """A job for the response; invalid JSON of other programs is shown as text."""
    return _Job(
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
        deadline_s=record.deadline_s,
        worker=readable(record.worker) if record.worker else None,
        progress=_json(record.progress_json),
        cancel_ts=record.cancel_ms,
        due_ts=record.due_ms,
        retry_of=readable(record.retry_of) if record.retry_of else None,
        queue=readable(record.queue),
        on_failure=readable(record.on_failure) if record.on_failure else _HIDDEN,
        failure_of=readable(record.failure_of) if record.failure_of else _HIDDEN,
        waits_for=_waits_for(record),
        parent=_parent(record.parent) if record.parent else _HIDDEN,
        exception_type=readable(record.exception_type) if record.exception_type else _HIDDEN,
        exception_message=readable(record.exception_message)
        if record.exception_message
        else _HIDDEN,
        traceback=readable(record.traceback) if record.traceback else _HIDDEN,
    )


def with_record(job: api.Job, record: RecordSummary) -> api.Job:
    """The job with its recorded steps and its children (D-17)."""
    listed = [
        api.StepInfo(name=each.name, ended_ts=each.ended_ms, ms=each.ms, bytes=each.bytes)
        for each in record.steps
    ]
    children = _HIDDEN
    if record.total:
        ended = record.done + record.error + record.canceled
        children = api.ChildrenInfo(
            total=record.total,
            open=record.total - ended,
            done=record.done,
            error=record.error,
            canceled=record.canceled,
            first=[
                api.ChildInfo(
                    job_id=each.job_id, name=each.name, task=each.task, status=each.status or None
                )
                for each in record.children
            ],
        )
    return structs.replace(job, steps=listed or _HIDDEN, children=children)


def _waits_for(record: Record) -> api.WaitsFor | UnsetType:
    """What a suspended job waits for. A field that was left behind does not count."""
    if not record.waits_for or record.status is not Status.QUEUED or record.entry_id:
        return UNSET
    found = read_waits_for(record.waits_for)
    if found is None:
        return UNSET
    return api.WaitsFor(
        kind=readable(_cut(found.kind)),
        name=readable(_cut(found.name)),
        until=found.until,
        more=found.more or UNSET,
    )


def _parent(text: str) -> api.ParentInfo:
    parent_id, _, name = readable(text).partition(" ")
    return api.ParentInfo(job_id=parent_id, name=name)


def new_job(job_request: JobRequest, made: Submitted, ttl_s: int) -> api.Job:
    """A job that was just submitted, at the level `memory`."""
    return _NewJob(
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
        deadline_s=job_request.deadline_s,
        progress=_NULL,
        retry_of=job_request.retry_of,
        queue=job_request.queue or DEFAULT_QUEUE,
    )


def with_durability(job: api.Job, level: str) -> api.Job:
    """The job in an answer to its submission (G-22)."""
    return structs.replace(job, durability=level)


def without_content(job: api.Job) -> api.Job:
    """The job for a key without the scope `read`: no data of caller or handler."""
    return structs.replace(
        without_exception(job),
        payload=UNSET,
        result=UNSET,
        error=UNSET,
        progress=UNSET,
        steps=UNSET,
        children=UNSET,
        waits_for=UNSET,
    )


def without_exception(job: api.Job) -> api.Job:
    """The job for a key without the scope `admin`: an exception may quote secrets (J-55)."""
    if job.traceback is _HIDDEN and job.exception_type is _HIDDEN:
        return job
    return structs.replace(job, exception_type=UNSET, exception_message=UNSET, traceback=UNSET)


def line(record: Record) -> api.JobLine:
    """A job for a list."""
    return api.JobLine(
        job_id=readable(record.job_id),
        task=readable(_cut(record.task)),
        status=record.status.value,
        error=_error_preview(record.error_json),
        created_ts=record.created_ms,
        started_ts=record.started_ms,
        updated_ts=record.updated_ms,
        attempt=record.attempt,
        worker=readable(_cut(record.worker)) or None,
        progress=_preview(record.progress_json),
        cancel_ts=record.cancel_ms,
        due_ts=record.due_ms,
        retry_of=readable(record.retry_of) or None,
        queue=readable(record.queue),
        waits_for=_waits_for(record),
    )


def _json(text: str) -> Raw:
    return Raw(json_or_text(text)) if text else _NULL


def _preview(text: str) -> Raw:
    """O-15: a value in a list; of a long one the beginning, as text. A number that a reader refuses
    (1e400) would hide the other jobs."""
    if not text:
        return _NULL
    if len(text) <= _MAX_PREVIEW:
        with contextlib.suppress(msgspec.MsgspecError, ValueError):
            _decode(text)
            return Raw(text.encode())
    return Raw(msgspec.json.encode(readable(_cut(text))))


def _error_preview(text: str) -> Raw:
    """The same for an error, whose code and message are shown in any case."""
    if len(text) <= _MAX_PREVIEW:
        return _preview(text)
    try:
        error = _decode_error(text)
    except (msgspec.MsgspecError, ValueError):
        return _preview(text)
    error.code, error.message, error.partial = _cut(error.code), _cut(error.message), UNSET
    return Raw(msgspec.json.encode(error))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"


def _object(text: str) -> Raw:
    """J-38: the payload, or `{"_raw": text}` if it is not an object."""
    raw = json_or_text(text)
    if raw.lstrip(b" \t\r\n").startswith(b"{"):
        return Raw(raw)
    return Raw(msgspec.json.encode({RAW: readable(text)}))
