"""Client and server CPU of one no-op job on the BullMQ wire: ours, warm Node 6 and the official
Python package, in the same run on one server (Q-3).

Rounds are interleaved; medians count. The limits are ratios of CPU; rate and latency are printed
only.
"""

import os
import sys
import tempfile
from typing import Final

from bench.jobs import NODE_COMMAND, measure_command
from bench.measure import Row, medians
from jobwire.local.valkey import LocalValkey
from tests.support.thirdparty import python_packages

_ROUNDS: Final = 3
_LIGHT: Final = 200
_OURS: Final = "jobwire"
_NODE: Final = "Node 6"
_PYTHON: Final = "Python package"
_JOBS: Final = {_OURS: 20_000, _NODE: 20_000, _PYTHON: 2_000}
_COMMANDS: Final = {
    _OURS: [sys.executable, "-m", "bench.peers.jobwire_bullmq_peer"],
    _NODE: NODE_COMMAND,
    _PYTHON: [sys.executable, "-m", "bench.peers.bullmq_peer"],
}
_NODE_BAR: Final = 0.6
_PYTHON_BAR: Final = 1 / 8
_SERVER_BAR: Final = 1.0


def run() -> bool:
    work: dict[str, list[Row]] = {peer: [] for peer in _COMMANDS}
    light: dict[str, list[Row]] = {peer: [] for peer in _COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        server = LocalValkey(folder, admin=True, extra=["appendonly no"])
        with server:
            os.sched_setaffinity(server.pid, {min(os.sched_getaffinity(0))})
            for _ in range(_ROUNDS):
                for peer in _COMMANDS:
                    work[peer].append(_measure(peer, server, "throughput", _JOBS[peer]))
                    light[peer].append(_measure(peer, server, "latency", _LIGHT))
    return _report(
        {peer: medians(rows) for peer, rows in work.items()},
        {peer: medians(rows) for peer, rows in light.items()},
    )


def _measure(peer: str, server: LocalValkey, mode: str, jobs: int) -> Row:
    env = {"PYTHONPATH": str(python_packages())} if peer == _PYTHON else {}
    return measure_command(_COMMANDS[peer], server, mode, jobs, **env)


def _report(work: dict[str, dict[str, float]], light: dict[str, dict[str, float]]) -> bool:
    print(f"load {os.getloadavg()[0]:.1f}; CPU µs per job; submit + work = total")
    print(f"{'':<15} {'client':>22} {'server':>22} {'jobs/s':>8} {'p50 ms':>8} {'p99 ms':>8}")
    client = {p: row["submit_client_us"] + row["work_client_us"] for p, row in work.items()}
    server = {p: row["submit_server_us"] + row["work_server_us"] for p, row in work.items()}
    for peer, row in work.items():
        print(
            f"{peer:<15}"
            f" {row['submit_client_us']:>6.1f} +{row['work_client_us']:>6.1f} ={client[peer]:>6.1f}"
            f" {row['submit_server_us']:>6.1f} +{row['work_server_us']:>6.1f} ={server[peer]:>6.1f}"
            f" {row['work_per_s']:>8.0f}"
            f" {light[peer]['p50_ms']:>8.2f} {light[peer]['p99_ms']:>8.2f}"
        )
    met = _judged("client CPU", client[_OURS] / client[_NODE], _NODE, _NODE_BAR)
    met &= _judged("client CPU", client[_OURS] / client[_PYTHON], _PYTHON, _PYTHON_BAR)
    return met & _judged("server CPU", server[_OURS] / server[_NODE], _NODE, _SERVER_BAR)


def _judged(what: str, ratio: float, peer: str, bar: float) -> bool:
    met = ratio <= bar
    print(f"{what}: {ratio:.3f} x that of {peer} (bar {bar:g}{'' if met else ', NOT MET'})")
    return met
