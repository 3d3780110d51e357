"""Punctuality of a BullMQ queue: delayed jobs on a quiet queue, and a rate limit of 2 jobs in
500 ms.

A delayed job should start within 100 ms of its time; ten jobs under the limit take from 2.0 to
2.5 s. Times depend on the machine's load, so they are printed and not checked.
"""

import asyncio
import os
import statistics
import tempfile
import time
from typing import Final

import uvloop

from jobwire import App, Context
from jobwire.local.valkey import LocalValkey
from jobwire.systems.queues.engine import BullEngine
from jobwire.systems.queues.options import BullJobOptions
from jobwire.systems.queues.queue import QueueProducer
from jobwire.systems.queues.settings import BullSettings
from jobwire.systems.queues.worker_connections import WorkerConnections
from jobwire.valkey import Connection
from jobwire.worker import Worker

_DELAYED: Final = 100
_STEP_MS: Final = 37
_LIMITED: Final = 10
_ROUNDS: Final = 3


def run() -> bool:
    with tempfile.TemporaryDirectory() as folder, LocalValkey(folder) as server:
        uvloop.run(_delayed(server.url))
        for number in range(_ROUNDS):
            uvloop.run(_limited(server.url, f"limited-{number}"))
    return True


async def _delayed(url: str) -> None:
    app, late_ms = App(), list[float]()

    @app.handler("task")
    async def task(ctx: Context) -> None:
        late_ms.append(time.time() * 1000 - ctx.payload["due_ms"])

    async with Connection.open(url) as connection:
        queue = QueueProducer(connection, "delayed")
        worker = Worker(app, [BullEngine(WorkerConnections(connection), "delayed")])
        running = asyncio.create_task(worker.run())
        await worker.ready.wait()
        for number in range(_DELAYED):
            delay_ms = 200 + number * _STEP_MS
            data = f'{{"due_ms":{time.time() * 1000 + delay_ms}}}'
            await queue.submit("task", data, BullJobOptions(delay_ms=delay_ms))
        while len(late_ms) < _DELAYED:
            await asyncio.sleep(0.05)
        worker.stop()
        await running
    cuts = statistics.quantiles(late_ms, n=100)
    print(
        f"load {os.getloadavg()[0]:.1f}; {_DELAYED} delayed jobs start late by p50 {cuts[49]:.1f} "
        f"ms, p99 {cuts[98]:.1f} ms, at most {max(late_ms):.1f} ms (target 100)"
    )


async def _limited(url: str, name: str) -> None:
    app, starts_s = App(), list[float]()

    @app.handler("task")
    async def task(_: Context) -> None:
        starts_s.append(time.perf_counter())

    async with Connection.open(url) as connection:
        queue = QueueProducer(connection, name)
        for _ in range(_LIMITED):
            await queue.submit("task")
        shared = WorkerConnections(connection, BullSettings(limit_max=2, limit_ms=500))
        worker = Worker(app, [BullEngine(shared, name)])
        running = asyncio.create_task(worker.run())
        while len(starts_s) < _LIMITED:
            await asyncio.sleep(0.01)
        worker.stop()
        await running
    took_s = starts_s[-1] - starts_s[0]
    print(f"{_LIMITED} jobs at 2 per 500 ms: {took_s:.2f} s (target 2.0 to 2.5)")
