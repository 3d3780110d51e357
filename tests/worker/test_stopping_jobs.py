"""J-36: timeouts and cancellation of handlers of every kind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from jobwire.job.errors import Fail
from jobwire.job.messages import (
    Canceled,
    CancelRequest,
    Done,
    Failed,
    JobId,
    RetryLater,
)
from jobwire.job.retry import fixed
from jobwire.worker import App, Context
from tests.support import clause, wait_until
from tests.worker.conftest import StartWorker
from tests.worker.memory import MemoryEngine, MemoryServer, Record

Ended = Callable[[JobId], Awaitable[Record]]


@clause("J-36")
async def test_j36_a_coroutine_past_its_timeout_is_cancelled_and_retried(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()
    cleaned: list[int] = []

    @app.handler("slow", timeout_s=0.02, retries=1, backoff=fixed(3600))
    async def slow(ctx: Context) -> None:
        ctx.partial = "half"
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(ctx.attempt)

    await work(app, engine)
    record = await ended(server.add("slow"))
    assert isinstance(record.outcome, RetryLater)
    assert record.outcome.error.code == "timeout"
    assert record.outcome.error.message == "the handler took longer than 0.02 s"
    assert record.outcome.error.partial_json == '"half"'
    assert cleaned == [1]


@clause("J-36")
async def test_j36_the_jobs_own_timeout_precedes_the_handlers(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()

    @app.handler("slow", timeout_s=3600)
    async def slow(ctx: Context) -> None:
        await asyncio.Event().wait()

    await work(app, engine)
    record = await ended(server.add("slow", timeout_s=0.02))
    assert isinstance(record.outcome, Failed)


@clause("J-36", "J-16")
@pytest.mark.parametrize("way", ["pushed", "by renewal"])
async def test_j36_a_coroutine_is_cancelled_on_request(way: str, work: StartWorker) -> None:
    server = MemoryServer(lease_s=0.1 if way == "by renewal" else 30)
    engine = MemoryEngine(server)
    app = App()
    began = asyncio.Event()

    @app.handler("long")
    async def long(ctx: Context) -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "as far as it came"
        return "not reached"

    await work(app, engine)
    job = server.add("long")
    await began.wait()
    if way == "pushed":
        server.cancel_now(job)
    else:
        server.jobs[job].cancel = True
    await wait_until(lambda: server.jobs[job].outcome == Canceled('"as far as it came"'))


@clause("J-36")
async def test_j36_a_thread_settles_at_once_and_keeps_its_slot_until_it_ends(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()
    began, may_end = threading.Event(), threading.Event()
    refused: list[str] = []

    @app.handler("stuck")
    def stuck(ctx: Context) -> str:
        began.set()
        may_end.wait(30)
        assert ctx.cancelled
        try:
            ctx.progress(99)
        except asyncio.CancelledError:
            refused.append("progress")
            raise
        return "too late"

    @app.handler("next")
    async def after(ctx: Context) -> str:
        return "ran"

    worker = await work(app, engine, slots=1)
    assert worker
    job = server.add("stuck")
    await asyncio.to_thread(began.wait, 30)
    server.cancel_now(job)
    record = await ended(job)
    assert record.outcome == Canceled()
    follower = server.add("next")
    # Nothing happens for a while, however often the loop turns: the only slot is taken.
    for _ in range(50):
        await asyncio.sleep(0.001)
    assert server.jobs[follower].outcome is None
    may_end.set()
    assert (await ended(follower)).outcome == Done('"ran"')
    assert refused == ["progress"]
    assert record.events == []
    assert record.outcome == Canceled()


@clause("J-36")
async def test_j36_a_thread_past_its_timeout_has_timed_out(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()
    may_end = threading.Event()

    @app.handler("slow", timeout_s=0.02)
    def slow(ctx: Context) -> None:
        may_end.wait(30)

    await work(app, engine)
    record = await ended(server.add("slow"))
    may_end.set()
    assert isinstance(record.outcome, Failed)
    assert record.outcome.error.code == "timeout"


async def test_a_coroutine_that_does_not_stop_is_settled_after_its_grace(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()
    may_end = asyncio.Event()

    @app.handler("stubborn", timeout_s=0.02)
    async def stubborn(ctx: Context) -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue

    await work(app, engine, grace_s=0.05)
    record = await ended(server.add("stubborn"))
    assert isinstance(record.outcome, Failed)
    assert record.outcome.error.code == "timeout"
    may_end.set()


async def test_a_cancel_request_after_the_end_changes_nothing(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()

    @app.handler("fails")
    async def fails(ctx: Context) -> None:
        raise Fail("code", "message")

    await work(app, engine)
    job = server.add("fails")
    await ended(job)
    server.cancel_now(job)
    assert isinstance(server.jobs[job].outcome, Failed)


@clause("J-33")
@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_j33_a_reclaimed_job_is_cancelled_and_not_settled(
    work: StartWorker, kind: str
) -> None:
    server = MemoryServer(lease_s=0.3)
    engine = MemoryEngine(server)
    app = App()
    began, canceled = threading.Event(), threading.Event()

    @app.handler("coroutine")
    async def coroutine(ctx: Context) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            canceled.set()

    @app.handler("thread")
    def thread(ctx: Context) -> None:
        began.set()
        while not ctx.cancelled:
            threading.Event().wait(0.005)
        canceled.set()

    await work(app, engine)
    job = server.add(kind)
    await asyncio.to_thread(began.wait, 30)
    server.seize(job)
    await wait_until(canceled.is_set, "the handler to be canceled")
    assert server.settles[job] == 0
    assert server.jobs[job].holder == "another worker"


@clause("J-33", "R-3")
async def test_r3_a_report_that_is_refused_stops_the_handler(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker
) -> None:
    app = App()
    began, go_on = asyncio.Event(), asyncio.Event()
    canceled = asyncio.Event()

    @app.handler("speaks")
    async def speaks(ctx: Context) -> None:
        began.set()
        await go_on.wait()
        try:
            while True:
                await ctx.emit("step")
                await asyncio.sleep(0)
        finally:
            canceled.set()

    await work(app, engine)
    job = server.add("speaks")
    await began.wait()
    server.seize(job)
    go_on.set()
    await canceled.wait()
    assert server.jobs[job].events == []
    assert server.settles[job] == 0


@clause("J-36")
async def test_j36_a_job_that_is_stopped_before_its_first_line_does_not_run(
    server: MemoryServer, work: StartWorker, ended: Ended
) -> None:
    """The job is leased, and its task has not run yet when the cancel request comes."""
    app = App()
    ran: list[str] = []
    canceled = asyncio.Event()

    class Direct(MemoryEngine):
        """Cancel requests arrive in the same iteration of the event loop."""

        async def cancels(self) -> AsyncIterator[CancelRequest]:
            await canceled.wait()
            token = server.jobs[jobs[1]].token
            assert token is not None
            yield CancelRequest(token)
            await asyncio.Event().wait()

    @app.handler("first")
    async def first(ctx: Context) -> None:
        canceled.set()  # the listener runs before the rest of the batch
        await asyncio.sleep(0)

    @app.handler("second")
    async def second(ctx: Context) -> None:
        ran.append(ctx.job.id)

    jobs = [server.add("first"), server.add("second")]
    await work(app, Direct(server), slots=4)
    assert (await ended(jobs[0])).outcome == Done("null")
    assert (await ended(jobs[1])).outcome == Canceled()
    assert ran == []
