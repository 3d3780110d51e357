"""BullMQ's own Python package, as its documentation shows it; run with the packages of its own
folder."""

import asyncio
import importlib
import os
import sys
import time
from typing import Any

from bench.peers import clocks

# By name: they are not installed where only the tests run.
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
    if mode == "latency":
        worker = bullmq.Worker("bench", work, options)
        await asyncio.sleep(0.2)
        await clocks.paced(jobs, lambda at: queue.add("timed", {"at": at}), waits_s)
    else:
        phase = clocks.Phase(server_pid)
        await clocks.by_100_callers(jobs, lambda number: queue.add("noop", {"n": number}))
        submitted = phase.done(jobs)
        phase = clocks.Phase(server_pid)
        worker = bullmq.Worker("bench", work, options)
        await ended.wait()
        clocks.throughput(submitted, phase.done(jobs))
    sys.stdout.flush()
    del worker
    os._exit(0)  # its own end takes its time, and is nobody's figure


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
