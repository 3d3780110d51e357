"""arq, as its documentation shows it; run with the packages of its own folder."""

import asyncio
import importlib
import os
import sys
import time

from bench.peers import clocks

# By name: they are not installed where only the tests run.
arq = importlib.import_module("arq")
arq_worker = importlib.import_module("arq.worker")
connections = importlib.import_module("arq.connections")
uvloop = importlib.import_module("uvloop")

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
        await clocks.paced(jobs, lambda at: pool.enqueue_job("timed", at), waits_s)
    else:
        phase = clocks.Phase(server_pid)
        await clocks.by_100_callers(jobs, lambda number: pool.enqueue_job("noop", number))
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
