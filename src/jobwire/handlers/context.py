"""The job context of the built-in handlers: a protocol, so that they do not import the worker."""

from collections.abc import Awaitable
from typing import Protocol

from jobwire.job.messages import JobInfo


class TaskContext(Protocol):
    """The job that a handler runs."""

    partial: object
    """The result so far; stored with the error if the job fails or is canceled."""

    @property
    def job(self) -> JobInfo: ...

    @property
    def attempt(self) -> int:
        """Starts at 1; plus one after each failed attempt."""
        ...

    def emit(self, kind: str, data: object = None, *, step: str = "") -> Awaitable[None]:
        """Publish an event; awaiting it applies backpressure."""
        ...

    def restart_timeout(self) -> None:
        """Count the job's `timeout_s` from now, after waiting for a resource."""
        ...
