"""What a handler of ours needs of its job: said as a protocol, so that it needs no worker.

The worker's own context fits it, and so does whatever a test makes up.
"""

from collections.abc import Awaitable
from typing import Protocol

from jobwire.job.messages import JobInfo


class TaskContext(Protocol):
    """One running job, seen from inside."""

    partial: object
    """What there is of a result so far; kept with the error, should the job fail or be canceled."""

    @property
    def job(self) -> JobInfo: ...

    @property
    def attempt(self) -> int:
        """1 at first; one more after each failed attempt."""
        ...

    def emit(self, kind: str, data: object = None, *, step: str = "") -> Awaitable[None]:
        """Tell the watchers; awaiting it waits for room."""
        ...
