"""J-40: a stopping worker takes no more, lets jobs end, then hands the rest back."""

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


class House:
    """A worker whose end a test watches."""

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
async def house() -> AsyncIterator[House]:
    house = House()
    yield house
    if house.task is not None and house.worker is not None and not house.task.done():
        await stopped(house.worker, house.task)


@clause("J-40")
async def test_j40_running_jobs_end_and_no_more_are_taken(house: House) -> None:
    worker = await house.open(slots=1)
    job = house.server.add("long")
    await house.began.wait()
    worker.stop()
    later = house.server.add("long")
    await asyncio.sleep(0.02)
    assert house.task is not None
    assert not house.task.done()
    house.may_end.set()
    await house.closed()
    assert house.server.jobs[job].state is State.DONE
    assert house.server.jobs[later].state is State.WAITING
    assert house.server.jobs[later].deliveries == 0
    assert not house.engine.entered


@clause("J-40")
async def test_j40_jobs_that_do_not_finish_in_time_are_released(house: House) -> None:
    cleaned = asyncio.Event()

    @house.app.handler("forever")
    async def forever(ctx: Context) -> None:
        house.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    worker = await house.open(drain_s=0.05)
    job = house.server.add("forever")
    await house.began.wait()
    worker.stop()
    await house.closed()
    record = house.server.jobs[job]
    assert (record.state, record.deliveries, record.attempt) == (State.WAITING, 0, 1)
    assert record.outcome == Released()
    assert cleaned.is_set()


@clause("J-40")
async def test_j40_a_second_signal_gives_back_now(house: House) -> None:
    worker = await house.open(drain_s=3600)
    job = house.server.add("long")
    await house.began.wait()
    worker.stop()
    worker.stop()
    await house.closed()
    assert house.server.jobs[job].state is State.WAITING


@clause("J-40")
async def test_j40_the_job_of_a_thread_is_released_though_the_thread_goes_on(house: House) -> None:
    began, may_end = threading.Event(), threading.Event()

    @house.app.handler("thread")
    def thread(ctx: Context) -> None:
        began.set()
        may_end.wait(30)

    worker = await house.open(drain_s=0.02, grace_s=0.05)
    job = house.server.add("thread")
    await asyncio.to_thread(began.wait, 30)
    worker.stop()
    await house.closed()
    assert house.server.jobs[job].state is State.WAITING
    assert worker.left_behind == 1
    may_end.set()


@clause("J-40")
async def test_j40_parked_jobs_are_released(house: House) -> None:
    @house.app.handler("narrow", concurrency=1)
    async def narrow(ctx: Context) -> None:
        house.began.set()
        await house.may_end.wait()

    worker = await house.open(drain_s=0.05)
    jobs = [house.server.add("narrow") for _ in range(3)]
    await wait_until(lambda: all(house.server.jobs[job].token for job in jobs))
    worker.stop()
    await house.closed()
    assert {house.server.jobs[job].state for job in jobs} == {State.WAITING}


@clause("J-40")
async def test_j40_jobs_of_the_last_calls_are_released(house: House) -> None:
    """A take is on its way when the wish to stop comes: its jobs must not be forgotten."""
    worker = await house.open(slots=2)
    house.server.lose_answer("take")
    job = house.server.add("long")
    await wait_until(lambda: house.server.jobs[job].token)
    worker.stop()
    house.may_end.set()
    await house.closed()
    record = house.server.jobs[job]
    assert record.state in (State.WAITING, State.DONE)
    assert record.state is State.DONE or record.deliveries == 0


@clause("J-40")
async def test_j40_a_cancelled_worker_releases_everything(house: House) -> None:
    await house.open(drain_s=3600)
    job = house.server.add("long")
    await house.began.wait()
    assert house.task is not None
    house.task.cancel()
    await asyncio.wait([house.task])
    assert house.task.cancelled()
    assert house.server.jobs[job].state is State.WAITING
    assert not house.engine.entered


@clause("J-40")
async def test_j40_leases_are_renewed_while_draining(house: House) -> None:
    house.server.lease_s = 0.3
    worker = await house.open(drain_s=30)
    job = house.server.add("long")
    await house.began.wait()
    worker.stop()
    before = house.server.calls["keep"]
    await wait_until(lambda: house.server.calls["keep"] >= before + 5)
    house.may_end.set()
    await house.closed()
    assert house.server.jobs[job].state is State.DONE
    assert house.server.jobs[job].deliveries == 1


@clause("J-40")
async def test_j40_an_unavailable_server_does_not_block_shutdown_forever(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobwire.worker.shutdown._FLUSH_TIMEOUT_S", 0.1)
    worker = await house.open(drain_s=0.02, grace_s=0.02)
    house.server.add("long")
    await house.began.wait()
    house.server.down = True
    worker.stop()
    await house.closed()
    house.server.down = False


async def test_a_worker_that_cannot_register_raises() -> None:
    house = House()
    house.server.down = True
    worker = Worker(house.app, [house.engine])
    with pytest.raises(BackendUnavailable, match="the server is away"):
        await worker.run()
