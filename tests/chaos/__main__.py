"""`python -m tests.chaos`: one long run. CHAOS_SEED repeats one, CHAOS_S is its length in seconds.

`python -m tests.chaos kill freeze` allows only those faults; `… mutants` tests the checker
with every broken product, `… mutants no-fence` with one; `… sentinel` kills and pauses primaries;
`… cluster` moves slots, promotes replicas and kills primaries of a Cluster, `… shards` with shards
over all of its nodes (`… cluster shards`);
`… releases` runs an earlier commit and this one side by side, `… releases COMMIT` another one.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.cluster import KINDS as CLUSTER_KINDS
from tests.chaos.cluster import moves
from tests.chaos.mutants import prove
from tests.chaos.plan import AT_SERVER_ONLY, KINDS
from tests.chaos.releases import EARLIER, side_by_side
from tests.chaos.run import chaos
from tests.chaos.sentinel import LEVELS, failovers


def main(args: list[str]) -> int:
    if args[:1] == ["mutants"]:
        return prove(args[1:])
    if args[:1] == ["sentinel"]:
        return max(run_failovers(level) for level in args[1:] or LEVELS)
    if args[:1] == ["cluster"]:
        return max(run_moves(kind) for kind in args[1:] or CLUSTER_KINDS)
    if args == ["shards"]:
        return run_moves("shards")
    if args[:1] == ["releases"]:
        return run_releases(*args[1:2])
    if unknown := set(args) - set(KINDS):
        print(f"no such fault: {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
        return 2
    seed = int(os.environ.get("CHAOS_SEED") or secrets.randbelow(10**6))
    seconds = float(os.environ.get("CHAOS_S") or 240)
    if args:
        return run(seed, seconds, args)
    # Without faults at the workers, no job may be reclaimed from one (R21).
    return max(run(seed, 0.75 * seconds, KINDS), run(seed, 0.25 * seconds, AT_SERVER_ONLY))


def run_failovers(level: str) -> int:
    """One run at a level of durability; 1 if a rule was broken."""
    seed = int(os.environ.get("CHAOS_SEED") or secrets.randbelow(10**6))
    seconds = float(os.environ.get("CHAOS_S") or 120)
    print(f"CHAOS_SEED={seed} for {seconds:g} s of failovers, durability {level}", flush=True)
    with tempfile.TemporaryDirectory(prefix="jobwire-chaos-") as folder:
        outcome = asyncio.run(failovers(Path(folder), seed, seconds, level))
    print(outcome, flush=True)
    return 1 if outcome.violations else 0


def run_moves(kind: str) -> int:
    """One run on a Cluster; 1 if a rule was broken."""
    seed = int(os.environ.get("CHAOS_SEED") or secrets.randbelow(10**6))
    seconds = float(os.environ.get("CHAOS_S") or 60)
    print(f"CHAOS_SEED={seed} for {seconds:g} s of {kind} on a Cluster", flush=True)
    with tempfile.TemporaryDirectory(prefix="jobwire-chaos-") as folder:
        outcome = asyncio.run(moves(Path(folder), seed, seconds, kind))
    print(outcome, flush=True)
    return 1 if outcome.violations else 0


def run_releases(commit: str = EARLIER) -> int:
    """One run of an earlier release and this one; 1 if a rule was broken."""
    seed = int(os.environ.get("CHAOS_SEED") or secrets.randbelow(10**6))
    seconds = float(os.environ.get("CHAOS_S") or 60)
    print(f"CHAOS_SEED={seed} for {seconds:g} s, {commit} and this release", flush=True)
    with tempfile.TemporaryDirectory(prefix="jobwire-chaos-") as folder:
        outcome = asyncio.run(side_by_side(Path(folder), commit, seed, seconds))
    print(outcome, flush=True)
    return 1 if outcome.violations else 0


def run(seed: int, seconds: float, kinds: Sequence[str]) -> int:
    """One run; 1 if a rule was broken."""
    print(f"CHAOS_SEED={seed} for {seconds:g} s of {len(kinds)} kinds of faults", flush=True)
    with tempfile.TemporaryDirectory(prefix="jobwire-chaos-") as folder:
        outcome = asyncio.run(chaos(Path(folder), seed, seconds, kinds))
    print(outcome, flush=True)
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
