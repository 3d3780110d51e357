"""dramatiq with its eight threads, as in its documentation; runs with the packages of its own
folder. It has no event loop: one caller submits."""

import importlib
import sys
import threading
import time

from bench.peers import clocks

# Imported by name: not installed for tests.
dramatiq = importlib.import_module("dramatiq")
redis_broker = importlib.import_module("dramatiq.brokers.redis")

waits_s: list[float] = []
ended = threading.Event()


def main(url: str, server_pid: int, mode: str, jobs: int) -> None:
    broker = redis_broker.RedisBroker(url=url.replace("valkey:", "redis:"))
    dramatiq.set_broker(broker)
    done = [0]

    @dramatiq.actor
    def noop(_n: int) -> None:
        done[0] += 1
        if done[0] >= jobs:
            ended.set()

    @dramatiq.actor
    def timed(at: float) -> None:
        waits_s.append(time.perf_counter() - at)

    worker = dramatiq.Worker(broker, worker_threads=8)
    clocks.measure_sync(
        server_pid,
        mode,
        jobs,
        start=worker.start,
        noop=noop.send,
        timed=timed.send,
        ended=ended,
        waits_s=waits_s,
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
