"""The proof of the judge: broken products, and the rules that must notice each.

Called by `python -m tests.chaos mutants`. The patches are those of `tests/mutations`; here the
whole fleet runs on a broken copy, and random faults must find what a test was written for there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.mutations.__main__ import copy_of_source
from tests.mutations.patches import ROOT, mutations

WANTED: Final = {
    "no-fence": {"R3", "R4", "R5", "R6"},
    "no-reclaim": {"R2"},
    "release-without-place": {"R2"},
    "attempt-not-counted": {"R5"},
    "lost-goes-on": {"R5"},
    "report-twice": {"R5"},
    "resume-off-by-one": {"R12"},
    "settle-once-only": {"R2"},
    "lease-not-kept": {"R8"},
    "slot-freed-too-soon": {"R13"},
    "no-adoption": {"R2"},
    "full-server-cannot-settle": {"R2"},
    "reclaim-without-patience": {"R8"},
    "emptied-server-unnoticed": {"F9"},
    "settle-forgets": {"R2"},
}
TRIES: Final = 1
SECONDS: Final = 12


def prove() -> int:
    """How many were found; 1 if one was not."""
    missed = 0
    for mutation in mutations():
        if mutation.name not in WANTED:
            continue
        found: set[str] = set()
        for seed in range(1, TRIES + 1):
            with tempfile.TemporaryDirectory() as folder:
                source = copy_of_source(Path(folder))
                mutation.apply(Path(folder))
                found = _rules_broken(source, seed)
            if found & WANTED[mutation.name]:
                break
        missed += not found & WANTED[mutation.name]
        print(f"{mutation.name:<24} broke {', '.join(sorted(found)) or 'nothing'}", flush=True)
    print(f"{len(WANTED) - missed} of {len(WANTED)} broken products were found out")
    return 1 if missed else 0


def _rules_broken(source: Path, seed: int) -> set[str]:
    said = subprocess.run(
        [sys.executable, "-m", "tests.chaos"],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(source),
            "CHAOS_SEED": str(seed),
            "CHAOS_S": str(SECONDS),
            "CHAOS_QUIET_S": "20",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if "programs died" not in said.stdout:
        raise RuntimeError(f"the run came to nothing:\n{said.stdout}\n{said.stderr}")
    return set(re.findall(r"^(\w+) is broken", said.stdout, re.MULTILINE))
