"""huey with four threads, as in its documentation; runs with the packages of its own folder.
It has no event loop: one caller submits."""

import importlib
import sys
import threading
import time

from bench.peers import clocks

# Imported by name: not installed for tests.
huey = importlib.import_module("huey")

waits_s: list[float] = []
ended = threading.Event()


def main(url: str, server_pid: int, mode: str, jobs: int) -> None:
    queue = huey.RedisHuey("bench", url=url.replace("valkey:", "redis:"))
    done = [0]

    @queue.task()
    def noop(_n: int) -> None:
        done[0] += 1
        if done[0] >= jobs:
            ended.set()

    @queue.task()
    def timed(at: float) -> None:
        waits_s.append(time.perf_counter() - at)

    consumer = queue.create_consumer(workers=4, periodic=False)
    clocks.measure_sync(
        server_pid,
        mode,
        jobs,
        start=consumer.start,
        noop=noop,
        timed=timed,
        ended=ended,
        waits_s=waits_s,
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
