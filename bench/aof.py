"""The cost of `appendfsync`, and the jobs that are lost. Only the power cut is simulated.

A load process submits jobs and records the accepted ones. Then the server is killed (-9), or killed
during a slow fsync, or the power is cut: the server is stopped at a random moment, the kernel
reports which pages of the AOF are on the disk (`dirty.py`), and another server starts on a copy
with only those. Accepted jobs that are missing afterwards are lost. The limit: `always` loses none.
"""

import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import aof_ends
from bench.dirty import Unknown
from bench.measure import in_process
from jobwire.local.valkey import LocalValkey
from jobwire.spawn import spawn
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.valkey import Connection

POLICIES: Final = ("no", "everysec", "always")
_ENDS: Final[dict[str, Callable[[LocalValkey], Path]]] = {
    "kill -9": aof_ends.killed,
    "kill -9, disk slow": aof_ends.killed_when_slow,
    "power cut": aof_ends.power_cut,
}
_ROUNDS: Final = 3
_TIMES: Final = 3


def run() -> bool:
    _print_costs()
    print(f"\naccepted jobs that were lost, {_TIMES} times each, with 100 callers")
    lost: dict[str, int] = dict.fromkeys(POLICIES, 0)
    for name, end in _ENDS.items():
        for policy in POLICIES:
            try:
                losses = [_loss(policy, end) for _ in range(_TIMES)]
            except Unknown as error:
                print(f"{name:<20} {policy:<10} not measured: {error}")
                continue
            lost[policy] += sum(loss.lost for loss in losses)
            counts = ", ".join(f"{loss.lost} of {loss.accepted}" for loss in losses)
            print(f"{name:<20} {policy:<10} {counts}", flush=True)
    return not lost["always"]


def _print_costs() -> None:
    rows: dict[str, list[tuple[float, ...]]] = {policy: [] for policy in POLICIES}
    for _ in range(_ROUNDS):
        for policy in POLICIES:
            rows[policy].append(_cost(policy))
    print(f"{'submit':<10} {'100 callers':>24} {'one caller':>24}")
    print(f"{'':<10} {'jobs/s':>12} {'server µs':>11} {'jobs/s':>12} {'ms a job':>11}")
    for policy, measured in rows.items():
        many, us, one = (statistics.median(column) for column in zip(*measured, strict=True))
        print(f"{policy:<10} {many:>12.0f} {us:>11.1f} {one:>12.0f} {1000 / one:>11.2f}")


def _cost(policy: str) -> tuple[float, float, float]:
    """Jobs/s of many callers, server µs per job, jobs/s of one caller."""
    with _server(policy) as server:
        where = (server.url, str(server.pid))
        many = in_process("bench.aof_load", *where, "100", "2", os.devnull)
        one = in_process("bench.aof_load", *where, "1", "1", os.devnull)
    return many["per_s"], many["server_us"], one["per_s"]


@dataclass(frozen=True, slots=True)
class Loss:
    accepted: int
    lost: int


def _loss(policy: str, end: Callable[[LocalValkey], Path]) -> Loss:
    """End the server under load, start another on its data and count the missing jobs."""
    with _server(policy) as server:
        accepted = server.data_dir.with_name("accepted")
        accepted.touch()
        arguments = (server.url, server.pid, 100, 20, accepted)
        load = spawn(
            [sys.executable, "-m", "bench.aof_load", *map(str, arguments)],
            stderr=subprocess.DEVNULL,  # it reports the end of its server
        )
        while accepted.stat().st_size < 10_000:
            time.sleep(0.01)
        time.sleep(random.uniform(0.5, 2.0))
        data = end(server)
        load.kill()
        server.stop()
        job_ids = accepted.read_text().rpartition("\n")[0].splitlines()
        with LocalValkey(data, admin=True) as after:
            return Loss(len(job_ids), asyncio.run(_missing(after.url, job_ids)))


async def _missing(url: str, job_ids: list[str]) -> int:
    async with Connection.open(url) as connection:
        calls = [connection.call("EXISTS", StreamsKeys().job(job_id)) for job_id in job_ids]
        found = [await call for call in calls]
    return found.count(0)


@contextmanager
def _server(policy: str) -> Generator[LocalValkey]:
    with tempfile.TemporaryDirectory(prefix="jobwire-aof-") as folder:
        # No rewrite: all data is in one log.
        extra = [f"appendfsync {policy}", "auto-aof-rewrite-percentage 0"]
        with LocalValkey(Path(folder) / "data", extra=extra, admin=True) as server:
            yield server
