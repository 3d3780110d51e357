"""The payload of a job that follows a failed one (`on_failure=`). Pure."""

from typing import Any

import msgspec


class FailedJobError(msgspec.Struct, frozen=True):
    """Why the job failed."""

    code: str = ""
    message: str = ""
    retryable: bool = False
    attempt: int = 1
    partial: Any = None
    """The partial result, if the handler set one."""


class FailedJob(msgspec.Struct, frozen=True):
    """A job that has ended with an error: `async def tell(ctx: Context[FailedJob]) -> None`."""

    job_id: str
    task: str
    error: FailedJobError
    payload: dict[str, Any] | None = None
    """None where it is too large together with the error."""
