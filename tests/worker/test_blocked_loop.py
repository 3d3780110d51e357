"""J-56, J-33: leases of the jobs of a worker whose event loop is blocked."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

import pytest

from jobwire.job.errors import BackendUnavailable
from jobwire.job.messages import Done, JobId, LeasedJob, RenewAnswer
from jobwire.job.states import State
from jobwire.worker import App, Context
from tests.support import clause, wait_until
from tests.support.wait import DEADLINE_S
from tests.worker.conftest import StartWorker
from tests.worker.memory import MemoryEngine, MemoryLeaseRenewer, MemoryServer
from tests.worker.process_handlers import TIMEOUT_S, add, waits_for_its_turn


def lease_ran_out(server: MemoryServer, job_id: JobId) -> bool:
    return server.jobs[job_id].lease_until_s < time.monotonic()


@clause("J-56")
@pytest.mark.parametrize("timeout_s", [0.2, None])
async def test_j56_renewal_ends_some_time_after_a_job_s_timeout(
    work: StartWorker, monkeypatch: pytest.MonkeyPatch, timeout_s: float | None
) -> None:
    """Another job of the same worker, which waits for something while a handler blocks the loop."""
    monkeypatch.setattr("jobwire.worker.lease_renewal._PAST_TIMEOUT_S", 0.2)
    server = MemoryServer(lease_s=0.3)
    engine = MemoryEngine(server)
    app = App()
    waits, may_end, ended = asyncio.Event(), asyncio.Event(), threading.Event()

    @app.handler("waits", timeout_s=timeout_s)
    async def wait(ctx: Context) -> None:
        waits.set()
        await may_end.wait()

    @app.handler("rude")
    async def rude(ctx: Context) -> None:
        own, other = server.jobs[ctx.job.id], server.jobs[waiting]
        deadline_s = time.monotonic() + DEADLINE_S
        while other.renewals < 20 and not ended.is_set():  # 20 take longer than both limits
            time.sleep(0.01)  # noqa: ASYNC251 - blocking is the test
            assert time.monotonic() < deadline_s
            if own.renewals >= other.renewals + 5:
                ended.set()

    await work(app, engine, slots=4)
    waiting = server.add("waits")
    await waits.wait()
    rude_one = server.add("rude")
    await wait_until(lambda: server.jobs[rude_one].state is State.DONE)
    assert ended.is_set() == (timeout_s is not None)
    may_end.set()


@clause("J-33", "R-5")
async def test_j33_a_start_whose_lease_has_expired_is_not_run(
    work: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """Two jobs arrive in one answer; the second waits for the first, which blocks the loop. The
    server is unavailable meanwhile, and then another worker has the second job."""
    server = MemoryServer(lease_s=0.5)
    app = App()
    begun: list[str] = []

    def run(ctx: Context) -> None:
        begun.append(ctx.job.id)
        if ctx.job.id == jobs[0]:
            server.down = True
            deadline_s = time.monotonic() + DEADLINE_S
            while not lease_ran_out(server, jobs[1]):
                time.sleep(0.01)
                assert time.monotonic() < deadline_s
            server.seize(jobs[1])
            server.down = False

    @app.handler("coroutine")
    async def coroutine(ctx: Context) -> None:
        run(ctx)

    jobs = [server.add("coroutine") for _ in range(2)]
    await work(app, MemoryEngine(server), slots=4)
    lines = ("belongs to another worker now", "outcome not written outcome=Done")
    await wait_until(
        lambda: any(
            getattr(record, "job_id", "") == jobs[1]
            for record in caplog.records
            if any(each in record.getMessage() for each in lines)
        )
    )
    assert jobs[1] not in begun


class NoRenewer(MemoryLeaseRenewer):
    """The server does not answer the renewal thread."""

    def renew(self, batch: Sequence[LeasedJob]) -> Sequence[RenewAnswer]:
        raise BackendUnavailable("no answer")


class LateEngine(MemoryEngine):
    """The loop is blocked for a lease before it gets the first answer to a take, and the first
    answer to a renewal takes as long."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.late = {"take", "renew"}
        self._late_s = 1.1 * server.lease_s

    def lease_renewer(self) -> MemoryLeaseRenewer:
        return NoRenewer(self.server, self.kept)

    async def take(self, limit: int) -> list[LeasedJob]:
        taken = await super().take(limit)
        if taken and "take" in self.late:
            self.late.discard("take")
            time.sleep(self._late_s)  # noqa: ASYNC251 - blocking is the test
        return taken

    async def renew(self, batch: Sequence[LeasedJob]) -> list[RenewAnswer]:
        answers = await super().renew(batch)
        await asyncio.sleep(self._late_s if "renew" in self.late else 0.01)
        self.late.discard("renew")
        return answers


@clause("J-33", "R-5")
@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_j33_a_start_that_is_late_twice_is_run_once(work: StartWorker, kind: str) -> None:
    """A start whose lease has run out again when the answer to its renewal comes, as in a failover:
    two tasks began it."""
    server = MemoryServer(lease_s=0.5)
    app = App()
    begun: list[str] = []

    @app.handler("coroutine")
    async def coroutine(ctx: Context) -> None:
        begun.append(ctx.job.id)

    @app.handler("thread")
    def thread(ctx: Context) -> None:
        begun.append(ctx.job.id)

    jobs = [server.add(kind) for _ in range(3)]
    engine = LateEngine(server)
    await work(app, engine, slots=len(jobs))
    await wait_until(lambda: all(server.jobs[each].state is State.DONE for each in jobs))
    assert not engine.late
    assert sorted(begun) == sorted(jobs)


@clause("J-56")
@pytest.mark.parametrize("kind", ["coroutine", "thread", "process"])
async def test_j56_a_handler_can_restart_its_timeout(work: StartWorker, kind: str) -> None:
    server = MemoryServer()
    app = App()

    @app.handler("coroutine", timeout_s=TIMEOUT_S)
    async def coroutine(ctx: Context) -> str:
        for _ in range(round(12 * TIMEOUT_S)):
            await asyncio.sleep(0.1)
            ctx.restart_timeout()
        return "in time"

    @app.handler("thread", timeout_s=TIMEOUT_S)
    def thread(ctx: Context) -> str:
        for _ in range(round(12 * TIMEOUT_S)):
            time.sleep(0.1)
            ctx.restart_timeout()
        return "in time"

    app.handler("process", timeout_s=TIMEOUT_S, process=True)(waits_for_its_turn)
    app.handler("add", process=True)(add)

    await work(app, MemoryEngine(server))
    if kind == "process":  # on a busy machine the start of a process takes longer than the timeout
        first = server.add("add", {"a": 1, "b": 2})
        await wait_until(lambda: server.jobs[first].outcome is not None)
    job = server.add(kind)
    await wait_until(lambda: server.jobs[job].outcome is not None)
    assert server.jobs[job].outcome == Done('"in time"')
