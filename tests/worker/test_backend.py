"""J-30: outages, lost answers, and loops that silently stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence, Set

import pytest

from jobwire.job.errors import BackendUnavailable
from jobwire.job.messages import (
    CancelRequest,
    Done,
    JobId,
    LeasedJob,
    Outcome,
    SettleAnswer,
    Settled,
    Token,
)
from jobwire.job.states import State
from jobwire.worker import App, Context
from tests.support import clause, wait_until
from tests.support.wait import DEADLINE_S
from tests.worker.conftest import StartWorker
from tests.worker.memory import MemoryEngine, MemoryServer, Record

Ended = Callable[[JobId], Awaitable[Record]]


@pytest.fixture
def app() -> App:
    app = App()

    @app.handler("task")
    async def task(ctx: Context) -> int:
        await asyncio.sleep(0)
        return ctx.attempt

    together: list[str] = []

    @app.handler("side by side")
    async def side_by_side(ctx: Context) -> None:
        together.append(ctx.job.id)
        await wait_until(lambda: len(together) == 4)

    return app


@clause("J-30")
@pytest.mark.parametrize("verb", ["wait", "take", "settle", "adopt"])
async def test_j30_after_a_lost_answer_the_worker_recovers_its_orphans(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, app: App, verb: str
) -> None:
    await work(app, engine, slots=4)
    server.lose_answer(verb)
    if verb == "adopt":
        server.lose_answer("take")
    jobs = [server.add("task") for _ in range(20)]
    await wait_until(lambda: all(server.jobs[job].state is State.DONE for job in jobs))
    assert {server.jobs[job].deliveries for job in jobs} == {1}
    assert set(server.settles.values()) == {1}


class BreaksLate(MemoryEngine):
    """Its second wait starts a job, and fails while the worker reconnects."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.waits = 0
        self.started = asyncio.Event()
        self._breaks = asyncio.Event()

    async def wait(self, timeout_s: float, room: int = 1) -> bool:
        self.waits += 1
        if self.waits != 2:
            return await super().wait(timeout_s, room)
        (leased,) = self.server.start(self.consumer, 1)
        self._under_way.add(leased.token)
        self.started.set()
        await self._breaks.wait()
        self._under_way.discard(leased.token)
        raise BackendUnavailable("cut off")

    async def recover_orphans(self, known: Set[Token], idle_s: float = 0.0) -> list[LeasedJob]:
        own = await super().recover_orphans(known, idle_s)
        if not self._breaks.is_set():
            self._breaks.set()
            await asyncio.sleep(0.05)  # so that the worker notices it before it has the answer
        return own


@clause("J-30")
async def test_j30_a_job_started_by_a_wait_that_fails_during_recovery_is_recovered(
    work: StartWorker, app: App
) -> None:
    """Regression: a half-open connection was cut while the worker reconnected. The recovery skipped
    the entries of the wait in flight, the failed wait requested no second recovery, and the job
    stayed pending under a worker that did not know it, for a lease."""
    server = MemoryServer(lease_s=3600)
    engine = BreaksLate(server)

    @app.handler("first")
    async def first(ctx: Context) -> None:
        server.add("task")
        await engine.started.wait()

    await work(app, engine, slots=4)
    server.lose_answer("settle")
    server.add("first")
    await wait_until(lambda: [each.state for each in server.jobs.values()] == [State.DONE] * 2)
    assert {each.deliveries for each in server.jobs.values()} == {1}


@clause("J-30")
async def test_j30_repeated_lost_answers_lose_no_job_and_no_slot(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, app: App
) -> None:
    await work(app, engine, slots=4)
    jobs: list[JobId] = []
    for number in range(40):
        server.lose_answer(("take", "settle", "wait")[number % 3])
        jobs += [server.add("task") for _ in range(5)]
        await asyncio.sleep(0.002)
    await wait_until(lambda: all(server.jobs[job].state is State.DONE for job in jobs))
    assert {server.jobs[job].deliveries for job in jobs} == {1}
    # All slots are still available: four jobs can run concurrently.
    four = [server.add("side by side") for _ in range(4)]
    await wait_until(lambda: all(server.jobs[job].state is State.DONE for job in four))


@clause("J-30")
async def test_j30_a_worker_survives_a_long_outage(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, app: App, ended: Ended
) -> None:
    await work(app, engine)
    for number in range(1, 6):
        server.down = True
        server.ring()  # the waiting worker calls, and the server is down
        await wait_until(lambda number=number: server.turned_away >= number)
        server.down = False
        assert (await ended(server.add("task"))).outcome == Done("1")


@clause("J-30")
async def test_j30_jobs_that_end_during_an_outage_are_settled_after_it(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()
    began, may_end = asyncio.Event(), asyncio.Event()

    @app.handler("task")
    async def task(ctx: Context) -> str:
        began.set()
        await may_end.wait()
        return "kept"

    await work(app, engine)
    job = server.add("task")
    await began.wait()
    server.down = True
    may_end.set()
    await wait_until(lambda: server.turned_away)
    server.down = False
    assert (await ended(job)).outcome == Done('"kept"')
    assert server.settles[job] == 1


@clause("J-30")
async def test_j30_the_watchdog_cancels_a_wait_that_hangs(
    server: MemoryServer,
    engine: MemoryEngine,
    work: StartWorker,
    app: App,
    ended: Ended,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A common bug of job queues: the worker is connected, looks healthy, and takes nothing."""
    monkeypatch.setattr("jobwire.worker.queue_loop.WAIT_S", 0.1)
    monkeypatch.setattr("jobwire.worker.watchdog._PERIOD_S", 0.05)
    engine.hangs = 2
    await work(app, engine, stall_s=0.1)
    assert (await ended(server.add("task"))).outcome == Done("1")
    # On a busy machine a wait that does not hang may be overdue as well.
    assert caplog.text.count("step overdue step=memory: wait; it is cancelled") >= 2


@clause("J-30")
async def test_j30_the_watchdog_cancels_a_settle_that_hangs(
    server: MemoryServer,
    work: StartWorker,
    app: App,
    ended: Ended,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jobwire.worker.watchdog._PERIOD_S", 0.05)

    class Deaf(MemoryEngine):
        silent = 1

        def settle(
            self, batch: Sequence[tuple[LeasedJob, Outcome]], want: int
        ) -> Awaitable[Settled]:
            if self.silent:
                self.silent -= 1
                return asyncio.get_running_loop().create_future()
            return super().settle(batch, want)

    await work(app, Deaf(server), stall_s=0.1)
    job = server.add("task")
    assert (await ended(job)).outcome == Done("1")


@clause("R-1")
@pytest.mark.parametrize("trouble", [ZeroDivisionError(), SettleAnswer.REFUSED])
async def test_r01_an_outcome_is_retried_until_it_is_written(
    server: MemoryServer, work: StartWorker, app: App, trouble: Exception | SettleAnswer
) -> None:
    """Whether the engine fails or the server refuses: the job stays leased, and runs once."""

    class Broken(MemoryEngine):
        broken = 3

        def settle(
            self, batch: Sequence[tuple[LeasedJob, Outcome]], want: int
        ) -> Awaitable[Settled]:
            if not batch or not self.broken:
                return super().settle(batch, want)
            self.broken -= 1

            async def fail() -> Settled:
                if isinstance(trouble, Exception):
                    raise trouble
                return Settled([trouble for _ in batch], [])

            return fail()

    await work(app, Broken(server))
    job = server.add("task")
    await wait_until(lambda: server.jobs[job].state is State.DONE)
    assert server.jobs[job].deliveries == 1


@clause("J-30")
@pytest.mark.parametrize("verb", ["take", "settle"])
async def test_j30_an_engine_that_cannot_send_loses_nothing(
    server: MemoryServer, work: StartWorker, app: App, verb: str
) -> None:
    """Sent when called: a call may raise before there is an awaitable."""

    class Jammed(MemoryEngine):
        jams = 3

        def _jam(self, now: str) -> None:
            if now == verb and self.jams:
                self.jams -= 1
                raise BackendUnavailable("no room to send")

        def take(self, limit: int) -> Awaitable[list[LeasedJob]]:
            self._jam("take")
            return super().take(limit)

        def settle(
            self, batch: Sequence[tuple[LeasedJob, Outcome]], want: int
        ) -> Awaitable[Settled]:
            self._jam("settle")
            return super().settle(batch, want)

    await work(app, Jammed(server), slots=4)
    jobs = [server.add("task") for _ in range(10)]
    await wait_until(lambda: all(server.jobs[job].state is State.DONE for job in jobs))
    assert {server.jobs[job].deliveries for job in jobs} == {1}


@clause("J-32")
async def test_j32_a_handler_that_blocks_the_loop_keeps_its_lease(work: StartWorker) -> None:
    server = MemoryServer(lease_s=0.3)
    engine = MemoryEngine(server)
    app = App()

    @app.handler("rude")
    async def rude(ctx: Context) -> str:
        deadline_s = time.monotonic() + DEADLINE_S
        for _ in range(6):  # each renewal is a third of the lease away from the last
            engine.kept.clear()
            while not engine.kept.wait(0.01):
                assert time.monotonic() < deadline_s
        return "still mine"

    await work(app, engine)
    job = server.add("rude")
    await wait_until(lambda: server.jobs[job].state is State.DONE)
    assert server.jobs[job].outcome == Done('"still mine"')
    assert server.jobs[job].deliveries == 1
    assert server.calls["renew"] >= 6


@clause("J-32")
async def test_j32_a_failed_renewal_is_retried_soon(
    work: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    server = MemoryServer(lease_s=2.0)
    engine = MemoryEngine(server)
    app = App()
    may_end = asyncio.Event()

    @app.handler("long")
    async def long(ctx: Context) -> None:
        await may_end.wait()

    await work(app, engine)
    server.lose_answer("renew", 2)
    job = server.add("long")
    await wait_until(lambda: server.calls["renew"] >= 4)
    may_end.set()
    await wait_until(lambda: server.jobs[job].state is State.DONE)
    assert server.jobs[job].deliveries == 1
    assert caplog.text.count("leases were not renewed") == 2


async def test_the_log_names_the_line_that_blocks_the_loop(
    work: StartWorker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobwire.worker.lease_renewal._BLOCKED_S", 0.2)
    monkeypatch.setattr("jobwire.worker.watchdog._PERIOD_S", 0.01)
    server = MemoryServer(lease_s=0.3)
    app = App()

    @app.handler("rude")
    async def rude_handler(ctx: Context) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while "event loop blocked" not in caplog.text:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)  # noqa: ASYNC251 - blocking is the test

    await work(app, MemoryEngine(server))
    job = server.add("rude")
    await wait_until(lambda: server.jobs[job].state is State.DONE)
    assert any("rude_handler" in getattr(each, "traceback", "") for each in caplog.records)


async def test_a_broken_cancel_channel_is_reopened(
    server: MemoryServer, work: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App()
    began = asyncio.Event()

    @app.handler("long")
    async def long(ctx: Context) -> None:
        began.set()
        await asyncio.Event().wait()

    class Breaking(MemoryEngine):
        broken = 1

        def cancels(self) -> AsyncIterator[CancelRequest]:
            if self.broken:
                self.broken -= 1
                raise ZeroDivisionError
            return super().cancels()

    await work(app, Breaking(server))
    job = server.add("long")
    await began.wait()
    await wait_until(lambda: server.listeners, "the channel to be open again")
    server.cancel_now(job)
    await wait_until(lambda: server.jobs[job].state is State.CANCELED)
