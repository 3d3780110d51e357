"""`python -m tests.mutations [name …]`: apply each mutation to a copy of the source, run its test.

First all named tests must be green on an unchanged copy. A mutation that no longer applies is a
failure too: it must follow the code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.mutations.replacements import ROOT, Mutation, Stale, mutations

AT_A_TIME: Final = 3  # most of them wait for a condition that is never met
LIMIT_S: Final = 180


def copy_of_source(folder: Path) -> Path:
    """A copy that a mutation may break."""
    copy = folder / "src"
    # With the compiled files: a test starts many programs, and each would compile them again.
    shutil.copytree(ROOT / "src", copy)
    return copy


def tested(source: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    """Run tests against a copy of the source: it comes before the installed one."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S * max(1, len(tests)),
        check=False,
    )


def verdict(mutation: Mutation) -> str:
    """`red` is the wanted result; anything else is a description of what happened."""
    with tempfile.TemporaryDirectory() as folder:
        source = copy_of_source(Path(folder))
        try:
            mutation.apply(Path(folder))
        except Stale as error:
            return f"does not apply: {error}"
        try:
            done = tested(source, mutation.red)
        except subprocess.TimeoutExpired:
            return f"no result within {LIMIT_S} s"
    # 1: tests ran and failed. Other codes prove nothing: nothing collected, a broken import.
    return {0: "GREEN: no test failed", 1: "red"}.get(
        done.returncode, f"pytest ended with {done.returncode}"
    )


def main(names: list[str]) -> int:
    known = mutations()
    chosen = [each for each in known if not names or each.name in names]
    if unknown := set(names) - {each.name for each in known}:
        print(f"no such mutation: {', '.join(sorted(unknown))}")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        control = tested(
            copy_of_source(Path(folder)), *sorted({each.red for each in chosen}), "-n", "2"
        )
    if control.returncode:
        print(f"the tests are not green without a mutation:\n{control.stdout[-3000:]}")
        return 1
    print(f"{len(chosen)} mutations; their tests are green without them", flush=True)
    survived = 0
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for mutation, (verdict, took_s) in zip(chosen, pool.map(_timed, chosen), strict=True):
            survived += verdict != "red"
            print(f"{verdict:<6} {took_s:5.0f} s  {mutation.name:<28} {mutation.what}", flush=True)
            print(f"{'':16} {mutation.red}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} were noticed")
    return 1 if survived else 0


def _timed(mutation: Mutation) -> tuple[str, float]:
    began_s = time.monotonic()
    return verdict(mutation), time.monotonic() - began_s


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
