"""Every error of jobwire, as one tree; the gateway, the CLI and the pages print from it.

    JobwireError               code, public message, http status, retryable
    ├─ ContractError           bytes on the wire do not fit the contract (names the clause)
    ├─ BackendUnavailable      Valkey or the bucket did not answer (retryable)
    └─ RefusedError            the request is refused: too large, unauthorised, unknown task

    HandlerSignal              raised by handlers only
    ├─ Retry(after=…)          transient: retry then, or by the job's own backoff
    └─ Fail(code, message)     permanent: settle as failed, no retry

Expected answers (a lost lease, a full queue) are values, not errors: `messages.py`.
"""

from datetime import timedelta


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
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        if seconds is not None and not 0 <= seconds < float("inf"):
            raise ValueError(f"Retry(after={after!r}): must be a number of seconds, 0 or more")
        self.after_s = seconds
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
