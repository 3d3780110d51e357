"""CPU of one no-op job on the BullMQ wire with 1,000 and with 1,000,000 jobs waiting behind it, and
with 1,000 queues (Q-8).

Rounds are interleaved; medians count. Takes about three minutes and 1 GiB of memory.
"""

import os
import sys
import tempfile
from typing import Final, NamedTuple

from bench.jobs import measure_command
from bench.measure import Row, medians
from jobwire.local.valkey import LocalValkey

_ROUNDS: Final = 3
_JOBS: Final = 20_000
_BAR: Final = 1.10
_PEER: Final = [sys.executable, "-m", "bench.peers.jobwire_bullmq_peer"]


class Case(NamedTuple):
    name: str
    waiting: int = 0
    queues: int = 1
    """On how many the measured jobs are spread."""
    served: int = 1


_FEW: Final = Case("1,000 waiting", waiting=1_000)
_MANY: Final = Case("1,000,000 waiting", waiting=1_000_000)
_ONE: Final = Case("one queue")
_IDLE: Final = Case("999 idle queues more", served=1_000)
_ALL: Final = Case("jobs on 1,000 queues", queues=1_000, served=1_000)
_COMPARED: Final = ((_FEW, _MANY), (_ONE, _IDLE), (_ONE, _ALL))
_PARTS: Final = ("submit_client_us", "work_client_us", "submit_server_us", "work_server_us")


def run() -> bool:
    cases = list(dict.fromkeys(case for pair in _COMPARED for case in pair))
    rows: dict[Case, list[Row]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as folder:
        server = LocalValkey(folder, admin=True, extra=["appendonly no"])
        with server:
            os.sched_setaffinity(server.pid, {min(os.sched_getaffinity(0))})
            for _ in range(_ROUNDS):
                for case in cases:
                    rows[case].append(_measure(server, case))
    found = {case: medians(rows[case]) for case in cases}
    print(f"load {os.getloadavg()[0]:.1f}; CPU µs per job")
    print(f"{'':<22}" + "".join(f"{part.removesuffix('_us'):>15}" for part in _PARTS))
    for case, row in found.items():
        print(f"{case.name:<22}" + "".join(f"{row[part]:>15.1f}" for part in _PARTS))
    verdicts = [_judged(found, *pair) for pair in _COMPARED]
    return all(verdicts)


def _measure(server: LocalValkey, case: Case) -> Row:
    more = map(str, (case.waiting, case.queues, case.served))
    return measure_command(_PEER, server, "throughput", _JOBS, *more)


def _judged(found: dict[Case, dict[str, float]], base: Case, grown: Case) -> bool:
    met = True
    for side in ("client", "server"):
        parts = [part for part in _PARTS if side in part]
        ratio = sum(found[grown][p] for p in parts) / sum(found[base][p] for p in parts)
        met &= ratio <= _BAR
        verdict = "" if ratio <= _BAR else ", NOT MET"
        print(f"{side} CPU, {grown.name}: {ratio:.2f} x {base.name} (bar {_BAR:g}{verdict})")
    return met
