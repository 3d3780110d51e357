"""Ours: the Streams wire, the whole contract.

A fifth argument is how many idle queues in memory the same worker serves besides (Q-10), a sixth
over how many queues of the wire the jobs are spread (B-27).
"""

import asyncio
import sys
import time

import uvloop

from bench.peers.clocks import Phase, latency, throughput
from bench.peers.idle_engine import IdleEngine
from jobwire import App, Context
from jobwire.job.messages import JobRequest
from jobwire.systems.jobs.contract import DEFAULT_QUEUE
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.queue import StreamsQueue
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection
from jobwire.worker import Worker


async def main(
    url: str, server_pid: int, mode: str, jobs: int, idle_queues: int = 0, spread: int = 1
) -> None:
    settings = StreamsSettings(max_queue=10**7)
    async with Connection.open(url) as connection:
        queue = StreamsQueue(connection, settings)
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

        idle = [IdleEngine(f"idle-{number}") for number in range(idle_queues)]
        names = [DEFAULT_QUEUE, *(f"bench-{number}" for number in range(1, spread))]
        worker = Worker(app, [StreamsEngine(connection, settings, queues=names), *idle], slots=100)
        if mode == "latency":
            running = asyncio.create_task(worker.run())
            await worker.ready.wait()
            for _ in range(jobs):
                await queue.submit(JobRequest("timed", f'{{"at":{time.perf_counter()}}}'))
                await asyncio.sleep(0.01)
            while len(waits_s) < jobs:
                await asyncio.sleep(0.01)
            latency(waits_s)
        else:
            waiting = iter(range(jobs))

            async def submit() -> None:
                for number in waiting:
                    payload, name = f'{{"n":{number}}}', names[number % spread]
                    await queue.submit(JobRequest("noop", payload, queue=name))

            phase = Phase(server_pid)
            await asyncio.gather(*(submit() for _ in range(100)))
            submitted = phase.done(jobs)
            phase = Phase(server_pid)
            running = asyncio.create_task(worker.run())
            await ended.wait()
            worker.stop()
            await running
            throughput(submitted, phase.done(jobs))
            return
        worker.stop()
        await running


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:])))
