"""From what the user's code did to what becomes of the job. Pure.

The runner makes an Ending where the code ran, at once and without knowing the job; `outcome` turns
it into the one thing to settle. A child process sends its endings over the pipe, so they are plain
data, and a crash arrives as text.
"""

import asyncio
import traceback
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, TypeAlias

import msgspec

from jobwire.job import retry
from jobwire.job.errors import Fail, Retry
from jobwire.job.messages import Canceled, Done, Failed, JobError, Outcome, Released
from jobwire.job.retry import Backoff
from jobwire.worker.codec import MAX_REPORT_BYTES, NotJson, TooLarge, to_json
from jobwire.worker.signature import InvalidPayload

_HOME: Final = str(Path(__file__).parent)
_LONGEST_TRACE: Final = 16_384
_NULL: Final = Done("null")


class Returned(msgspec.Struct, frozen=True, tag=True):
    """It returned; `result_json` is what, encoded."""

    result_json: str


class PermanentFailure(msgspec.Struct, frozen=True, tag=True):
    """There is no point in another attempt: `Fail`, a wrong payload, a result that is no JSON."""

    code: str
    message: str


class RetryRequested(msgspec.Struct, frozen=True, tag=True):
    """It asked to be tried again: `Retry`."""

    code: str
    message: str
    after_s: float | None


class Crashed(msgspec.Struct, frozen=True, tag=True):
    """Something else came out of it."""

    message: str
    detail: str


Ending: TypeAlias = Returned | PermanentFailure | RetryRequested | Crashed


class ProcessResult(NamedTuple):
    """How a run in another process went."""

    ending: Ending
    partial_json: str
    """What there was of a result."""
    stopped: bool
    """It was told to stop before it ended."""


class StopReason(Enum):
    """Why a handler was told to stop before it ended by itself."""

    TIMEOUT = "it took too long"
    CANCEL = "somebody asked for it"
    RELEASE = "the worker is ending"
    LOST = "the job belongs to another now"


class AttemptPolicy(msgspec.Struct, frozen=True):
    """What job and handler agreed on before the attempt."""

    attempt: int
    max_attempts: int
    timeout_s: float | None
    backoff: Backoff


def returned(value: object) -> Ending:
    """The ending of a handler that returned `value`."""
    try:
        return Returned(to_json(value))
    except TooLarge as error:
        return PermanentFailure("result_too_large", f"the result is too large: {error}")
    except NotJson as error:
        return PermanentFailure("result_not_json", f"the result is no JSON: {error}")


def done(ending: Returned) -> Done:
    """The outcome of a handler that returned and was not told to stop before."""
    return _NULL if ending.result_json == "null" else Done(ending.result_json)


def raised(error: BaseException) -> Ending:
    """The ending of a handler that let `error` out."""
    match error:
        case Fail():
            return PermanentFailure(error.code, error.message)
        case Retry():
            return RetryRequested(error.code, error.message, error.after_s)
        case InvalidPayload():
            return PermanentFailure("invalid_payload", str(error))
        case asyncio.CancelledError():
            return Crashed("the handler was cancelled from inside", _trace(error))
        case _:
            return Crashed(f"the handler raised {type(error).__name__}", _trace(error))


def partial_json(value: object) -> str:
    """What there was of a result; empty for none, and for what cannot be kept."""
    if value is None:
        return ""
    try:
        return to_json(value, MAX_REPORT_BYTES)
    except (NotJson, TooLarge):
        return ""


def outcome(
    ending: Ending, stop: StopReason | None, terms: AttemptPolicy, partial: str, chance: float
) -> Outcome | None:
    """What to settle; None where the job is no longer ours to settle."""
    if stop is None:
        match ending:
            case Returned():
                return done(ending)
            case PermanentFailure(code, message):
                return Failed(JobError(code, message, partial_json=partial))
            case RetryRequested(code, message, after_s):
                error = JobError(code, message, retryable=True, partial_json=partial)
            case Crashed(message, detail):
                after_s = None
                error = JobError("handler_error", message, True, partial, detail)
        return _again(error, terms, chance, after_s)
    # A handler that was told to stop and then returned something: that is what there is.
    if isinstance(ending, Returned) and ending.result_json != "null" and not partial:
        partial = ending.result_json if len(ending.result_json) <= MAX_REPORT_BYTES else ""
    # Told to stop, it says that another attempt would do harm, as after work that was half done.
    if isinstance(ending, PermanentFailure) and stop in (StopReason.TIMEOUT, StopReason.RELEASE):
        return Failed(JobError(ending.code, ending.message, partial_json=partial))
    match stop:
        case StopReason.LOST:
            return None
        case StopReason.RELEASE:
            return Released()
        case StopReason.CANCEL:
            return Canceled(partial)
        case StopReason.TIMEOUT:
            message = f"the handler took longer than {terms.timeout_s or 0:g} s"
            return _again(JobError("timeout", message, True, partial), terms, chance, None)


def _again(error: JobError, terms: AttemptPolicy, chance: float, after_s: float | None) -> Outcome:
    return retry.outcome(
        error,
        attempt=terms.attempt,
        max_attempts=terms.max_attempts,
        backoff=terms.backoff,
        chance=chance,
        after_s=after_s,
    )


def _trace(error: BaseException) -> str:
    """The traceback, without our own frames on top of the user's, and not longer than useful."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_HOME):
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace))
    return text if len(text) <= _LONGEST_TRACE else "…" + text[-_LONGEST_TRACE:]
