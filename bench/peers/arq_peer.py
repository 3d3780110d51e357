"""arq, as its documentation shows it; run by the Python of the peers' venv."""

import asyncio
import importlib
import os
import sys
import time

# By name: they are not installed where only the tests run.
arq = importlib.import_module("arq")
arq_worker = importlib.import_module("arq.worker")
connections = importlib.import_module("arq.connections")
uvloop = importlib.import_module("uvloop")
clocks = importlib.import_module("clocks")  # beside us: `bench` is not in this venv

waits_s: list[float] = []
left = 0
ended = asyncio.Event()


async def noop(_ctx: object, _n: int) -> None:
    global left
    left -= 1
    if left == 0:
        ended.set()


async def timed(_ctx: object, at: float) -> None:
    waits_s.append(time.perf_counter() - at)


async def main(url: str, server_pid: int, mode: str, jobs: int) -> None:
    global left
    left = jobs
    settings = connections.RedisSettings.from_dsn(url.replace("valkey:", "redis:"))
    pool = await arq.create_pool(settings)
    worker = arq_worker.Worker(
        functions=[noop, timed],
        redis_settings=settings,
        max_jobs=100,
        handle_signals=False,
        # Its queue is polled; nobody waits for the last poll.
        poll_delay=0.5,
    )
    if mode == "latency":
        running = asyncio.create_task(worker.async_run())
        await asyncio.sleep(0.2)
        for _ in range(jobs):
            await pool.enqueue_job("timed", time.perf_counter())
            await asyncio.sleep(0.01)
        while len(waits_s) < jobs:
            await asyncio.sleep(0.01)
        clocks.latency(waits_s)
    else:
        waiting = iter(range(jobs))

        async def submit() -> None:
            for number in waiting:
                await pool.enqueue_job("noop", number)

        phase = clocks.Phase(server_pid)
        await asyncio.gather(*(submit() for _ in range(100)))
        submitted = phase.done(jobs)
        phase = clocks.Phase(server_pid)
        running = asyncio.create_task(worker.async_run())
        await ended.wait()
        clocks.throughput(submitted, phase.done(jobs))
    sys.stdout.flush()
    running.cancel()
    os._exit(0)  # its own end takes its time, and is nobody's figure


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
