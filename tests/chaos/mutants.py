"""Test of the checker: broken products, and the rules that must report each.

Called by `python -m tests.chaos mutants`. The mutations are those of `tests/mutations`; here the
whole fleet runs on a broken copy, and random faults must find what a test was written for there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.mutations.__main__ import copy_of_source
from tests.mutations.replacements import ROOT, mutations

LATE: Final = ("freeze", "half_open", "server_frozen")
CUTS: Final = ("cut", "cut_one", "lose_reply", "refuse")
STALLS: Final = ("server_frozen", "server_stopped")
DEATHS: Final = ("kill", "terminate", "server_killed", "lose_reply", "cut_in_command")

WANTED: Final[dict[str, tuple[set[str], tuple[str, ...]]]] = {
    # mutation → (one of these rules must be broken, by these faults)
    "attempt-not-counted": ({"R2", "R8"}, DEATHS),
    "delay-ignored": ({"R15"}, DEATHS),
    "key-creates-second-job": ({"R9"}, DEATHS),
    "no-fence": ({"R3", "R4", "R5", "R6"}, LATE),
    "no-reclaim": ({"R2"}, DEATHS),
    "release-not-requeued": ({"R2", "R7"}, DEATHS),
    "report-without-fence": ({"R3", "R5", "R6"}, LATE),
    "resume-off-by-one": ({"R12"}, DEATHS),
    "settle-not-retried": ({"R2"}, ("cut", "lose_reply", "cut_in_command", "refuse")),
    "slot-freed-too-soon": ({"R13"}, LATE),
    "start-deletes-entry": ({"R2", "R7"}, DEATHS),
    "full-server-no-group": ({"F12"}, ("start_on_full",)),
    "reclaim-charges-stalls": ({"R21"}, STALLS),
    "report-dropped": ({"R19"}, DEATHS),
    "pipelined-take-starts-twice": ({"R20"}, CUTS),
    "ttl-not-refreshed": ({"R1"}, STALLS),
    "cancel-request-forgotten": ({"R11"}, LATE),
}
OVER_FAILOVERS: Final[dict[str, set[str]]] = {
    "key-creates-second-job": {"R9"},
    "no-reclaim": {"R2"},
    "report-dropped": {"R19"},
}
"""The same on a Cluster whose primaries are killed: what a failover may lose hides nothing else."""
TRIES: Final = 3
SECONDS: Final = 12
LONGER: Final = {"ttl-not-refreshed": 25}
"""Runs that need jobs whose delay is longer than their lifetime."""


def prove(names: Sequence[str] = ()) -> int:
    """Run the checker against all broken products, or the named ones; 1 if one was not reported."""
    missed = count = 0
    wanted_names = names or tuple(WANTED)
    for mutation in mutations():
        if mutation.name not in wanted_names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            source = copy_of_source(Path(folder))
            mutation.apply(Path(folder))
            for wanted, faults in _runs(mutation.name):
                found: set[str] = set()
                for seed in range(TRIES):
                    if found & wanted:
                        break
                    seconds = LONGER.get(mutation.name, SECONDS)
                    found |= _rules_broken(source, seed, faults, seconds)
                count += 1
                missed += not found & wanted
                result = "found" if found & wanted else "NOT FOUND"
                broken = ", ".join(sorted(found)) or "nothing"
                print(
                    f"{result:<9} {mutation.name:<26} {mutation.what}: broke {broken}", flush=True
                )
    print(f"{count - missed} of {count} broken products were reported")
    return 1 if missed else 0


def _runs(name: str) -> list[tuple[set[str], tuple[str, ...]]]:
    """The rules that a broken product must break, and the arguments of the run."""
    over_failovers = OVER_FAILOVERS.get(name)
    return [WANTED[name], *([(over_failovers, ("cluster", "kills"))] if over_failovers else [])]


def _rules_broken(source: Path, seed: int, kinds: Sequence[str], seconds: float) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *kinds],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(source),
            "CHAOS_SEED": str(seed),
            "CHAOS_S": str(seconds),
            "CHAOS_QUIET_S": "12",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if "programs died" not in result.stdout:
        raise RuntimeError(f"the run did not reach its end:\n{result.stdout}\n{result.stderr}")
    return set(re.findall(r"^(\w+) is broken", result.stdout, re.MULTILINE))
