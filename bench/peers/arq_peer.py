"""arq, as in its documentation; runs with the packages of its own folder."""

import asyncio
import importlib
import sys
import time

from bench.peers import clocks

# Imported by name: not installed for tests.
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
        # Its queue is polled; the last poll is not measured.
        poll_delay=0.5,
    )
    await clocks.measure(
        server_pid,
        mode,
        jobs,
        start=lambda: asyncio.create_task(worker.async_run()),
        noop=lambda number: pool.enqueue_job("noop", number),
        timed=lambda at: pool.enqueue_job("timed", at),
        ended=ended,
        waits_s=waits_s,
    )


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
