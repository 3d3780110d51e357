"""CPU of one no-op job on the BullMQ wire: with 1,000 and 1,000,000 jobs waiting behind it, with
999 idle queues, and spread over 20 and 200 busy queues, beside Node over the same (Q-8, B-27).

Rounds are interleaved; medians count. Takes about five minutes on an idle machine and 1 GiB of
memory. Smaller: `python -m bench.bullmq_growth WAITING QUEUES BUSY JOBS ROUNDS`; with WAITING 0 the
waiting jobs are left out.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from bench.jobs import NODE_COMMAND, measure_command
from bench.measure import Row, medians
from jobwire.local.valkey import LocalValkey
from jobwire.valkey import Connection

_GROWTH_BAR: Final = 1.10
_IDLE_BAR: Final = 1.05
_SPREAD_BAR: Final = 1.5
_NODE_BAR: Final = 1.0
_PEER: Final = [sys.executable, "-m", "bench.peers.jobwire_bullmq_peer"]
_PARTS: Final = ("submit_client_us", "work_client_us", "submit_server_us", "work_server_us")
_SCRIPTS: Final = "scripts"


class Sizes(NamedTuple):
    waiting: int = 1_000_000
    queues: int = 1_000
    busy: int = 200
    jobs: int = 20_000
    rounds: int = 3


class Case(NamedTuple):
    name: str
    waiting: int = 0
    queues: int = 1
    """Number of queues over which the measured jobs are spread."""
    served: int = 1
    is_node: bool = False


class Comparison(NamedTuple):
    base: Case
    grown: Case
    bar: float
    sides: Sequence[str] = ("client", "server")


def _comparisons(sizes: Sizes) -> list[Comparison]:
    one = Case("one queue")
    node = Case("Node, one queue", is_node=True)
    found: list[Comparison] = []
    for count in sorted({max(2, sizes.busy // 10), sizes.busy}):
        spread = Case(f"{count:,} busy queues", queues=count, served=count)
        theirs = Case(f"Node, {count:,} queues", queues=count, is_node=True)
        found.append(Comparison(one, spread, _SPREAD_BAR))
        found.append(Comparison(theirs, spread, _NODE_BAR, ("server",)))
    found.insert(0, Comparison(node, one, _NODE_BAR, ("server",)))
    for count, bar in {sizes.queues: _GROWTH_BAR, sizes.busy: _IDLE_BAR}.items():
        idle = Case(f"{count - 1:,} idle queues more", served=count)
        found.append(Comparison(one, idle, bar))
    if sizes.waiting:
        few, many = (Case(f"{count:,} waiting", waiting=count) for count in (1_000, sizes.waiting))
        found.append(Comparison(few, many, _GROWTH_BAR))
    return found


def run(sizes: Sizes | None = None) -> bool:
    sizes = sizes or Sizes()
    comparisons = _comparisons(sizes)
    cases = list(dict.fromkeys(case for each in comparisons for case in (each.base, each.grown)))
    rows: dict[Case, list[Row]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as folder:
        server = LocalValkey(folder, admin=True, extra=["appendonly no"])
        with server:
            os.sched_setaffinity(server.pid, {min(os.sched_getaffinity(0))})
            for _ in range(sizes.rounds):
                for case in cases:
                    rows[case].append(_measure(server, case, sizes.jobs))
    found = {case: medians(rows[case]) for case in cases}
    print(f"load {os.getloadavg()[0]:.1f}; CPU µs per job, and scripts per job")
    names = (*(part.removesuffix("_us") for part in _PARTS), _SCRIPTS)
    print(f"{'':<22}" + "".join(f"{name:>15}" for name in names))
    for case, row in found.items():
        figures = "".join(f"{row[part]:>15.1f}" for part in _PARTS)
        print(f"{case.name:<22}{figures}{row[_SCRIPTS]:>15.3f}")
    verdicts = [_judged(found, each) for each in comparisons]
    return all(verdicts)


def _measure(server: LocalValkey, case: Case, jobs: int) -> Row:
    asyncio.run(_scripts(server.admin_url, reset=True))
    if case.is_node:
        row = measure_command(NODE_COMMAND, server, "throughput", jobs, str(case.queues))
    else:
        more = map(str, (case.waiting, case.queues, case.served))
        row = measure_command(_PEER, server, "throughput", jobs, *more)
    return {**row, _SCRIPTS: asyncio.run(_scripts(server.admin_url)) / jobs}


async def _scripts(url: str, *, reset: bool = False) -> int:
    """How many scripts were called since the last reset."""
    async with Connection.open(url) as connection:
        if reset:
            await connection.call("CONFIG", "RESETSTAT")
        text = cast(str, await connection.call("INFO", "commandstats"))
    calls = (line for line in text.splitlines() if line.startswith("cmdstat_eval"))
    return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in calls)


def _judged(found: dict[Case, dict[str, float]], compared: Comparison) -> bool:
    base, grown, bar, sides = compared
    met = True
    for side in sides:
        parts = [part for part in _PARTS if side in part]
        ratio = sum(found[grown][p] for p in parts) / sum(found[base][p] for p in parts)
        met &= ratio <= bar
        verdict = "" if ratio <= bar else ", NOT MET"
        print(f"{side} CPU, {grown.name}: {ratio:.2f} x {base.name} (bar {bar:g}{verdict})")
    return met


if __name__ == "__main__":
    sys.exit(not run(Sizes(*map(int, sys.argv[1:]))))
