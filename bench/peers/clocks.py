"""What the Python peers measure with; standard library only, since they have their own packages."""

import asyncio
import json
import os
import resource
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Phase:
    """CPU of this process and of the servers, and wall time, from here to `done`."""

    def __init__(self, *server_pids: int) -> None:
        self._server_pids = server_pids
        self._start = self._now()

    def _now(self) -> tuple[float, float, float]:
        own = resource.getrusage(resource.RUSAGE_SELF)
        server_s = sum(map(_cpu_s, self._server_pids))
        return own.ru_utime + own.ru_stime, server_s, time.perf_counter()

    def done(self, jobs: int) -> dict[str, float]:
        """A row of figures for this number of jobs."""
        client_s, server_s, wall_s = (
            now - then for now, then in zip(self._now(), self._start, strict=True)
        )
        return {
            "client_us": client_s / jobs * 1e6,
            "server_us": server_s / jobs * 1e6,
            "per_s": jobs / wall_s,
        }


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def throughput(submit: dict[str, float], work: dict[str, float]) -> None:
    """Print both phases as one object."""
    rows = {"submit": submit, "work": work}
    print(json.dumps({f"{p}_{n}": v for p, row in rows.items() for n, v in row.items()}))


def latency(waits_s: list[float]) -> None:
    """Print p50 and p99 of the waits."""
    cuts = statistics.quantiles(waits_s, n=100)
    print(json.dumps({"p50_ms": cuts[49] * 1e3, "p99_ms": cuts[98] * 1e3}))


async def by_100_callers(jobs: int, submit: Callable[[int], Awaitable[object]]) -> None:
    """Submit with a hundred callers, each with one request in flight."""
    numbers = iter(range(jobs))

    async def call() -> None:
        for number in numbers:
            await submit(number)

    await asyncio.gather(*(call() for _ in range(100)))


async def paced(
    jobs: int, submit: Callable[[float], Awaitable[object]], waits: list[float]
) -> None:
    """Submit the present time about a hundred times a second, until all have arrived."""
    for _ in range(jobs):
        await submit(time.perf_counter())
        await asyncio.sleep(0.01)
    while len(waits) < jobs:
        await asyncio.sleep(0.01)
    latency(waits)


def paced_sync(jobs: int, submit: Callable[[float], object], waits: list[float]) -> None:
    """The same for a peer without an event loop."""
    for _ in range(jobs):
        submit(time.perf_counter())
        time.sleep(0.01)
    while len(waits) < jobs:
        time.sleep(0.01)
    latency(waits)


async def measure(
    server_pid: int,
    mode: str,
    jobs: int,
    *,
    start: Callable[[], object],
    noop: Callable[[int], Awaitable[object]],
    timed: Callable[[float], Awaitable[object]],
    ended: asyncio.Event,
    waits_s: list[float],
) -> NoReturn:
    """Measure a peer with an event loop: `start` its worker, submit `noop` or `timed`."""
    if mode == "latency":
        running = start()
        await asyncio.sleep(0.2)
        await paced(jobs, timed, waits_s)
    else:
        phase = Phase(server_pid)
        await by_100_callers(jobs, noop)
        submitted = phase.done(jobs)
        phase = Phase(server_pid)
        running = start()
        await ended.wait()
        throughput(submitted, phase.done(jobs))
    _exit_now(running)


def measure_sync(
    server_pid: int,
    mode: str,
    jobs: int,
    *,
    start: Callable[[], object],
    noop: Callable[[int], object],
    timed: Callable[[float], object],
    ended: threading.Event,
    waits_s: list[float],
) -> NoReturn:
    """The same for a peer without an event loop: one caller submits."""
    if mode == "latency":
        running = start()
        time.sleep(0.2)
        paced_sync(jobs, timed, waits_s)
    else:
        phase = Phase(server_pid)
        for number in range(jobs):
            noop(number)
        submitted = phase.done(jobs)
        phase = Phase(server_pid)
        running = start()
        ended.wait()
        throughput(submitted, phase.done(jobs))
    _exit_now(running)


def _exit_now(_running: object) -> NoReturn:
    """Exit at once: the shutdown of a worker is not measured."""
    sys.stdout.flush()
    os._exit(0)
