"""Two releases side by side (X-9, G-29): gateways and workers of an earlier commit and of this one.

`python -m tests.chaos releases`: every other program is of the earlier commit, which is unpacked
beside the run's files. Faults, load and checker are those of all runs. Jobs that one release
accepted must have been run by the other, and the other way round.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.chaos.checker import Violation
from tests.chaos.fleet import Fleet
from tests.chaos.history import History
from tests.chaos.plan import KINDS
from tests.chaos.run import Outcome, new_history, run_on
from tests.support.program import ROOT

EARLIER: Final = "b272130d"
"""Before failovers, retention and recorded steps."""
_THIS: Final = "this release"
_NEEDED: Final = ("src", "tests/__init__.py", "tests/chaos/__init__.py", "tests/chaos/handlers.py")


class MixedFleet(Fleet):
    """Programs with an odd number are of the earlier release: a gateway, and one of the workers."""

    def __init__(self, folder: Path, history: History, earlier: Path) -> None:
        super().__init__(folder, history)
        self._earlier = earlier

    def _tree(self, number: int) -> Path | None:
        return self._earlier if number % 2 else None


def is_known(commit: str) -> bool:
    """Whether this clone has the commit."""
    asked = ("git", "cat-file", "-e", f"{commit}^{{commit}}")
    return subprocess.run(asked, cwd=ROOT, capture_output=True, check=False).returncode == 0


def unpack(commit: str, folder: Path) -> Path:
    """The source tree of a commit."""
    folder.mkdir()
    archive = folder / "release.tar"
    packed = ("git", "archive", "--output", str(archive), commit, *_NEEDED)
    subprocess.run(packed, cwd=ROOT, check=True)
    subprocess.run(("tar", "--extract", "--file", str(archive)), cwd=folder, check=True)
    return folder


async def side_by_side(
    folder: Path, commit: str, seed: int, seconds: float, kinds: Sequence[str] = KINDS
) -> Outcome:
    """One run; jobs that crossed from one release to the other are counted."""
    earlier = unpack(commit, folder / "earlier")
    fleet = MixedFleet(folder, new_history(), earlier)
    outcome = await run_on(fleet, folder, seed, seconds, kinds)
    crossed = _crossings(fleet, commit)
    for (accepted, ran), count in sorted(crossed.items()):
        outcome.notes.append(f"accepted by {accepted}, run by {ran}: {count}")
    for way in ((commit, _THIS), (_THIS, commit)):
        if not crossed[way]:
            outcome.violations.append(Violation("X9", f"no job went from {way[0]} to {way[1]}"))
    return outcome


def _crossings(fleet: Fleet, commit: str) -> Counter[tuple[str, str]]:
    """By which release jobs were accepted, and by which they were run."""
    history = fleet.history
    releases = [commit if seat.tree else _THIS for seat in fleet.seats]
    by_port = dict(zip(fleet.ports, releases, strict=False))
    by_pid = {
        str(pid): release
        for seat, release in zip(fleet.seats, releases, strict=True)
        for pid in seat.pids
    }
    accepted = {
        answer.job_id: by_port[answer.port]
        for answer in reversed(history.answers)
        if answer.verb == "submit" and answer.status == 202
    }
    return Counter(
        (accepted[run.job_id], by_pid[run.worker])
        for run in history.runs
        if run.job_id in accepted and run.worker in by_pid
    )
