"""Client and server CPU of adding one job to a BullMQ queue from Python, straight to the server:
`BullQueue`, `SyncBullQueue` and BullMQ's own Python package, in the same run on one server (B-25).

A hundred callers that each add one job (one caller for `SyncBullQueue`), and one caller that adds a
hundred in a call. Rounds are interleaved; medians count. The limit is a ratio of client CPU.
"""

import os
import sys
import tempfile
from typing import Final

from bench.jobs import measure_command
from bench.measure import Row, medians
from jobwire.local.valkey import LocalValkey
from tests.support.thirdparty import python_packages

_ROUNDS: Final = 3
_JOBS: Final = {"ours": 20_000, "sync": 5_000, "python": 5_000}
_NAMES: Final = {"ours": "BullQueue", "sync": "SyncBullQueue", "python": "Python package"}
_MODES: Final = ("add", "bulk")
_COMMAND: Final = [sys.executable, "-m", "bench.peers.bullmq_producer_peer"]
_BAR: Final = 1.0


def run() -> bool:
    rows: dict[tuple[str, str], list[Row]] = {}
    with tempfile.TemporaryDirectory() as folder:
        server = LocalValkey(folder, admin=True, extra=["appendonly no"])
        with server:
            os.sched_setaffinity(server.pid, {min(os.sched_getaffinity(0))})
            for _ in range(_ROUNDS):
                for kind, jobs in _JOBS.items():
                    env = {"PYTHONPATH": str(python_packages())} if kind == "python" else {}
                    for mode in _MODES:
                        row = measure_command(_COMMAND, server, mode, jobs, kind, **env)
                        rows.setdefault((kind, mode), []).append(row)
    found = {each: medians(own) for each, own in rows.items()}
    print(f"load {os.getloadavg()[0]:.1f}; CPU µs per job")
    print(f"{'':<26} {'client':>8} {'server':>8} {'jobs/s':>8}")
    for (kind, mode), row in found.items():
        name = f"{_NAMES[kind]}, {mode}"
        print(f"{name:<26} {row['client_us']:>8.1f} {row['server_us']:>8.1f} {row['per_s']:>8.0f}")
    met = True
    for mode in _MODES:
        ratio = found["ours", mode]["client_us"] / found["python", mode]["client_us"]
        met &= ratio <= _BAR
        verdict = "" if ratio <= _BAR else ", NOT MET"
        print(f"client CPU, {mode}: {ratio:.3f} x that of the package (bar {_BAR:g}{verdict})")
    return met
