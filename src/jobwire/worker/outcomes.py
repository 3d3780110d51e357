"""From the end of the handler's code to the outcome of its job. Pure.

The runner makes an Ending where the code ran, without knowing the job; `outcome` turns it into the
outcome to settle. A child process sends its endings over the pipe, so they are plain data, and a
crash arrives as text.
"""

import asyncio
import time
import traceback
from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

import msgspec

from jobwire import user_frames
from jobwire.job import retry
from jobwire.job.engine import Use
from jobwire.job.errors import Fail, Postpone, RateLimit, Retry, WaitForChildren
from jobwire.job.messages import (
    Canceled,
    Done,
    Failed,
    JobError,
    Outcome,
    Postponed,
    RateLimited,
    Released,
    Restarted,
    RetryLater,
    Suspended,
    WaitsForChildren,
)
from jobwire.job.retry import Backoff
from jobwire.redaction import redact
from jobwire.worker import step_errors
from jobwire.worker.codec import MAX_REPORT_BYTES, JsonTooLarge, NotJson, to_json
from jobwire.worker.context import undeclared
from jobwire.worker.signature import InvalidPayload

_LONGEST_TRACE: Final = 16_000
_TRACE_HEAD: Final = 4_000
_LONGEST_TEXT: Final = 4_096
_NULL: Final = Done("null")


class Returned(msgspec.Struct, frozen=True, tag=True):
    """The handler returned; `result_json` is its encoded result."""

    result_json: str


class PermanentFailure(msgspec.Struct, frozen=True, tag=True):
    """Not to be retried: `Fail`, an invalid payload, a result without a JSON form."""

    code: str
    message: str


class RetryRequested(msgspec.Struct, frozen=True, tag=True):
    """The handler raised `Retry`."""

    code: str
    message: str
    after_s: float | None
    again: tuple[str, ...] = ()
    """The steps whose errors are among its causes."""


class Crashed(msgspec.Struct, frozen=True, tag=True):
    """The handler raised any other exception, or its process died."""

    message: str
    detail: str
    cause_type: str = ""
    cause_text: str = ""
    again: tuple[str, ...] = ()
    """The steps whose errors are it or among its causes."""


class PostponeRequested(msgspec.Struct, frozen=True, tag=True):
    """The handler raised `Postpone`."""

    until_ms: int


class RateLimitRequested(msgspec.Struct, frozen=True, tag=True):
    """The handler raised `RateLimit`."""

    for_s: float


class ChildrenAwaited(msgspec.Struct, frozen=True, tag=True):
    """The handler raised `WaitForChildren`."""


class SuspendRequested(msgspec.Struct, frozen=True, tag=True):
    """The handler waits, or begins anew: one of them."""

    suspended: Suspended | None
    restarted: Restarted | None = None

    @property
    def outcome(self) -> Suspended | Restarted | None:
        return self.suspended or self.restarted


Ending: TypeAlias = (
    Returned
    | PermanentFailure
    | RetryRequested
    | Crashed
    | PostponeRequested
    | RateLimitRequested
    | ChildrenAwaited
    | SuspendRequested
)


class ProcessResult(NamedTuple):
    """How a run in a child process ended."""

    ending: Ending
    partial_json: str
    """The partial result."""
    stopped: bool
    """The handler was asked to stop before it ended."""


class StopReason(Enum):
    """Why a handler was asked to stop."""

    TIMEOUT = "timeout"
    CANCEL = "cancel request"
    RELEASE = "worker shutdown"
    DEADLINE = "deadline"
    LOST = "lease lost"


class AttemptPolicy(msgspec.Struct, frozen=True):
    """The limits of one attempt, from the job and its handler."""

    attempt: int
    max_attempts: int
    timeout_s: float | None
    backoff: Backoff
    uses: frozenset[Use] = frozenset()
    """What the handler declares to use."""


def returned(value: object, limit_bytes: int) -> Ending:
    """The ending of a handler that returned `value`, of which so many bytes are allowed."""
    try:
        return Returned(to_json(value, limit_bytes))
    except JsonTooLarge as error:
        return PermanentFailure("result_too_large", f"the result is too large: {error}")
    except NotJson as error:
        return PermanentFailure("result_not_json", f"the result is not JSON: {error}")


def suspended(outcome: Suspended | Restarted) -> SuspendRequested:
    """The ending of a handler whose job is to be suspended so."""
    if isinstance(outcome, Suspended):
        return SuspendRequested(outcome)
    return SuspendRequested(None, outcome)


def done(ending: Returned) -> Done:
    """The outcome of a handler that returned and was not asked to stop."""
    return _NULL if ending.result_json == "null" else Done(ending.result_json)


def raised(error: BaseException) -> Ending:
    """The ending of a handler that raised `error`."""
    match error:
        case Fail():
            return PermanentFailure(error.code, error.message)
        case Retry():
            again = step_errors.steps_of(error)
            return RetryRequested(error.code, error.message, error.after_s, again)
        case Postpone():
            return PostponeRequested(_until_ms(error))
        case RateLimit():
            return RateLimitRequested(error.for_s)
        case WaitForChildren():
            return ChildrenAwaited()
        case InvalidPayload():
            return PermanentFailure("invalid_payload", str(error))
        case asyncio.CancelledError():
            return Crashed("the handler was cancelled from inside", _trace(error))
        case _:
            name = type(error).__name__
            again = step_errors.steps_of(error)
            return Crashed(f"the handler raised {name}", _trace(error), name, _text(error), again)


def partial_json(value: object) -> str:
    """The partial result; empty if there is none or if it has no JSON form. A text that is too
    large is cut, with a note at its end; any other value that is too large is left out."""
    if value is None:
        return ""
    try:
        return to_json(value, MAX_REPORT_BYTES)
    except JsonTooLarge:
        if not isinstance(value, str):
            return ""
        # A character takes at most 6 bytes in JSON.
        kept = value[: MAX_REPORT_BYTES // 6 - 100]
        return to_json(f"{kept} … (cut: {len(kept)} of {len(value)} characters)", MAX_REPORT_BYTES)
    except NotJson:
        return ""


def outcome(
    ending: Ending,
    stop: StopReason | None,
    policy: AttemptPolicy,
    partial: str,
    random_fraction: float,
) -> Outcome | None:
    """The outcome to settle; None if another worker has the job."""
    if stop is None:
        match ending:
            case Returned():
                return done(ending)
            case PermanentFailure(code, message):
                return Failed(JobError(code, message, partial_json=partial))
            case RetryRequested(code, message, after_s, again):
                error = JobError(code, message, retryable=True, partial_json=partial)
            case Crashed(message, detail, cause_type, cause_text, again):
                after_s = None
                cause = (cause_type, redact(cause_text))
                error = JobError("handler_error", message, True, partial, redact(detail), *cause)
            case PostponeRequested(until_ms):
                return _if_declared(Postponed(until_ms), "postpone", policy, partial)
            case RateLimitRequested(for_s):
                return _if_declared(RateLimited(for_s), "rate_limit", policy, partial)
            case ChildrenAwaited():
                return _if_declared(WaitsForChildren(), "children", policy, partial)
            case SuspendRequested():
                # Declared, or the call would have failed; never without an outcome.
                return ending.outcome or Released()
        return _retry_or_fail(error, policy, random_fraction, after_s, again)
    # What a handler returns after it was asked to stop is its partial result.
    if isinstance(ending, Returned) and ending.result_json != "null" and not partial:
        partial = ending.result_json if len(ending.result_json) <= MAX_REPORT_BYTES else ""
    # A `Fail` from a handler that was asked to stop means: half done, a retry would do harm.
    if isinstance(ending, PermanentFailure) and stop in (StopReason.TIMEOUT, StopReason.RELEASE):
        return Failed(JobError(ending.code, ending.message, partial_json=partial))
    match stop:
        case StopReason.LOST:
            return None
        case StopReason.RELEASE:
            return Released()
        case StopReason.CANCEL:
            return Canceled(partial)
        case StopReason.DEADLINE:
            return retry.deadline_exceeded(partial)
        case StopReason.TIMEOUT:
            message = f"the handler took longer than {policy.timeout_s or 0:g} s"
            # Where the handler was when its time was over.
            detail = redact(ending.detail) if isinstance(ending, Crashed) else ""
            error = JobError("timeout", message, True, partial, detail)
            return _retry_or_fail(error, policy, random_fraction, None)


def _if_declared(outcome: Outcome, use: Use, policy: AttemptPolicy, partial: str) -> Outcome:
    """A worker checks what its handlers declare when it starts; other uses are never tried."""
    if use in policy.uses:
        return outcome
    failure = undeclared(use)
    return Failed(JobError(failure.code, failure.message, partial_json=partial))


def _retry_or_fail(
    error: JobError,
    policy: AttemptPolicy,
    random_fraction: float,
    after_s: float | None,
    again: tuple[str, ...] = (),
) -> Outcome:
    decided = retry.outcome(
        error,
        attempt=policy.attempt,
        max_attempts=policy.max_attempts,
        backoff=policy.backoff,
        random_fraction=random_fraction,
        after_s=after_s,
    )
    return replace(decided, again=again) if again and isinstance(decided, RetryLater) else decided


def _trace(error: BaseException) -> str:
    """The traceback from the user's first frame on, limited in length."""
    trace = user_frames.first(error.__traceback__) or error.__traceback__
    try:
        text = "".join(traceback.format_exception(type(error), error, trace))
    except Exception:  # noqa: BLE001 - `__str__` of the user's exception
        text = "".join(traceback.format_tb(trace))
    if len(text) <= _LONGEST_TRACE:
        return text
    # The first lines are the user's, the last ones name the exception.
    rest = _LONGEST_TRACE - _TRACE_HEAD
    return f"{text[:_TRACE_HEAD]}\n…\n{text[-rest:]}"


def _text(error: BaseException) -> str:
    """The text of the exception, limited in length; user code may fail even here."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - `__str__` of the user's exception
        return ""
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"


def _until_ms(signal: Postpone) -> int:
    if signal.until_ms is not None:
        return signal.until_ms
    return round((time.time() + (signal.after_s or 0.0)) * 1000)
