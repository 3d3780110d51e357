"""Workers over a queue in memory: started in a test's own loop, stopped after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import pytest
import pytest_asyncio

from jobwire.job.messages import JobId
from jobwire.worker import App, Worker
from tests.support import wait_until
from tests.support.workers import started, stopped
from tests.worker.memory import MemoryEngine, MemoryServer, Record


class StartWorker(Protocol):
    """How a test starts a worker; options are those of `Worker`."""

    async def __call__(self, app: App, *engines: MemoryEngine, **options: float) -> Worker: ...


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
def engine(server: MemoryServer) -> MemoryEngine:
    return MemoryEngine(server)


@pytest_asyncio.fixture
async def work() -> AsyncIterator[StartWorker]:
    """Start a worker; at the end of the test it releases its jobs and stops."""
    running: list[tuple[Worker, asyncio.Task[None]]] = []

    async def start(app: App, *engines: MemoryEngine, **options: float) -> Worker:
        worker = Worker(app, engines, **options)  # pyright: ignore[reportArgumentType] - slots is an int where it is given
        running.append((worker, await started(worker)))
        return worker

    yield start
    for worker, task in running:
        await stopped(worker, task)


@pytest.fixture
def ended(server: MemoryServer) -> Callable[[JobId], object]:
    """Wait until a job has ended, and return its record."""

    async def wait(job_id: JobId) -> Record:
        record = server.jobs[job_id]
        await wait_until(lambda: record.outcome is not None, f"the end of {record.request.task}")
        return record

    return wait


class BrokenModel:
    """A class of the user with an error in it."""

    def model_dump(self, *, mode: str) -> object:
        raise KeyError(mode)
