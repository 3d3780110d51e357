"""The errors that the client raises.

    ClientError
    ├─ Unreachable             no response, or no gateway is known (code `unreachable`)
    ├─ BadAnswer               the response is not from jobwire
    ├─ TimedOut                the job has not ended in the given time; it continues
    ├─ JobFailed               the job ended in error; `code` is the job's own
    ├─ JobCanceled             the job was canceled
    └─ ApiError                the gateway refused; `code` is the problem's
       ├─ Invalid              400, 413, 415, 422: the request itself is wrong
       │  └─ UnknownTask
       ├─ Unauthorized         401        Forbidden     403
       ├─ NotFound             404
       │  ├─ NoSuchJob         unknown, or expired
       │  └─ NoSuchImage       unknown, or deleted
       ├─ AlreadyFinished      409        IdempotencyMismatch     409
       ├─ AlreadySignaled      409
       ├─ QueueFull            429: too many waiting jobs; try after `retry_after_s`
       ├─ RateLimited          429: too many requests with this key
       └─ Unavailable          5xx: the gateway or its backend cannot respond now

Any other code is a plain ApiError with its `code` and `status`.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from jobwire.api import images, jobs
from jobwire.job.errors import JobwireError


class ClientError(JobwireError):
    """Base of all errors of the client."""


class Unreachable(ClientError):
    """No response from the gateway."""

    code = "unreachable"
    status = 503
    retryable = True

    def __init__(self, message: str, *, sent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        """Whether the request may have arrived, and only its response was lost."""


class BadAnswer(ClientError):
    """The response is not from jobwire."""

    code = "bad_answer"
    status = 502


class TimedOut(ClientError):
    """The job, or the image, has not ended in time. It continues: wait again, or cancel it."""

    code = "timed_out"
    status = 504
    retryable = True

    def __init__(self, job_id: str, timeout_s: float, what: str = "job") -> None:
        super().__init__(f"{what} {job_id} has not ended within {timeout_s:g} s; it continues")
        self.job_id = job_id


class JobFailed(ClientError):
    """The job ended in error."""

    def __init__(self, job: jobs.Job) -> None:
        failure = job.failure
        super().__init__(failure.message or "the job failed", code=failure.code or "error")
        self.job = job
        self.partial = failure.partial
        """The partial result, if the handler reported one."""


class JobCanceled(ClientError):
    """The job was canceled."""

    code = "canceled"

    def __init__(self, job: jobs.Job) -> None:
        super().__init__(f"job {job.job_id} was canceled")
        self.job = job
        self.partial = job.failure.partial


class ApiError(ClientError):
    """The gateway refused the request."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int,
        retry_after_s: float | None = None,
        problem: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message, code=code, status=status)
        self.retry_after_s = retry_after_s
        self.problem = problem or {}
        """The whole problem document, with its `request_id`."""


class Invalid(ApiError):
    """The request is invalid; a retry does not help."""


class UnknownTask(Invalid):
    """No worker has this task."""


class Unauthorized(ApiError):
    """No API key, or an unknown one."""


class Forbidden(ApiError):
    """The API key does not have the scope."""


class NotFound(ApiError):
    """The resource does not exist."""


class NoSuchJob(NotFound):
    """The job does not exist, or its time to live is over."""


class NoSuchImage(NotFound):
    """The image does not exist, or was deleted."""


class AlreadyFinished(ApiError):
    """The job has ended already."""


class AlreadySignaled(ApiError):
    """The signal has another value, or its wait is over."""


class IdempotencyMismatch(ApiError):
    """The idempotency key belongs to a job with another request body."""


class QueueFull(ApiError):
    """Too many waiting jobs; try later."""

    retryable = True


class RateLimited(ApiError):
    """Too many requests with this key."""

    retryable = True


class Unavailable(ApiError):
    """The gateway or its backend cannot respond now; a retry may help."""

    retryable = True


_BY_CODE: Final[Mapping[str, type[ApiError]]] = {
    jobs.ALREADY_FINISHED.code: AlreadyFinished,
    jobs.ALREADY_SIGNALED.code: AlreadySignaled,
    jobs.IDEMPOTENCY_MISMATCH.code: IdempotencyMismatch,
    jobs.JOB_NOT_FOUND.code: NoSuchJob,
    jobs.QUEUE_FULL.code: QueueFull,
    jobs.UNKNOWN_TASK.code: UnknownTask,
    images.IMAGE_NOT_FOUND.code: NoSuchImage,
    images.UPLOAD_CAPACITY.code: Unavailable,
}
_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: RateLimited,
}


def from_problem(problem: Mapping[str, object], retry_after_s: float | None = None) -> ApiError:
    """Convert a problem document."""
    code, status = str(problem.get("code", "")), problem.get("status")
    number = status if isinstance(status, int) else 500
    kind = _BY_CODE.get(code) or _BY_STATUS.get(number) or (Unavailable if number >= 500 else None)
    message = str(problem.get("detail") or problem.get("title") or f"HTTP {number}")
    return (kind or ApiError)(
        message,
        code=code or f"http_{number}",
        status=number,
        retry_after_s=retry_after_s,
        problem=problem,
    )


def from_response(status: int, body: bytes, retry_after_s: float | None = None) -> ClientError:
    """Convert an error response; one without a problem document is not from jobwire."""
    try:
        problem = msgspec.json.decode(body, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = None
    if problem is not None and "code" in problem:
        return from_problem({**problem, "status": status}, retry_after_s)
    if status in (502, 503, 504):  # from a proxy in front of the gateway
        text = f"HTTP {status} from a proxy in front of the gateway"
        return Unavailable(text, code=f"http_{status}", status=status, retry_after_s=retry_after_s)
    return BadAnswer(f"HTTP {status} without a problem document: is this address jobwire's?")
