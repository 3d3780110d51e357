"""What a wire must bring along so that its engine can be put through the life of a job.

A wire's own test file builds one and hands it to `LifeOfAJob`. The suite speaks only the heart's
language; whatever is particular to a wire stays in its lab.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from jobwire.job.engine import Engine, Queue
from jobwire.job.states import State

TASK = "echo"
"""The task that every worker of the suite has."""


class Snapshot(NamedTuple):
    """The stored state of a job."""

    state: State
    result_json: str
    """Empty if there is none."""
    error_json: str
    """Empty if there is none."""
    attempt: int


class Lab(Protocol):
    """One queue on a real server, and as many workers as a test wants."""

    @property
    def queue(self) -> Queue:
        """The producer's end."""
        ...

    async def snapshot(self, job_id: str) -> Snapshot:
        """The stored state of a job that exists."""
        ...

    async def worker(self) -> Engine:
        """A new worker's engine, entered, with the task `TASK`. It leaves with the lab."""
        ...

    async def sweep(self) -> None:
        """Run every maintenance task of the wire once, now."""
        ...

    async def silence(self, worker: Engine) -> None:
        """As if the worker had been silent for so long that all its leases have run out."""
        ...

    async def ends(self, job_id: str) -> int:
        """How often a watcher of the job has been told that it ended."""
        ...

    async def reports(self, job_id: str) -> Sequence[str]:
        """The kinds of the reports that a watcher of the job has seen, in order; of life's own
        news nothing."""
        ...

    async def at_rest(self) -> bool:
        """Whether nothing is held, leased or waiting."""
        ...
