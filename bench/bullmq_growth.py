"""CPU of one no-op job on the BullMQ wire with 1,000 and with 1,000,000 jobs waiting behind it, and
with 1,000 queues (Q-8, B-27).

Rounds are interleaved; medians count. Takes about three minutes on an idle machine and 1 GiB of
memory. Smaller: `python -m bench.bullmq_growth WAITING QUEUES JOBS ROUNDS`.
"""

import os
import sys
import tempfile
from typing import Final, NamedTuple

from bench.jobs import measure_command
from bench.measure import Row, medians
from jobwire.local.valkey import LocalValkey

_BAR: Final = 1.10
_IDLE_BAR: Final = 1.05
_SPREAD_BAR: Final = 1.5
_PEER: Final = [sys.executable, "-m", "bench.peers.jobwire_bullmq_peer"]
_PARTS: Final = ("submit_client_us", "work_client_us", "submit_server_us", "work_server_us")


class Sizes(NamedTuple):
    waiting: int = 1_000_000
    queues: int = 1_000
    jobs: int = 20_000
    rounds: int = 3


class Case(NamedTuple):
    name: str
    waiting: int = 0
    queues: int = 1
    """Number of queues over which the measured jobs are spread."""
    served: int = 1


def run(sizes: Sizes | None = None) -> bool:
    sizes = sizes or Sizes()
    few, many = (Case(f"{count:,} waiting", waiting=count) for count in (1_000, sizes.waiting))
    one = Case("one queue")
    idle = Case(f"{sizes.queues - 1:,} idle queues more", served=sizes.queues)
    spread = Case(f"jobs on {sizes.queues:,} queues", queues=sizes.queues, served=sizes.queues)
    compared = ((few, many, _BAR), (one, idle, _IDLE_BAR), (one, spread, _SPREAD_BAR))
    cases = list(dict.fromkeys(case for pair in compared for case in pair[:2]))
    rows: dict[Case, list[Row]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as folder:
        server = LocalValkey(folder, admin=True, extra=["appendonly no"])
        with server:
            os.sched_setaffinity(server.pid, {min(os.sched_getaffinity(0))})
            for _ in range(sizes.rounds):
                for case in cases:
                    rows[case].append(_measure(server, case, sizes.jobs))
    found = {case: medians(rows[case]) for case in cases}
    print(f"load {os.getloadavg()[0]:.1f}; CPU µs per job")
    print(f"{'':<22}" + "".join(f"{part.removesuffix('_us'):>15}" for part in _PARTS))
    for case, row in found.items():
        print(f"{case.name:<22}" + "".join(f"{row[part]:>15.1f}" for part in _PARTS))
    verdicts = [_judged(found, *pair) for pair in compared]
    return all(verdicts)


def _measure(server: LocalValkey, case: Case, jobs: int) -> Row:
    more = map(str, (case.waiting, case.queues, case.served))
    return measure_command(_PEER, server, "throughput", jobs, *more)


def _judged(found: dict[Case, dict[str, float]], base: Case, grown: Case, bar: float) -> bool:
    met = True
    for side in ("client", "server"):
        parts = [part for part in _PARTS if side in part]
        ratio = sum(found[grown][p] for p in parts) / sum(found[base][p] for p in parts)
        met &= ratio <= bar
        verdict = "" if ratio <= bar else ", NOT MET"
        print(f"{side} CPU, {grown.name}: {ratio:.2f} x {base.name} (bar {bar:g}{verdict})")
    return met


if __name__ == "__main__":
    sys.exit(not run(Sizes(*map(int, sys.argv[1:]))))
