"""J-54: middleware around handlers of every kind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import pytest

from jobwire.job.errors import Fail
from jobwire.job.messages import Done, Failed, JobId
from jobwire.testing import run
from jobwire.worker import App, CallNext, Context
from tests.support import clause
from tests.worker import process_handlers
from tests.worker.conftest import StartWorker
from tests.worker.memory import MemoryEngine, MemoryServer, Record

Ended = Callable[[JobId], Awaitable[Record]]
KINDS = ("async", "thread")
tenant: ContextVar[str] = ContextVar("tenant", default="")


def an_app() -> App:
    app = App()

    @app.handler("async")
    async def in_loop(ctx: Context) -> str:
        await ctx.progress(50)
        return f"result {tenant.get()}"

    @app.handler("thread")
    def in_thread(ctx: Context) -> str:
        ctx.progress(50)
        return f"result {tenant.get()}"

    return app


@clause("J-54")
@pytest.mark.parametrize("task", KINDS)
async def test_j54_middleware_runs_around_a_handler_outermost_first(task: str) -> None:
    app, seen = an_app(), list[object]()

    @app.middleware
    async def outer(ctx: Context, call_next: CallNext) -> object:
        seen.append(("outer", ctx.job.task, ctx.payload))
        result = await call_next()
        seen.append("outer is left")
        return result

    @app.middleware
    async def inner(ctx: Context, call_next: CallNext) -> object:
        seen.append("inner")
        await ctx.emit("measured", {"by": "inner"})
        return f"{await call_next()} and more"

    ran = await run(app, task, {"a": 1})
    assert ran.result == "result  and more"
    assert seen == [("outer", task, {"a": 1}), "inner", "outer is left"]
    assert ran.of("measured") == [{"by": "inner"}]
    assert len(ran.of("progress")) == 1


@clause("J-54")
@pytest.mark.parametrize("task", KINDS)
async def test_j54_a_handler_has_the_context_variables_of_the_middleware(task: str) -> None:
    app = an_app()

    @app.middleware
    async def with_tenant(_: Context, call_next: CallNext) -> object:
        token = tenant.set("acme")
        try:
            return await call_next()
        finally:
            tenant.reset(token)

    assert (await run(app, task)).result == "result acme"


@clause("J-54")
@pytest.mark.parametrize("task", KINDS)
async def test_j54_middleware_may_refuse_a_job_without_calling_the_handler(task: str) -> None:
    app = an_app()

    @app.middleware
    async def refuse(_: Context, call_next: CallNext) -> object:
        del call_next
        raise Fail("forbidden", "not today")

    ran = await run(app, task)
    assert ran.error is not None
    assert (ran.error.code, ran.error.message) == ("forbidden", "not today")
    assert ran.of("progress") == []


@clause("J-54")
@pytest.mark.parametrize("kind", KINDS)
async def test_j54_middleware_sees_what_a_handler_raises(kind: str) -> None:
    app, seen = App(), list[BaseException]()

    if kind == "async":

        @app.handler("fails")
        async def fails(_: Context) -> None:
            raise StopAsyncIteration("broken")
    else:

        @app.handler("fails")
        def fails_in_thread(_: Context) -> None:
            raise ZeroDivisionError("broken")

    @app.middleware
    async def watch(_: Context, call_next: CallNext) -> object:
        try:
            return await call_next()
        except Exception as error:
            seen.append(error)
            raise

    ran = await run(app, "fails")
    assert ran.error is not None
    assert ran.error.code == "handler_error"
    assert [str(error) for error in seen] == ["broken"]


@clause("J-54")
async def test_j54_middleware_runs_around_a_process(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = process_handlers.app.wrapped(lambda handler: handler)
    seen: list[object] = []

    @app.middleware
    async def watch(ctx: Context, call_next: CallNext) -> object:
        if ctx.job.attempt > 5:
            return "too late"
        try:
            result = await call_next()
        except Exception as error:
            seen.append(type(error).__name__)
            raise
        seen.append(result)
        return "seen" if ctx.job.task == "add" else result

    await work(app, engine, slots=1)
    record = await ended(server.add("add", {"a": 2, "b": 3}))
    assert record.outcome == Done('"seen"')
    assert isinstance(seen[0], dict)
    assert seen[0]["sum"] == 5

    record = await ended(server.add("fails", {"how": "fail"}))
    assert isinstance(record.outcome, Failed)
    assert record.outcome.error.code == "no_way"
    assert seen[1:] == ["HandlerProcessFailed"]
