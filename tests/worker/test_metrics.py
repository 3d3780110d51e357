"""O-5: a worker counts its jobs by task and outcome."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import httpx

from jobwire.job.errors import Fail, Retry
from jobwire.job.messages import JobId, Json
from jobwire.worker import App, Context
from jobwire.worker.collector import WorkerCollector, metrics_app
from jobwire.worker.health_server import serving
from jobwire.worker.metrics import Series
from tests.support import clause, wait_until
from tests.worker.conftest import StartWorker
from tests.worker.memory import MemoryEngine, MemoryServer, Record

Ended = Callable[[JobId], Awaitable[Record]]


@clause("O-5")
async def test_jobs_are_counted_by_task_and_outcome(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()
    began, may_end = asyncio.Event(), asyncio.Event()

    @app.handler("fine")
    async def fine(ctx: Context) -> None: ...

    @app.handler("bad", retries=1)
    async def bad(ctx: Context) -> None:
        raise Retry(after=3600) if ctx.payload.get("again") else Fail("code", "message")

    @app.handler("long")
    async def long(ctx: Context) -> None:
        began.set()
        await may_end.wait()

    worker = await work(app, engine)
    again: dict[str, Json] = {"again": True}
    for task, payload in (("fine", None), ("fine", None), ("bad", None), ("bad", again)):
        await ended(server.add(task, payload))
    held = server.add("long")
    await began.wait()
    assert worker.metrics.held == 1
    server.seize(held)
    may_end.set()
    await wait_until(lambda: worker.metrics.held == 0)
    accounts = worker.metrics.tasks
    assert accounts[Series("memory", "fine")].outcomes == {"done": 2}
    assert accounts[Series("memory", "bad")].outcomes == {"failed": 1, "retried": 1}
    lost = accounts[Series("memory", "long")]
    await wait_until(lambda: lost.outcomes.get("lost") == 1)
    counts = accounts[Series("memory", "fine")]
    assert (counts.ran.cumulated()[-1], counts.waited.cumulated()[-1]) == (("+Inf", 2), ("+Inf", 2))

    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    with serving(listening, metrics_app(WorkerCollector(worker.metrics, lambda: 10, {}))):
        answer = await asyncio.to_thread(
            httpx.get, f"http://127.0.0.1:{port}/metrics", trust_env=False
        )
    wanted = 'jobwire_worker_jobs_total{outcome="done",queue="memory",task="fine"} 2.0'
    assert wanted in answer.text
    assert 'jobwire_worker_job_seconds_count{queue="memory",task="fine"} 2.0' in answer.text
