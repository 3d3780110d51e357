"""Helpers of the benchmarks: a fresh process per measurement, CPU times, medians.

The benchmarks interleave their rounds (all peers once, then all again), so that noise affects all
peers.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import cast

import psutil

Row = Mapping[str, float]


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def in_process(
    module: str, *args: str, timeout_s: float = 120, python: str = sys.executable
) -> dict[str, float]:
    """Run `python -m module args` and read the JSON object on its last line."""
    done = subprocess.run(
        [python, "-m", module, *args],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{module} {' '.join(args)} failed:\n{done.stderr[-2000:]}")
    return cast("dict[str, float]", json.loads(done.stdout.strip().splitlines()[-1]))


def medians(rows: Sequence[Row]) -> dict[str, float]:
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}
