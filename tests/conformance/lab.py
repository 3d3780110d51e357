"""What a wire provides so that the lifecycle tests can run on its engine.

A wire's test file builds a lab and passes it to `LifeOfAJob`. The suite uses only the domain model
(`jobwire.job`); the details of a wire stay in its lab.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from jobwire.job.engine import Engine, JobQueue
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
    """One queue on a real server, and as many workers as a test needs."""

    @property
    def queue(self) -> JobQueue:
        """The producer's interface."""
        ...

    async def snapshot(self, job_id: str) -> Snapshot:
        """The stored state of a job that exists."""
        ...

    async def worker(self) -> Engine:
        """The engine of a new worker with the task `TASK`, registered until the lab closes."""
        ...

    async def sweep(self) -> None:
        """Run every maintenance task of the wire once, now."""
        ...

    async def silence(self, worker: Engine) -> None:
        """Let all leases of the worker expire."""
        ...

    async def ends(self, job_id: str) -> int:
        """The number of terminal events that a watcher of the job got."""
        ...

    async def reports(self, job_id: str) -> Sequence[str]:
        """The kinds of the reports that a watcher of the job got, in order, without the events of
        state changes."""
        ...

    async def at_rest(self) -> bool:
        """Whether nothing is held, leased or waiting."""
        ...
