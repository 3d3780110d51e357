"""taskiq on Redis Streams with its results, as in its documentation; runs with the packages
of its own folder."""

import asyncio
import importlib
import sys
import time

from bench.peers import clocks

# Imported by name: not installed for tests.
receiver = importlib.import_module("taskiq.api")
taskiq_redis = importlib.import_module("taskiq_redis")
uvloop = importlib.import_module("uvloop")

waits_s: list[float] = []
left = 0
ended = asyncio.Event()


async def noop(_n: int) -> None:
    global left
    left -= 1
    if left == 0:
        ended.set()


async def timed(at: float) -> None:
    waits_s.append(time.perf_counter() - at)


async def main(url: str, server_pid: int, mode: str, jobs: int) -> None:
    global left
    left = jobs
    url = url.replace("valkey:", "redis:")
    results = taskiq_redis.RedisAsyncResultBackend(url, result_ex_time=86_400)
    broker = taskiq_redis.RedisStreamBroker(url).with_result_backend(results)
    do_noop, do_timed = broker.task(noop), broker.task(timed)
    await broker.startup()
    await clocks.measure(
        server_pid,
        mode,
        jobs,
        start=lambda: asyncio.create_task(receiver.run_receiver_task(broker, max_async_tasks=100)),
        noop=do_noop.kiq,
        timed=do_timed.kiq,
        ended=ended,
        waits_s=waits_s,
    )


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
