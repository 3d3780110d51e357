"""The parts that the tour needs: a gateway, a client, and a worker in the test's own process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import pytest_asyncio

from jobwire import App, AsyncClient
from jobwire.local import LocalValkey
from jobwire.maintenance import Maintenance
from jobwire.systems.jobs.cron_store import StreamsCronStore
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection
from jobwire.worker import Worker
from jobwire.worker.scheduler import CronScheduler
from tests.support.jobs_http import ServedJobs
from tests.support.workers import started, stopped

RunWorker = Callable[[], AbstractAsyncContextManager[None]]


@pytest.fixture
def app() -> App:
    """An application without handlers yet."""
    return App()


@pytest.fixture(scope="session")
def gateway_url(valkey: LocalValkey) -> Iterator[str]:
    """The address of a running gateway."""
    with ServedJobs(valkey.url) as served:
        yield served.url


@pytest_asyncio.fixture
async def jobs(gateway_url: str) -> AsyncIterator[AsyncClient]:
    """A client of the gateway."""
    async with AsyncClient(gateway_url) as client:
        yield client


@pytest.fixture
def worker(app: App, connection: Connection) -> RunWorker:
    """`async with worker():` runs the handlers of `app`, as `jobwire worker` does."""
    settings = StreamsSettings()

    @asynccontextmanager
    async def run() -> AsyncGenerator[None]:
        engine = StreamsEngine(connection, settings)
        scheduler = CronScheduler(app.crons, StreamsCronStore(connection, settings))
        maintenance = Maintenance(engine.maintenance())
        running = Worker(app, [engine], background=[maintenance.run, scheduler.run])
        task = await started(running)
        try:
            yield
        finally:
            await stopped(running, task)

    return run
