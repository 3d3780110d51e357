"""`python -m tests.mutations [name …]`: apply each mutation to a copy of the source, run its test.

First all named tests must be green on an unchanged copy. A mutation that no longer applies is a
failure too: it must follow the code. Some run at a time, each with a time limit: the command ends.

`--changed` chooses, for `.ci/run`: at most `--at-most` mutations whose file, test or description
changed in the last commits (since the merge base with `JOBWIRE_CHANGED_SINCE`, if that is set) or
in the working tree, the newest change first. Their tests have just been green there, so they are
not run without the mutation.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Final

from tests.mutations.replacements import HERE, ROOT, Mutation, Stale, mutations
from tests.support.distribution import number_of_workers

TEST_LIMIT_S: Final = 60  # a test that hangs is red; its own limit would be four minutes
LIMIT_S: Final = 400.0  # also on a machine that is several times slower than usual
CONTROL_LIMIT_S: Final = 1200.0
SINCE: Final = "JOBWIRE_CHANGED_SINCE"
COMMITS: Final = 10
RED: Final = "red"
NO_RESULT: Final = "no result"


def copy_of_source(folder: Path) -> Path:
    """A copy that a mutation may break."""
    copy = folder / "src"
    # With the compiled files: a test starts many programs, and each would compile them again.
    shutil.copytree(ROOT / "src", copy)
    return copy


def tested(source: Path, limit_s: float, *arguments: str) -> tuple[int | None, str]:
    """Run tests against a copy of the source, which comes before the installed one.

    Return pytest's exit code, None after the limit, and its output."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        # The output is a file and the group is killed: programs that a test has started may
        # outlive it, and would keep a pipe open.
        running = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(source)},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            ended = running.wait(limit_s)
        except subprocess.TimeoutExpired:
            ended = None
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()
        output.seek(0)
        return ended, output.read()


def verdict(mutation: Mutation) -> str:
    """`red` is the wanted result; anything else is a description of what happened."""
    with tempfile.TemporaryDirectory() as folder:
        source = copy_of_source(Path(folder))
        try:
            mutation.apply(Path(folder))
        except Stale as error:
            return f"does not apply: {error}"
        ended, _ = tested(source, LIMIT_S, f"--timeout={TEST_LIMIT_S}", mutation.red)
    match ended:
        case 0:
            return "GREEN: no test failed"
        case 1:
            return RED
        case None:
            return f"{NO_RESULT} within {LIMIT_S:.0f} s"
        case _:  # it proves nothing: no test was collected, or an import is broken
            return f"pytest ended with {ended}"


def files_of(mutation: Mutation) -> set[str]:
    """The files whose change is a reason to run it."""
    description = HERE / f"{mutation.name}.toml"
    changed = {each.file for each in mutation.replacements}
    return {*changed, mutation.red.partition("::")[0], str(description.relative_to(ROOT))}


def chosen(known: Sequence[Mutation], changed: Sequence[str], seed: str) -> list[Mutation]:
    """The mutations of changed files (the newest change first), ties in an order of the seed."""
    rank = {file: at for at, file in reversed(list(enumerate(changed)))}
    touched = [each for each in known if files_of(each) & rank.keys()]
    random.Random(seed).shuffle(touched)
    return sorted(
        touched, key=lambda each: min(rank.get(file, len(rank)) for file in files_of(each))
    )


def changed_files(root: Path = ROOT) -> list[str]:
    """Files of the working tree that are not committed, then those of the last commits."""
    since = os.environ.get(SINCE)
    base = _git(root, "merge-base", "HEAD", since) if since else []
    span = [f"{base[0]}..HEAD"] if base else [f"--max-count={COMMITS}"]
    open_files = _git(root, "diff", "--name-only", "HEAD")
    committed = _git(root, "log", "--name-only", "--format=", *span)
    return list(dict.fromkeys([*open_files, *committed]))


def _git(root: Path, *arguments: str) -> list[str]:
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    return [line for line in done.stdout.splitlines() if line]


def run(selected: Sequence[Mutation]) -> dict[str, str]:
    """Run the mutations, some at a time, and print each result; return those that are not red."""
    at_a_time = number_of_workers()
    others: dict[str, str] = {}
    with ThreadPoolExecutor(at_a_time) as pool:
        results = {pool.submit(_timed, each): each for each in selected}
        for result in as_completed(results):
            mutation, (found, took_s) = results[result], result.result()
            if found != RED:
                others[mutation.name] = found
            print(f"{found:<6} {took_s:5.0f} s  {mutation.name:<28} {mutation.what}", flush=True)
            print(f"{'':16} {mutation.red}", flush=True)
    print(f"{len(selected) - len(others)} of {len(selected)} were noticed")
    return others


def _timed(mutation: Mutation) -> tuple[str, float]:
    began_s = time.monotonic()
    return verdict(mutation), time.monotonic() - began_s


def is_green(selected: Sequence[Mutation]) -> bool:
    """Whether the tests pass on an unchanged copy."""
    with tempfile.TemporaryDirectory() as folder:
        source = copy_of_source(Path(folder))
        tests = sorted({each.red for each in selected})
        parallel = ("-n", str(number_of_workers()))
        ended, output = tested(source, CONTROL_LIMIT_S, *parallel, "--dist=loadgroup", *tests)
    if ended:
        print(f"the tests are not green without a mutation:\n{output[-3000:]}")
    elif ended is None:
        print(f"the tests without a mutation have no end within {CONTROL_LIMIT_S:.0f} s")
    return ended == 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations")
    parser.add_argument("names", nargs="*", help="all of them, if none is named")
    parser.add_argument("--changed", action="store_true", help="only those of changed files")
    parser.add_argument("--at-most", type=int, default=6, help="how many of --changed")
    options = parser.parse_args()
    names: list[str] = options.names
    known = mutations()
    if unknown := set(names) - {each.name for each in known}:
        print(f"no such mutation: {', '.join(sorted(unknown))}")
        return 2
    if options.changed:
        touched = chosen(known, changed_files(), seed="".join(_git(ROOT, "rev-parse", "HEAD")))
        selected = touched[: options.at_most]
        print(f"{len(touched)} mutations of changed files, {len(selected)} of them run", flush=True)
        # A busy machine may be too slow for one; `make mutate` decides about it.
        others = run(selected)
        return 1 if any(not each.startswith(NO_RESULT) for each in others.values()) else 0
    selected = [each for each in known if not names or each.name in names]
    if not is_green(selected):
        return 1
    print(f"{len(selected)} mutations; their tests are green without them", flush=True)
    return 1 if run(selected) else 0


if __name__ == "__main__":
    sys.exit(main())
