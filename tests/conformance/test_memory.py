"""The in-memory queue of the worker's tests keeps the Engine protocol as a wire does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest_asyncio

from jobwire.job.messages import Done, Failed, JobId, TaskDefinition
from jobwire.job.states import TERMINAL
from tests.conformance.lab import TASK, Snapshot
from tests.conformance.lifecycle import LifeOfAJob
from tests.conformance.uses import UsesOfSomeWires
from tests.worker.memory import MemoryEngine, MemoryServer


class MemoryLab:
    def __init__(self) -> None:
        self.queue = MemoryServer()

    async def snapshot(self, job_id: str) -> Snapshot:
        record = self.queue.jobs[JobId(job_id)]
        outcome = record.outcome
        result = outcome.result_json if isinstance(outcome, Done) else ""
        error = outcome.error.message if isinstance(outcome, Failed) else ""
        return Snapshot(record.state, result, error, record.attempt)

    async def worker(self) -> MemoryEngine:
        engine = MemoryEngine(self.queue)
        await engine.register([TaskDefinition(TASK)], slots=10)
        return engine

    async def sweep(self) -> None:
        self.queue.has_work()

    async def silence(self, worker: MemoryEngine) -> None:
        for record in self.queue.jobs.values():
            if record.holder == worker.consumer:
                record.silent = True

    async def reports(self, job_id: str) -> Sequence[str]:
        return [report.kind for report in self.queue.jobs[JobId(job_id)].events]

    async def at_rest(self) -> bool:
        return all(record.state in TERMINAL for record in self.queue.jobs.values())


class TestMemory(LifeOfAJob, UsesOfSomeWires):
    @pytest_asyncio.fixture
    async def lab(self) -> AsyncIterator[MemoryLab]:
        yield MemoryLab()
