"""Run the tests that failed in the last run once more, and report those that pass as flaky.

A timing fault on a loaded machine fails one test of some thousands; a regression fails again. So
does a test that fails only after certain others: it is first run behind the tests that its process
had run before it, in the same order and with the same seed, and then alone. Only what passes both
times is flaky. It is written to a ledger outside of the tree, which `.ci/run` prints at its end.
At most `LIMIT` tests are run again.

With the name of a failed test as argument, only that is done which a person wants: the test is run
behind those before it, and its failure is shown.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, TypedDict, cast

from tests.support.distribution import FAILED, known_durations
from tests.support.thirdparty import cache_folder

RECORD: Final = Path(".pytest_cache/v") / FAILED
LEDGER: Final = cache_folder() / "flaky.txt"
LIMIT: Final = 5
BEFORE_S: Final = 60.0
"""How long the tests before a failed one may take."""
_SHORT_S: Final = 0.1
_PRINTED: Final = 20


class Failures(TypedDict):
    """What `tests/support/distribution.py` writes."""

    seed: int
    failed: dict[str, list[str]]


def preceding(tests: list[str], durations: dict[str, float], limit_s: float) -> list[str]:
    """The last of the tests that together take no longer than this."""
    chosen: list[str] = []
    for test in reversed(tests):
        limit_s -= durations.get(test, _SHORT_S)
        if limit_s < 0:
            break
        chosen.append(test)
    return chosen[::-1]


def passes(test: str, before: list[str], seed: int) -> bool:
    """Whether the test passes behind these, in this order."""
    RECORD.unlink(missing_ok=True)
    ended = subprocess.run(_in_order([*before, test], seed), check=False).returncode
    # The tests before it may fail: whether they are flaky is not asked here.
    return ended in (0, 1) and test not in recorded()["failed"]


def _in_order(tests: list[str], seed: int) -> list[str]:
    order = ["--randomly-dont-reorganize", f"--randomly-seed={seed}"]
    return [sys.executable, "-m", "pytest", "-q", "-n0", "--tb=short", *order, *tests]


def repeat(test: str) -> int:
    """Run a failed test behind those before it; the record stays."""
    failures = recorded()
    if test not in failures["failed"]:
        sys.stderr.write(f"it did not fail in the last run: {test}\n")
        return 1
    before = preceding(failures["failed"][test], known_durations(), BEFORE_S)
    command = _in_order([*before, test], failures["seed"])
    return subprocess.run([*command, "-p", "no:cacheprovider"], check=False).returncode


def recorded() -> Failures:
    """The failures of the last run."""
    return cast("Failures", json.loads(RECORD.read_text()))


def write_to_ledger(test: str, seed: int) -> None:
    """Append a line: when, at which commit, with which seed."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],  # noqa: S607  (the git of this machine)
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(f"{time.strftime('%Y-%m-%d %H:%M')} {commit} seed={seed} {test}\n")


def print_ledger() -> None:
    """Print its last lines."""
    lines = LEDGER.read_text(encoding="utf-8").splitlines() if LEDGER.exists() else []
    if lines:
        print(f"flaky tests so far: {len(lines)} (in {LEDGER}), the last ones:")
        print("\n".join(lines[-_PRINTED:]))


def main() -> int:
    if not RECORD.exists():
        sys.stderr.write("no failed test is on record: the run itself broke\n")
        return 1
    failed, seed = recorded()["failed"], recorded()["seed"]
    if not 0 < len(failed) <= LIMIT:
        sys.stderr.write(f"{len(failed)} tests failed; at most {LIMIT} are run again\n")
        return 1
    for test, ran in failed.items():
        before = preceding(ran, known_durations(), BEFORE_S)
        sys.stderr.write(f"FLAKY? once more, behind {len(before)} tests, then alone: {test}\n")
        if not (passes(test, before, seed) and passes(test, [], seed)):
            sys.stderr.write(f"not flaky, it failed again (--randomly-seed={seed}): {test}\n")
            return 1
        write_to_ledger(test, seed)
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        print_ledger()
    else:
        sys.exit(repeat(sys.argv[1]) if sys.argv[1:] else main())
