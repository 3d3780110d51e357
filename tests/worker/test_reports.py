"""J-36: reports are sent in order, in batches, within a limit; the settle follows them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Sequence

import pytest

from jobwire.job.messages import Done, JobId, LeasedJob, Outcome, Report, ReportAnswer, Settled
from jobwire.worker import App, Context
from tests.support import clause, wait_until
from tests.worker.conftest import StartWorker
from tests.worker.memory import MemoryEngine, MemoryServer, Record

Ended = Callable[[JobId], Awaitable[Record]]


class SlowEngine(MemoryEngine):
    """Answers no report until the test allows it."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.may_answer = asyncio.Event()
        self.sent: list[str] = []

    def report(self, batch: Sequence[tuple[LeasedJob, Report]]) -> Awaitable[list[ReportAnswer]]:
        self.sent.append(f"{len(batch)} reports")
        answer = super().report(batch)

        async def later() -> list[ReportAnswer]:
            await self.may_answer.wait()
            return await answer

        return later()

    def settle(self, batch: Sequence[tuple[LeasedJob, Outcome]], want: int) -> Awaitable[Settled]:
        self.sent.append(f"{len(batch)} outcomes")
        return super().settle(batch, want)


@clause("J-36")
@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_j36_reports_arrive_in_order_before_the_outcome(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended, kind: str
) -> None:
    app = App()

    @app.handler("coroutine")
    async def coroutine(ctx: Context) -> str:
        await ctx.progress(50, "half way")
        for number in range(200):
            await ctx.emit("token", {"n": number}, step="here")
        await ctx.log("done", level="debug", took=3)
        return "end"

    @app.handler("thread")
    def thread(ctx: Context) -> str:
        ctx.progress(50, "half way")
        for number in range(200):
            ctx.emit("token", {"n": number}, step="here")
        ctx.log("done", level="debug", took=3)
        return "end"

    await work(app, engine)
    record = await ended(server.add(kind))
    first, *tokens, last = record.events
    assert (first.kind, json.loads(first.data_json)) == (
        "progress",
        {"percent": 50, "message": "half way"},
    )
    assert [json.loads(each.data_json)["n"] for each in tokens] == list(range(200))
    assert {(each.kind, each.step) for each in tokens} == {("token", "here")}
    assert json.loads(last.data_json) == {"level": "debug", "message": "done", "took": 3}
    assert [each.number for each in record.events] == list(range(1, 203))
    assert record.outcome == Done('"end"')


@clause("J-36")
async def test_j36_reports_of_one_turn_are_one_batch_and_leave_with_the_settle(
    server: MemoryServer, work: StartWorker, ended: Ended
) -> None:
    engine = SlowEngine(server)
    app = App()

    @app.handler("speaks")
    async def speaks(ctx: Context) -> None:
        for number in range(10):
            await ctx.emit("step", number)

    await work(app, engine)
    await ended(server.add("speaks"))
    # The settle did not wait for the answer to the reports: it went out behind them.
    assert engine.sent == ["10 reports", "1 outcomes"]
    engine.may_answer.set()


@clause("J-36")
@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_j36_a_handler_waits_when_its_report_window_is_full(
    server: MemoryServer, work: StartWorker, ended: Ended, kind: str
) -> None:
    engine = SlowEngine(server)
    app = App()
    reported: list[int] = []

    @app.handler("coroutine")
    async def coroutine(ctx: Context) -> None:
        for number in range(200):
            await ctx.emit("step", number)
            reported.append(number)
            await asyncio.sleep(0)

    @app.handler("thread")
    def thread(ctx: Context) -> None:
        for number in range(200):
            ctx.emit("step", number)
            reported.append(number)

    await work(app, engine)
    job = server.add(kind)
    await wait_until(lambda: len(reported) == 64)
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert len(reported) == 64
    engine.may_answer.set()
    record = await ended(job)
    assert [json.loads(each.data_json) for each in record.events] == list(range(200))


@clause("J-36")
async def test_j36_an_outcome_does_not_overtake_a_report_in_flight(
    server: MemoryServer, work: StartWorker, ended: Ended
) -> None:
    """If the report were lost with the connection after the outcome, it could not be sent again."""
    engine = SlowEngine(server)
    app = App()
    on_its_way = asyncio.Event()

    @app.handler("speaks")
    async def speaks(ctx: Context) -> None:
        await ctx.emit("first")
        await on_its_way.wait()
        await ctx.emit("second")

    await work(app, engine)
    job = server.add("speaks")
    await wait_until(lambda: engine.sent == ["1 reports"])
    on_its_way.set()
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert engine.sent == ["1 reports"]
    engine.may_answer.set()
    record = await ended(job)
    assert engine.sent == ["1 reports", "1 reports", "1 outcomes"]
    assert [each.kind for each in record.events] == ["first", "second"]


@pytest.mark.parametrize("fault", ["lost answer", "server away"])
async def test_a_report_whose_answer_was_lost_is_written_once(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended, fault: str
) -> None:
    app = App()
    go_on = asyncio.Event()

    @app.handler("speaks")
    async def speaks(ctx: Context) -> str:
        await ctx.emit("first")
        await go_on.wait()
        await ctx.emit("second")
        return "end"

    await work(app, engine)
    if fault == "lost answer":
        server.lose_answer("report")
    job = server.add("speaks")
    await wait_until(lambda: server.jobs[job].events)
    server.down = fault == "server away"
    go_on.set()
    for _ in range(20):
        await asyncio.sleep(0.001)
    server.down = False
    record = await ended(job)
    assert [each.kind for each in record.events] == ["first", "second"]
    assert record.outcome == Done('"end"')


async def test_a_report_beyond_the_window_that_is_not_awaited_warns(
    server: MemoryServer, work: StartWorker, ended: Ended
) -> None:
    engine = SlowEngine(server)
    engine.may_answer.set()
    app = App()

    @app.handler("careless")
    async def careless(ctx: Context) -> int:
        for number in range(64):
            ctx.emit("step", number)
        with pytest.warns(RuntimeWarning, match="write `await ctx.emit"):
            ctx.emit("step", 64)
        return 64

    await work(app, engine)
    record = await ended(server.add("careless"))
    assert record.outcome == Done("64")
    assert len(record.events) == 64


async def test_a_cancelled_waiting_report_frees_its_slot(
    server: MemoryServer, work: StartWorker, ended: Ended
) -> None:
    engine = SlowEngine(server)
    app = App()
    full = asyncio.Event()

    @app.handler("speaks")
    async def speaks(ctx: Context) -> None:
        for number in range(64):
            await ctx.emit("step", number)

        async def one_more(number: int) -> None:
            await ctx.emit("step", number)

        async with asyncio.TaskGroup() as group:
            given_up = group.create_task(one_more(64))
            group.create_task(one_more(65))
            await asyncio.sleep(0)
            full.set()
            given_up.cancel()

    await work(app, engine)
    job = server.add("speaks")
    await full.wait()
    engine.may_answer.set()
    record = await ended(job)
    numbers = [json.loads(each.data_json) for each in record.events]
    assert numbers == [*range(64), 65]


async def test_bad_reports_get_a_one_line_error(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()
    texts: list[str] = []

    @app.handler("bad")
    async def bad(ctx: Context) -> None:
        for attempt in (
            lambda: ctx.progress(101),
            lambda: ctx.emit("done"),
            lambda: ctx.emit("Wrong Name"),
            lambda: ctx.emit("big", "x" * 65_537),
            lambda: ctx.emit("odd", float("nan")),
            lambda: ctx.log("x", level="loud"),
        ):
            try:
                attempt()
            except ValueError as error:
                texts.append(str(error))

    await work(app, engine)
    assert (await ended(server.add("bad"))).outcome == Done("null")
    assert [each.split(":")[0] for each in texts[:1]] == ["progress(101)"]
    assert "65,536" in texts[3]
    assert len(texts) == 6


async def test_a_thread_that_waits_to_report_returns_when_its_job_has_ended(
    server: MemoryServer, work: StartWorker, ended: Ended
) -> None:
    engine = SlowEngine(server)
    app = App()
    out = threading.Event()
    reported: list[int] = []

    @app.handler("speaks")
    def speaks(ctx: Context) -> None:
        try:
            for number in range(100):
                ctx.emit("step", number)
                reported.append(number)
        finally:
            out.set()

    await work(app, engine)
    job = server.add("speaks")
    await wait_until(lambda: len(reported) == 64)
    server.cancel_now(job)
    await wait_until(out.is_set, "the thread to return")
    engine.may_answer.set()
    await ended(job)
    assert len(reported) == 64
