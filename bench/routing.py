"""Start latency of a worker's jobs beside a worker with other tasks, and alone (J-53).

1,000 jobs at 50 a second, five interleaved rounds, medians.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Final

from bench.measure import Row, in_process, medians
from jobwire.local.valkey import LocalValkey

ROOT: Final = Path(__file__).parents[1]
_PEER: Final = "bench.peers.routing_peer"
_ROUNDS: Final = 5
_JOBS: Final = 1_000
_RATE: Final = 50
_BARS: Final = {"p50_ms": 1.1, "p99_ms": 1.5}


@contextlib.contextmanager
def _unlike_worker(url: str) -> Generator[None]:
    worker = subprocess.Popen(
        [sys.executable, "-m", _PEER, url, "unlike"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert worker.stdout is not None
        if worker.stdout.readline().strip() != "ready":
            raise RuntimeError("the unlike worker did not start")
        yield
    finally:
        worker.kill()
        worker.wait()


def _measure(url: str) -> Row:
    return in_process(_PEER, url, "measured", str(_JOBS), str(_RATE))


def run() -> bool:
    alone: list[Row] = []
    beside: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        server = LocalValkey(folder, admin=True, extra=["appendonly no"])
        with server:
            for _ in range(_ROUNDS):
                alone.append(_measure(server.admin_url))
                with _unlike_worker(server.admin_url):
                    beside.append(_measure(server.admin_url))
    print(f"load average of the last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    one, two, met = medians(alone), medians(beside), True
    for name, bar in _BARS.items():
        ratio = two[name] / one[name]
        met &= ratio <= bar
        missed = "" if ratio <= bar else ", NOT MET"
        print(
            f"{name:<7} alone {one[name]:7.2f}   beside {two[name]:7.2f}   ratio {ratio:.2f} "
            f"(bar {bar:g}{missed})"
        )
    return met
