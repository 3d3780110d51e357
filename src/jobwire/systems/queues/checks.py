"""Checks of jobs and options before anything is written (B-19).

The queue and the consumer call it. Each refusal has what is wrong and what is allowed.
"""

import math
import re
from typing import Final

import msgspec

from jobwire.job.errors import RefusedError
from jobwire.json_depth import TooDeep, bounded
from jobwire.systems.queues import contract
from jobwire.systems.queues.options import BullJobOptions, Keep, Retention

_INTEGER: Final = re.compile(r"-?[0-9]+")
_decode_raw: Final = bounded(msgspec.json.Decoder(msgspec.Raw).decode)
_MAX_DELAY_MS: Final = 10 * 365 * 86_400_000

_COLONS: Final = 2
"""Of an id with colons, as every official package allows it."""
_OLD_MARKER: Final = "0:"

BAD_JOB: Final = "bad_job"
BAD_QUEUE_NAME: Final = "bad_queue_name"
BULK_TOO_LARGE: Final = "bulk_too_large"
UNKNOWN_STATE: Final = "unknown_state"
SCHEDULED: Final = "scheduled"
_STATUS: Final = {BULK_TOO_LARGE: 413, SCHEDULED: 409}
"""Where it is not 422."""


def refuse(message: str, code: str = BAD_JOB) -> RefusedError:
    return RefusedError(message, code=code, status=_STATUS.get(code))


def is_queue_name(name: str) -> bool:
    """Whether it can be the name of a queue."""
    fits = 0 < len(name) <= contract.MAX_QUEUE_NAME and name.isprintable()
    return fits and ":" not in name


def check_queue_name(name: str) -> str:
    if not is_queue_name(name):
        raise refuse(
            f"the queue name {name[:60]!r} must be 1 to {contract.MAX_QUEUE_NAME} printable "
            "characters without a colon",
            code=BAD_QUEUE_NAME,
        )
    return name


def check_name(name: str) -> None:
    if not name or len(name) > contract.MAX_NAME or not name.isprintable():
        raise refuse(f"the job name must be 1 to {contract.MAX_NAME} printable characters")


def check_job_id(job_id: str) -> None:
    """A custom id must not collide with the counter, nor break the keys that are built from it."""
    if len(job_id) > contract.MAX_JOB_ID or not job_id.isprintable():
        raise refuse(f"the job id must be at most {contract.MAX_JOB_ID} printable characters")
    if _INTEGER.fullmatch(job_id):
        raise refuse(f"the job id {job_id[:60]!r} must not be an integer: the queue assigns those")
    if job_id.count(":") not in (0, _COLONS) or job_id.startswith(_OLD_MARKER):
        raise refuse(
            f"the job id {job_id[:60]!r} must have no colon, or three parts of which the first is "
            "not 0"
        )
    if not is_job_id(job_id) or job_id.startswith(f"{contract.SCHEDULER_IDS}:"):
        raise refuse(f"the job id {job_id[:60]!r} is the name of a key of the queue")


def is_job_id(job_id: str) -> bool:
    """Whether it can be the id of a job: a counter's, a scheduler's, or a custom one (older
    programs allow colons). Keys of the queue and the further keys of a job are none."""
    if not job_id.isprintable():
        return False
    parts = job_id.split(":")
    if parts[0] == contract.SCHEDULER_IDS:
        return len(parts) > 2 and parts[-1].isdigit() and len(job_id) <= contract.MAX_ITERATION_ID
    if not 0 < len(job_id) <= contract.MAX_JOB_ID:
        return False
    if parts[0] in contract.RESERVED_IDS:
        return False
    return len(parts) == 1 or parts[-1] not in contract.JOB_PARTS


def job_of_key(key: str, prefix: str) -> tuple[str, str] | None:
    """Queue and id of the job that a key is of; None if it is not a job's of this prefix."""
    queue, _, job_id = key.removeprefix(f"{prefix}:").partition(":")
    fits = key.startswith(f"{prefix}:") and is_queue_name(queue) and is_job_id(job_id)
    return (queue, job_id) if fits else None


def check_json(text: str, what: str) -> None:
    """Text that every program of the wire can parse; NaN and Infinity are not JSON."""
    try:
        _decode_raw(text)
    except TooDeep:
        raise refuse(f"{what} is nested too deeply") from None
    except (msgspec.DecodeError, ValueError):
        raise refuse(f"{what} is not JSON; NaN and Infinity are not either") from None


def check_progress(value_json: str, *, any_number: bool = False) -> None:
    check_json(value_json, "the progress")
    value: object = msgspec.json.decode(value_json)
    if isinstance(value, bool) or not isinstance(value, int | float) or any_number:
        return
    if not 0 <= value <= 100:
        raise refuse(f"the progress {value} must lie between 0 and 100")


def check_options(options: BullJobOptions) -> None:
    if options.job_id:
        check_job_id(options.job_id)
    # Values come from other programs' JSON: a type checker has not seen them.
    check_int("delay_ms", options.delay_ms, 0, _MAX_DELAY_MS)
    check_int("priority", options.priority, 0, contract.MAX_PRIORITY)
    check_int("attempts", options.attempts, 0, 1_000_000)
    if options.timestamp_ms is not None:
        check_int("timestamp_ms", options.timestamp_ms, 0, 1 << 43)
    if options.keep_logs is not None:
        check_int("keep_logs", options.keep_logs, 0, 1_000_000)
    if options.size_limit is not None:
        check_int("size_limit", options.size_limit, 0, contract.MAX_DATA_BYTES)
    if options.stack_trace_limit is not None:
        check_int("stack_trace_limit", options.stack_trace_limit, 0, 1_000)
    for name, keep in (
        ("remove_on_complete", options.remove_on_complete),
        ("remove_on_fail", options.remove_on_fail),
    ):
        _check_retention(name, keep)
    if options.backoff is not None:
        check_int("backoff.delay_ms", options.backoff.delay_ms, 0, _MAX_DELAY_MS)
        jitter = options.backoff.jitter
        if isinstance(jitter, bool) or not 0 <= jitter <= 1:
            raise refuse(f"backoff.jitter is {jitter}, must lie between 0 and 1")
    if options.deduplication is not None:
        if not 0 < len(options.deduplication.id) <= contract.MAX_JOB_ID:
            raise refuse(f"deduplication needs an id of 1 to {contract.MAX_JOB_ID} characters")
        if not options.deduplication.id.isprintable():
            raise refuse("the deduplication id must be printable characters")
        if options.parent is not None:
            raise refuse("a job with a parent cannot be deduplicated: the parent would wait for it")
        check_int("deduplication.ttl_ms", options.deduplication.ttl_ms, 0, _MAX_DELAY_MS)
    if options.parent is not None:
        check_queue_name(options.parent.queue)
        if not is_job_id(options.parent.id):
            raise refuse(f"the parent's id {options.parent.id[:60]!r} is not a job's")


def _check_retention(name: str, keep: Retention | None) -> None:
    if keep is None or isinstance(keep, bool):
        return
    if not isinstance(keep, Keep):
        check_int(name, keep, 0, 10**9)
        return
    for part, value in (("count", keep.count), ("age_s", keep.age_s), ("limit", keep.limit)):
        if value is not None:
            check_int(f"{name}.{part}", value, 0, 10**9)


def check_int(name: str, value: float, low: int, high: int) -> None:
    """Raise RefusedError unless the value is an integer in this range."""
    # bool is a kind of int in Python, and a float may be NaN.
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        shown = "NaN" if isinstance(value, float) and math.isnan(value) else value
        raise refuse(f"{name} is {shown!r}, must be an integer from {low} to {high}")
