"""J-54: an App's lifespan, whose value handlers have as `ctx.state`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from jobwire.job.messages import Done, JobId
from jobwire.testing import run
from jobwire.worker import App, Context, Worker
from tests.support import clause
from tests.support.workers import started, stopped
from tests.worker import lifespan_handlers
from tests.worker.memory import MemoryEngine, MemoryServer, Record

Ended = Callable[[JobId], Awaitable[Record]]


class Pool:
    """Stands for a user's connection pool."""

    def __init__(self) -> None:
        self.entered = self.left = 0
        self.used: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[Pool]:
        self.entered += 1
        yield self
        self.left += 1


@clause("J-54")
async def test_j54_a_lifespan_is_entered_once_and_its_value_is_the_state(
    server: MemoryServer, engine: MemoryEngine, ended: Ended
) -> None:
    pool = Pool()
    app = App(lifespan=pool.lifespan)

    @app.handler("async")
    async def in_loop(ctx: Context[dict[str, Any], Pool]) -> None:
        ctx.state.used.append(ctx.job.task)

    @app.handler("thread")
    def in_thread(ctx: Context[dict[str, Any], Pool]) -> None:
        ctx.state.used.append(ctx.job.task)

    worker = Worker(app, [engine])
    task = await started(worker)
    for name in ("async", "thread", "async"):
        await ended(server.add(name, {}))
    assert (pool.entered, pool.left, pool.used) == (1, 0, ["async", "thread", "async"])
    await stopped(worker, task)
    assert pool.left == 1


@clause("J-54")
async def test_j54_a_lifespan_is_left_after_the_last_job(
    server: MemoryServer, engine: MemoryEngine
) -> None:
    pool, begun, may_end = Pool(), asyncio.Event(), asyncio.Event()
    app = App(lifespan=pool.lifespan)

    @app.handler("slow")
    async def slow(_: Context) -> int:
        begun.set()
        await may_end.wait()
        return pool.left

    worker = Worker(app, [engine])
    task = await started(worker)
    job = server.add("slow", {})
    await begun.wait()
    worker.stop()
    may_end.set()
    await task
    assert server.jobs[job].outcome == Done("0")
    assert pool.left == 1


@clause("J-54")
async def test_j54_a_worker_whose_lifespan_fails_does_not_register(engine: MemoryEngine) -> None:
    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncGenerator[None]:
        raise ConnectionError("no database")
        yield

    app = App(lifespan=lifespan)
    app.handler("any")(_nothing)
    worker = Worker(app, [engine])
    with pytest.raises(ConnectionError, match="no database"):
        await worker.run()
    assert not worker.ready.is_set()


@clause("J-54")
async def test_j54_a_worker_is_stopped_while_it_enters_its_lifespan(engine: MemoryEngine) -> None:
    entering = asyncio.Event()

    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncGenerator[None]:
        entering.set()
        await asyncio.Event().wait()
        yield

    app = App(lifespan=lifespan)
    app.handler("any")(_nothing)
    worker = Worker(app, [engine])
    running = asyncio.create_task(worker.run())
    await entering.wait()
    worker.stop()
    async with asyncio.timeout(30):
        await running
    assert not worker.ready.is_set()


@clause("J-54")
async def test_j54_each_child_process_has_a_lifespan_of_its_own(
    server: MemoryServer,
    engine: MemoryEngine,
    ended: Ended,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = tmp_path / "left"
    monkeypatch.setenv(lifespan_handlers.LEFT_FILE, str(left))
    worker = Worker(lifespan_handlers.app, [engine], slots=1)
    task = await started(worker)
    results: list[object] = []
    for name in ("async", "sync", "async"):
        record = await ended(server.add(name, {}))
        assert isinstance(record.outcome, Done), record.outcome
        results.append(json.loads(record.outcome.result_json))
    child = json.loads(record.outcome.result_json)[0]
    assert child != os.getpid()
    assert results == [
        [child, child, ["async"]],
        [child, child, ["async", "sync"]],
        [child, child, ["async", "sync", "async"]],
    ]
    await stopped(worker, task)
    assert sorted(left.read_text().split()) == sorted([str(child), str(os.getpid())])


@clause("J-54")
def test_j54_a_lifespan_that_no_process_can_import_is_refused() -> None:
    app = App(lifespan=lambda: contextlib.nullcontext())
    with pytest.raises(TypeError, match="and a lifespan another process imports it"):
        app.handler("any", process=True)(_nothing)


@clause("J-54")
async def test_j54_jobwire_testing_enters_the_lifespan() -> None:
    app = App(lifespan=Pool().lifespan)

    @app.handler("entered")
    async def entered(ctx: Context[dict[str, Any], Pool]) -> int:
        return ctx.state.entered

    assert (await run(app, "entered")).result == 1


def _nothing(_: Context) -> None:
    """A handler."""
