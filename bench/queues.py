"""What further queues cost a worker: CPU per job and latency with one idle queue more (Q-10), CPU
per job spread over 16 busy queues of the Streams wire (B-27), and sockets, CPU and memory of a
worker with 100 idle queues (B-20).

Rounds are interleaved, medians count. The limit is a ratio of CPU; latency is printed only.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, cast

import psutil

from bench.measure import Row, cpu_s, medians
from jobwire.local.valkey import LocalValkey

ROOT: Final = Path(__file__).parents[1]
_ROUNDS: Final = 5
_JOBS: Final = 20_000
_LIGHT: Final = 200
_BAR: Final = 1.10
_BUSY_QUEUES: Final = 16
_BUSY_BAR: Final = 1.2
_IDLE_QUEUES: Final = 100
_IDLE_S: Final = 10.0
_IDLE_CPU_BAR: Final = 0.02
_SOCKETS_BAR: Final = 20


def _measure(
    server: LocalValkey, mode: str, jobs: int, idle_queues: int, busy_queues: int = 1
) -> Row:
    command = [sys.executable, "-m", "bench.peers.jobwire_peer", server.admin_url, str(server.pid)]
    done = subprocess.run(
        [*command, mode, str(jobs), str(idle_queues), str(busy_queues)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, {max(os.sched_getaffinity(0))}),
    )
    if done.returncode:
        raise RuntimeError(f"{mode} failed:\n{done.stderr[-2000:]}")
    return cast("dict[str, float]", json.loads(done.stdout.strip().splitlines()[-1]))


def _second_queue(server: LocalValkey) -> bool:
    work: dict[int, list[Row]] = {0: [], 1: []}
    light: dict[int, list[Row]] = {0: [], 1: []}
    for _ in range(_ROUNDS):
        for queues in work:
            work[queues].append(_measure(server, "throughput", _JOBS, queues))
            light[queues].append(_measure(server, "latency", _LIGHT, queues))
    one, two = medians(work[0]), medians(work[1])
    for name in ("work_client_us", "work_server_us", "work_per_s"):
        print(f"{name:<16} one queue {one[name]:8.1f}   two {two[name]:8.1f}")
    for name in ("p50_ms", "p99_ms"):
        print(
            f"{name:<16} one queue {medians(light[0])[name]:8.2f}   two "
            f"{medians(light[1])[name]:8.2f}"
        )
    ratio = two["work_client_us"] / one["work_client_us"]
    met = ratio <= _BAR
    print(f"client CPU with a second queue: {ratio:.2f} (bar {_BAR:g}{_missed(met)})")
    return met


def _busy_queues(server: LocalValkey) -> bool:
    rows: dict[int, list[Row]] = {1: [], _BUSY_QUEUES: []}
    for _ in range(_ROUNDS):
        for queues, own in rows.items():
            own.append(_measure(server, "throughput", _JOBS, 0, queues))
    one, many = medians(rows[1]), medians(rows[_BUSY_QUEUES])
    met = True
    for side in ("client", "server"):
        parts = [f"{phase}_{side}_us" for phase in ("submit", "work")]
        ratio = sum(many[part] for part in parts) / sum(one[part] for part in parts)
        figures = ", ".join(f"{one[part]:.1f} -> {many[part]:.1f}" for part in parts)
        met &= ratio <= _BUSY_BAR
        print(
            f"{side} CPU of a job spread over {_BUSY_QUEUES} queues: {ratio:.2f} x one queue "
            f"(bar {_BUSY_BAR:g}{_missed(ratio <= _BUSY_BAR)}); submit, work: {figures} µs"
        )
    return met


def _idle(server: LocalValkey, kind: str, queues: int) -> tuple[float, float, float]:
    """CPU as a part of a core, MiB and sockets of an idle worker."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "bench.peers.idle_worker", server.admin_url, kind, str(queues)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert worker.stdout is not None
        if worker.stdout.readline().strip() != "ready":
            raise RuntimeError(f"the idle worker ({kind}, {queues} queues) did not start")
        time.sleep(1)
        before_s = cpu_s(worker.pid)
        time.sleep(_IDLE_S)
        used = (cpu_s(worker.pid) - before_s) / _IDLE_S
        process = psutil.Process(worker.pid)
        sockets = sum(each.status == "ESTABLISHED" for each in process.net_connections("all"))
        return used, process.memory_info().rss / 2**20, sockets
    finally:
        worker.kill()
        worker.wait()


def _idle_queues(server: LocalValkey) -> bool:
    met = True
    for kind in ("memory", "bullmq"):
        for queues in (1, _IDLE_QUEUES):
            used, mib, sockets = _idle(server, kind, queues)
            fits = used <= _IDLE_CPU_BAR and sockets <= _SOCKETS_BAR
            met &= fits
            print(
                f"{kind}: {queues} idle queues: CPU {used:.2%} of a core, {mib:.0f} MiB, "
                f"{sockets:.0f} sockets{_missed(fits)}"
            )
    return met


def run() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        server = LocalValkey(folder, admin=True, extra=["appendonly no"])
        with server:
            os.sched_setaffinity(server.pid, {min(os.sched_getaffinity(0))})
            idle = _idle_queues(server)
            busy = _busy_queues(server)
            return _second_queue(server) and busy and idle


def _missed(met: bool) -> str:
    return "" if met else ", NOT MET"
