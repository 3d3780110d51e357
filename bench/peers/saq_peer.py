"""saq, as in its documentation; runs with the packages of its own folder."""

import asyncio
import importlib
import sys
import time

from bench.peers import clocks

# Imported by name: not installed for tests.
saq = importlib.import_module("saq")
uvloop = importlib.import_module("uvloop")

waits_s: list[float] = []
left = 0
ended = asyncio.Event()


async def noop(_ctx: object, *, n: int) -> None:  # noqa: ARG001 - the payload
    global left
    left -= 1
    if left == 0:
        ended.set()


async def timed(_ctx: object, *, at: float) -> None:
    waits_s.append(time.perf_counter() - at)


async def main(url: str, server_pid: int, mode: str, jobs: int) -> None:
    global left
    left = jobs
    # Each of the 100 slots blocks a connection; the default limit would leave none to submit.
    queue = saq.Queue.from_url(f"{url.replace('valkey:', 'redis:')}?max_connections=300")
    await queue.connect()
    worker = saq.Worker(queue, functions=[noop, timed], concurrency=100)
    await clocks.measure(
        server_pid,
        mode,
        jobs,
        start=lambda: asyncio.create_task(worker.start()),
        noop=lambda number: queue.enqueue("noop", n=number),
        timed=lambda at: queue.enqueue("timed", at=at),
        ended=ended,
        waits_s=waits_s,
    )


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
