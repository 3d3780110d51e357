"""Every error of jobwire, as one tree; the gateway, the CLI and the pages print from it.

    JobwireError               code, public message, http status, retryable
    ├─ ContractError           bytes on the wire do not fit the contract (names the clause)
    ├─ BackendUnavailable      Valkey or the bucket did not answer (retryable)
    └─ RefusedError            the request is refused: too large, unauthorised, unknown task

    HandlerSignal              raised by handlers only
    ├─ Retry(after=…)          transient: retry then, or by the job's own backoff
    ├─ Fail(code, message)     permanent: settle as failed, no retry
    │  ├─ StepInterrupted(name)  raised by `ctx.step_once`: started, and nobody knows how it ended
    │  ├─ SignalTimeout(name)  raised by `ctx.wait_for_signal`: nobody has sent it in time
    │  └─ ChildFailed(job_id, error)  raised by `ctx.gather`: a child did not end as done
    ├─ Postpone(after=…)       run it later; not an attempt
    ├─ RateLimit(seconds)      run it again when the queue may start jobs; not an attempt
    └─ WaitForChildren()       run it again when its children have ended; not an attempt

    StepFailed(step, …)        raised by `ctx.step` in place of a recorded error whose class is gone
    JobSuspended               ends a run whose job waits; not an Exception, and not a failure

Expected answers (a lost lease, a full queue) are values, not errors: `messages.py`.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta


class JobwireError(Exception):
    """An error that the caller is shown.

    `message` is public; `detail` goes to the log and never over the wire.
    """

    code: str = "internal"
    status: int = 500
    retryable: bool = False

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        status: int | None = None,
        retryable: bool | None = None,
        detail: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.code
        self.status = status or self.status
        self.retryable = self.retryable if retryable is None else retryable
        self.detail = detail


class ContractError(JobwireError):
    """Data on the wire violates the contract; `clause` names the part of it."""

    code = "contract_violated"
    status = 502

    def __init__(self, message: str, *, clause: str, detail: str = "") -> None:
        super().__init__(f"{message} ({clause})", detail=detail)
        self.clause = clause


class BackendUnavailable(JobwireError):
    """The server did not answer; whether it acted is unknown. Retry the same call."""

    code = "unavailable"
    status = 503
    retryable = True


class RefusedError(JobwireError):
    """The request is refused, and repeating it unchanged does not help."""

    code = "refused"
    status = 422


class HandlerSignal(Exception):
    """Raised by a handler to decide the outcome of its job."""


class Retry(HandlerSignal):
    """This attempt failed; retry the job.

    `after` is a delay in seconds (or a timedelta); without it the job's own backoff decides.
    """

    def __init__(
        self,
        after: float | timedelta | None = None,
        message: str = "the handler asked for a retry",
        code: str = "handler_error",
    ) -> None:
        super().__init__(message)
        self.after_s = None if after is None else _seconds("Retry", after)
        self.message = str(message)
        self.code = str(code)


class Fail(HandlerSignal):
    """A permanent failure: end the job as failed, without a retry.

    `code` is stable and for programs, `message` is for people; the caller is shown both.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        # Callers often pass another exception.
        self.code = str(code)
        self.message = str(message)


class StepInterrupted(Fail):
    """A step that may run only once was started before, and has no result: its effect may have
    happened, or not. Uncaught it ends the job as `step_interrupted`."""

    def __init__(self, name: str) -> None:
        super().__init__(
            "step_interrupted",
            f"step {name!r} was started before and did not end; it is not run again",
        )
        self.name = name


class StepFailed(Exception):
    """An earlier run has recorded this error of a step, and its class cannot be imported here."""

    def __init__(self, step: str, kind: str, text: str) -> None:
        super().__init__(f"step {step!r} failed: {kind}: {text}")
        self.step = step
        self.kind = kind
        """The name of the class, with its module."""
        self.text = text
        """The text of the error."""


class ChildFailed(Fail):
    """A child of the job failed or was canceled. Uncaught it ends the job as `child_failed`."""

    def __init__(self, job_id: str, error: Mapping[str, object]) -> None:
        code, message = error.get("code", ""), error.get("message", "")
        super().__init__("child_failed", f"the child {job_id} ended with {code}: {message}")
        self.job_id = job_id
        self.error = dict(error)
        """Its error object: `code`, `message` and others."""


class SignalTimeout(Fail, TimeoutError):
    """A signal did not come in time. Uncaught it ends the job as `signal_timeout`: the end of the
    wait is recorded, and another attempt would not wait again."""

    def __init__(self, name: str) -> None:
        super().__init__("signal_timeout", f"the signal {name!r} did not come in time")
        self.name = name


class JobSuspended(BaseException):
    """Ends the run of a handler whose job is suspended. Middleware sees it; nothing has failed."""


class Postpone(HandlerSignal):
    """Run the job again later; it does not count as an attempt.

    `after` is a delay in seconds (or a timedelta), `until` a time with a time zone: give one.
    """

    def __init__(
        self, after: float | timedelta | None = None, *, until: datetime | None = None
    ) -> None:
        super().__init__("the handler postponed the job")
        if (after is None) == (until is None):
            raise ValueError("Postpone: give either after= or until=")
        if until is not None and until.tzinfo is None:
            raise ValueError("Postpone(until=…): the time needs a time zone")
        self.after_s = None if after is None else _seconds("Postpone", after)
        self.until_ms = None if until is None else round(until.timestamp() * 1000)


class RateLimit(HandlerSignal):
    """Start no job of this queue for that long, and run this one again then; it does not count as
    an attempt."""

    def __init__(self, seconds: float | timedelta) -> None:
        super().__init__("the handler limited the rate of its queue")
        self.for_s = _seconds("RateLimit", seconds)


class WaitForChildren(HandlerSignal):
    """Run the job again when all its children have ended; it does not count as an attempt."""

    def __init__(self) -> None:
        super().__init__("the handler waits for the job's children")


def _seconds(signal: str, value: float | timedelta) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{signal}({value!r}): must be a number of seconds, 0 or more")
    return seconds
