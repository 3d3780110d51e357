"""BullMQ's own Python package, as in its documentation; runs with the packages of its own
folder."""

import asyncio
import importlib
import sys
import time
from typing import Any

from bench.peers import clocks

# Imported by name: not installed for tests.
bullmq = importlib.import_module("bullmq")
uvloop = importlib.import_module("uvloop")

waits_s: list[float] = []
left = 0
ended = asyncio.Event()


async def work(job: Any, _token: str) -> None:
    global left
    if job.name == "timed":
        waits_s.append(time.perf_counter() - job.data["at"])
        return
    left -= 1
    if left == 0:
        ended.set()


async def main(url: str, server_pid: int, mode: str, jobs: int) -> None:
    global left
    left = jobs
    url = url.replace("valkey:", "redis:")
    queue = bullmq.Queue("bench", {"connection": url})
    options = {"connection": url, "concurrency": 100}
    await clocks.measure(
        server_pid,
        mode,
        jobs,
        start=lambda: bullmq.Worker("bench", work, options),
        noop=lambda number: queue.add("noop", {"n": number}),
        timed=lambda at: queue.add("timed", {"at": at}),
        ended=ended,
        waits_s=waits_s,
    )


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
