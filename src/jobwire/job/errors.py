"""Every error of ours, as one tree; the gateway, the CLI and the pages all print from it.

    JobwireError               code, public message, http status, retryable, docs anchor
    ├─ ContractError           bytes on the wire do not fit the contract (names the clause)
    ├─ GroundError             Valkey or the bucket did not answer (retryable)
    └─ RefusedError            we will not: too large, unauthorised, unknown task

    HandlerSignal              raised by handlers, never by us
    ├─ Retry(after=…)          transient: retry then, or by the job's own backoff
    └─ Fail(code, message)     permanent: settle as failed, no retry

What the world may well answer (a lost lease, a full queue) is no error but a value: `messages.py`.
"""

from datetime import timedelta


class JobwireError(Exception):
    """Something went wrong that a caller is told about.

    `message` is for everybody's eyes; `detail` goes to our log and never over the wire.
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

    @property
    def anchor(self) -> str:
        """Where in the documentation this error is explained."""
        return f"errors#{self.code.replace('_', '-')}"


class ContractError(JobwireError):
    """What we read does not fit the contract; `clause` says which part of it."""

    code = "contract_violated"
    status = 502

    def __init__(self, message: str, *, clause: str, detail: str = "") -> None:
        super().__init__(f"{message} ({clause})", detail=detail)
        self.clause = clause


class BackendUnavailable(JobwireError):
    """The server under us did not answer; whether it acted is unknown. Ask the same again."""

    code = "unavailable"
    status = 503
    retryable = True


class RefusedError(JobwireError):
    """We will not do it, and asking again the same way will not help."""

    code = "refused"
    status = 422


class HandlerSignal(Exception):
    """How a handler says what it wants to become of its job."""


class Retry(HandlerSignal):
    """This attempt came to nothing, but a later one may: try again.

    `after` is a delay in seconds (or a timedelta); without it the job's own backoff decides.
    """

    def __init__(
        self,
        after: float | timedelta | None = None,
        message: str = "the handler asked to be tried again",
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
    """There is no point in another attempt: end the job as failed.

    `code` is stable and for programs, `message` is for people; both are shown to the caller.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        # Often it is another exception that is handed on.
        self.code = str(code)
        self.message = str(message)
