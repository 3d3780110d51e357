"""Ours on the BullMQ wire: `… URL SERVER_PID MODE JOBS [WAITING QUEUES SERVED]`.

WAITING jobs are added first and stay in the queue: measured jobs are added at its head. The
measured jobs are spread over QUEUES queues; the worker serves SERVED queues."""

import asyncio
import sys
import time
from itertools import cycle

import uvloop

from bench.peers.clocks import Phase, latency, throughput
from jobwire import App, Context
from jobwire.systems.queues.engine import BullEngine
from jobwire.systems.queues.options import BullJobOptions
from jobwire.systems.queues.queue import NewBullJob, QueueProducer
from jobwire.systems.queues.settings import BullSettings
from jobwire.systems.queues.worker_connections import WorkerConnections
from jobwire.valkey import Connection
from jobwire.worker import Worker

_BULK = 1_000


async def main(
    url: str,
    server_pid: int,
    mode: str,
    jobs: int,
    waiting: int = 0,
    spread: int = 1,
    served: int = 1,
) -> None:
    async with Connection.open(url) as connection:
        names = ["bench", *(f"bench-{number}" for number in range(1, served))]
        queues = [QueueProducer(connection, name) for name in names]
        app, ended, waits_s = App(), asyncio.Event(), list[float]()
        left = jobs

        @app.handler("noop")
        async def noop(_: Context) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                ended.set()

        @app.handler("timed")
        async def timed(ctx: Context) -> None:
            waits_s.append(time.perf_counter() - ctx.payload["at"])

        shared = WorkerConnections(connection, BullSettings(announce=served == 1))
        worker = Worker(app, [BullEngine(shared, *names)], slots=100)
        if mode == "latency":
            running = asyncio.create_task(worker.run())
            await worker.ready.wait()
            for _ in range(jobs):
                await queues[0].submit("timed", f'{{"at":{time.perf_counter()}}}')
                await asyncio.sleep(0.01)
            while len(waits_s) < jobs:
                await asyncio.sleep(0.01)
            latency(waits_s)
            worker.stop()
            await running
            return
        await _fill(queues[0], waiting)
        numbers = iter(range(jobs))
        targets = cycle(queues[:spread])
        # If other jobs wait, the measured jobs are added at the head of the queue.
        options = BullJobOptions(lifo=waiting > 0)

        async def submit() -> None:
            for number in numbers:
                await next(targets).submit("noop", f'{{"n":{number}}}', options)

        phase = Phase(server_pid)
        await asyncio.gather(*(submit() for _ in range(100)))
        submitted = phase.done(jobs)
        phase = Phase(server_pid)
        running = asyncio.create_task(worker.run())
        await ended.wait()
        throughput(submitted, phase.done(jobs))
        worker.stop()
        await running


async def _fill(queue: QueueProducer, waiting: int) -> None:
    batch = [NewBullJob("later", '{"n":0}')] * _BULK
    for _ in range(waiting // _BULK):
        await queue.submit_many(batch)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:])))
