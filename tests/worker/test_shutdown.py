"""J-40: a stopping worker takes no more jobs, lets running jobs finish, then releases the rest."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from jobwire.job.errors import BackendUnavailable
from jobwire.job.messages import Released
from jobwire.job.states import State
from jobwire.worker import App, Context, Worker
from tests.support import clause, wait_until
from tests.support.workers import ended, started, stopped
from tests.worker.memory import MemoryEngine, MemoryServer


class Setup:
    """A worker whose shutdown is tested."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.engine = MemoryEngine(self.server)
        self.app = App()
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.worker: Worker | None = None

        @self.app.handler("long")
        async def long(ctx: Context) -> str:
            self.began.set()
            await self.may_end.wait()
            return "ended"

    async def open(self, **options: float) -> Worker:
        self.worker = Worker(self.app, [self.engine], **options)  # pyright: ignore[reportArgumentType] - slots is an int where it is given
        self.task = await started(self.worker)
        return self.worker

    async def closed(self) -> None:
        assert self.task is not None
        await ended(self.task)


@pytest_asyncio.fixture
async def setup() -> AsyncIterator[Setup]:
    setup = Setup()
    yield setup
    if setup.task is not None and setup.worker is not None and not setup.task.done():
        await stopped(setup.worker, setup.task)


@clause("J-40")
async def test_j40_running_jobs_end_and_no_more_are_taken(setup: Setup) -> None:
    worker = await setup.open(slots=1)
    job = setup.server.add("long")
    await setup.began.wait()
    worker.stop()
    later = setup.server.add("long")
    await asyncio.sleep(0.02)
    assert setup.task is not None
    assert not setup.task.done()
    setup.may_end.set()
    await setup.closed()
    assert setup.server.jobs[job].state is State.DONE
    assert setup.server.jobs[later].state is State.WAITING
    assert setup.server.jobs[later].deliveries == 0
    assert not setup.engine.entered


@clause("J-40")
async def test_j40_jobs_that_do_not_finish_in_time_are_released(setup: Setup) -> None:
    cleaned = asyncio.Event()

    @setup.app.handler("forever")
    async def forever(ctx: Context) -> None:
        setup.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    worker = await setup.open(drain_s=0.05)
    job = setup.server.add("forever")
    await setup.began.wait()
    worker.stop()
    await setup.closed()
    record = setup.server.jobs[job]
    assert (record.state, record.deliveries, record.attempt) == (State.WAITING, 0, 1)
    assert record.outcome == Released()
    assert cleaned.is_set()


@clause("J-40")
async def test_j40_a_second_signal_releases_at_once(setup: Setup) -> None:
    worker = await setup.open(drain_s=3600)
    job = setup.server.add("long")
    await setup.began.wait()
    worker.stop()
    worker.stop()
    await setup.closed()
    assert setup.server.jobs[job].state is State.WAITING


@clause("J-40")
async def test_j40_the_job_of_a_thread_is_released_while_the_thread_runs(setup: Setup) -> None:
    began, may_end = threading.Event(), threading.Event()

    @setup.app.handler("thread")
    def thread(ctx: Context) -> None:
        began.set()
        may_end.wait(30)

    worker = await setup.open(drain_s=0.02, grace_s=0.05)
    job = setup.server.add("thread")
    await asyncio.to_thread(began.wait, 30)
    worker.stop()
    await setup.closed()
    assert setup.server.jobs[job].state is State.WAITING
    assert worker.left_behind == 1
    may_end.set()


@clause("J-40")
async def test_j40_a_stop_leaves_the_jobs_of_a_handler_at_its_limit(setup: Setup) -> None:
    @setup.app.handler("narrow", concurrency=1)
    async def narrow(ctx: Context) -> None:
        setup.began.set()
        await setup.may_end.wait()

    worker = await setup.open(drain_s=0.05)
    jobs = [setup.server.add("narrow") for _ in range(3)]
    await setup.began.wait()
    worker.stop()
    await setup.closed()
    assert {setup.server.jobs[job].state for job in jobs} == {State.WAITING}


@clause("J-40")
async def test_j40_jobs_of_the_last_calls_are_released(setup: Setup) -> None:
    """A take is in flight when the stop is requested: its jobs must be released."""
    worker = await setup.open(slots=2)
    setup.server.lose_answer("take")
    job = setup.server.add("long")
    await wait_until(lambda: setup.server.jobs[job].token)
    worker.stop()
    setup.may_end.set()
    await setup.closed()
    record = setup.server.jobs[job]
    assert record.state in (State.WAITING, State.DONE)
    assert record.state is State.DONE or record.deliveries == 0


@clause("J-40")
async def test_j40_a_cancelled_worker_releases_everything(setup: Setup) -> None:
    await setup.open(drain_s=3600)
    job = setup.server.add("long")
    await setup.began.wait()
    assert setup.task is not None
    setup.task.cancel()
    await asyncio.wait([setup.task])
    assert setup.task.cancelled()
    assert setup.server.jobs[job].state is State.WAITING
    assert not setup.engine.entered


@clause("J-40")
async def test_j40_leases_are_renewed_while_draining(setup: Setup) -> None:
    setup.server.lease_s = 0.3
    worker = await setup.open(drain_s=30)
    job = setup.server.add("long")
    await setup.began.wait()
    worker.stop()
    before = setup.server.calls["renew"]
    await wait_until(lambda: setup.server.calls["renew"] >= before + 5)
    setup.may_end.set()
    await setup.closed()
    assert setup.server.jobs[job].state is State.DONE
    assert setup.server.jobs[job].deliveries == 1


@clause("J-40")
async def test_j40_an_unavailable_server_does_not_block_shutdown_forever(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobwire.worker.shutdown._FLUSH_TIMEOUT_S", 0.1)
    worker = await setup.open(drain_s=0.02, grace_s=0.02)
    setup.server.add("long")
    await setup.began.wait()
    setup.server.down = True
    worker.stop()
    await setup.closed()
    setup.server.down = False


async def test_a_worker_that_cannot_register_raises() -> None:
    setup = Setup()
    setup.server.down = True
    worker = Worker(setup.app, [setup.engine])
    with pytest.raises(BackendUnavailable, match="the server is away"):
        await worker.run()
