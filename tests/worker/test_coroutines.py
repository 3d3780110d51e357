"""J-36: coroutine handlers that are started in a shared task behave as in their own.

A handler that ends without waiting never gets a task of its own. What it can observe of its task
(identity, cancellation, context variables) must be the same as with its own task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import pytest

from jobwire.job.messages import Done, Failed, JobId
from jobwire.worker import App, Context
from tests.support import clause, wait_until
from tests.worker.conftest import StartWorker
from tests.worker.memory import MemoryEngine, MemoryServer, Record

Ended = Callable[[JobId], Awaitable[Record]]

note: ContextVar[str] = ContextVar("note", default="clean")


@clause("J-36")
async def test_j36_a_handler_has_one_asyncio_task_from_first_to_last_line(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker
) -> None:
    app = App()
    mixed: list[str] = []

    @app.handler("task")
    async def task(ctx: Context) -> None:
        before = asyncio.current_task()
        assert before is not None
        assert before not in busy
        busy.add(before)
        try:
            await asyncio.sleep(0.001)
            if asyncio.current_task() is not before:
                mixed.append(ctx.job.id)
        finally:
            busy.discard(before)

    busy: set[asyncio.Task[object]] = set()
    jobs = [server.add("task") for _ in range(60)]
    await work(app, engine, slots=20)
    await wait_until(lambda: len(server.settles) == len(jobs))
    assert mixed == []
    assert all(server.jobs[job].outcome == Done("null") for job in jobs)


async def test_asyncio_timeout_and_task_groups_work_from_the_first_line(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()

    @app.handler("timeout")
    async def timeout(ctx: Context) -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "timed out"
        return "not reached"

    @app.handler("group")
    async def group(ctx: Context) -> int:
        async with asyncio.TaskGroup() as tasks:
            both = [tasks.create_task(asyncio.sleep(0.001, n)) for n in (1, 2)]
        return sum(task.result() for task in both)

    @app.handler("gather")
    async def gather(ctx: Context) -> object:
        return await asyncio.gather(asyncio.sleep(0, 1), asyncio.sleep(0, 2))

    jobs = [server.add(task) for task in ("timeout", "group", "gather") * 5]
    await work(app, engine, slots=8)
    outcomes = [(await ended(job)).outcome for job in jobs]
    assert outcomes == [Done('"timed out"'), Done("3"), Done("[1,2]")] * 5


async def test_a_handler_that_cancels_its_own_task_affects_no_other(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()

    @app.handler("marked")
    async def marked(ctx: Context) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "ended before it could be hit"

    @app.handler("waits")
    async def waits(ctx: Context) -> str:
        await asyncio.sleep(0)
        return "fine"

    jobs = [server.add(task) for task in ("marked", "waits") * 10]
    await work(app, engine, slots=20)
    for job, wanted in zip(jobs, ("ended before it could be hit", "fine") * 10, strict=True):
        assert (await ended(job)).outcome == Done(f'"{wanted}"')


async def test_context_variables_do_not_leak_from_one_job_to_the_next(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()

    @app.handler("task")
    async def task(ctx: Context) -> str:
        before = note.get()
        note.set(ctx.job.id)
        return before

    jobs = [server.add("task") for _ in range(20)]
    await work(app, engine, slots=20)
    assert {(await ended(job)).outcome for job in jobs} == {Done('"clean"')}


async def test_a_handler_that_cancels_itself_fails_its_attempt(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()

    @app.handler("task")
    async def task(ctx: Context) -> None:
        raise asyncio.CancelledError

    await work(app, engine)
    record = await ended(server.add("task"))
    assert isinstance(record.outcome, Failed)
    assert record.outcome.error.message == "the handler was cancelled from inside"


async def test_an_awaitable_that_is_no_coroutine_is_awaited(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()

    class Callable_:
        async def __call__(self, ctx: Context) -> str:
            await asyncio.sleep(0)
            return "from an object"

    app.handler("object")(Callable_())
    await work(app, engine)
    assert (await ended(server.add("object"))).outcome == Done('"from an object"')


@pytest.mark.parametrize("waits", [0, 1, 3])
async def test_exceptions_after_the_first_await_reach_the_handler(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended, waits: int
) -> None:
    """An exception that arrives at the very first wait is thrown into a coroutine that our own
    code, not the task, has started."""
    app = App()

    @app.handler("task")
    async def task(ctx: Context) -> str:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception, KeyError("x"))
        try:
            await future
        except KeyError:
            for _ in range(waits):
                await asyncio.sleep(0)
            return "caught"
        return "not reached"

    await work(app, engine)
    assert (await ended(server.add("task"))).outcome == Done('"caught"')
