"""Run tests many times under bad conditions, and name those that failed at least once.

    make flaky ARGS="--times 20 --load 8 --stops 3 tests/valkey -k lease"

Each run has another random order. Beside it runs a load of busy processes (`--load`); the run gets
only a part of the processors' time (`--cpu`); and every few seconds (`--stops`) one random process
of the run, a test process or a server or a program of a test, is stopped for one to three seconds.

Stops use the freezer of Linux' control groups and not SIGSTOP: a test that stops and continues its
own programs by signals is not disturbed. `--cpu` and `--stops` therefore need root and a mounted
cgroup2. The logs of failed runs are kept below `.pytest_cache/flaky`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Final

from tests.support.distribution import FAILED

RECORD: Final = Path(".pytest_cache/v") / FAILED
LOGS: Final = Path(".pytest_cache/flaky")
_GROUPS: Final = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
_PERIOD_S: Final = 0.1
_STOP_S: Final = (1.0, 3.0)
_RUN_LIMIT_S: Final = 3600
_HOG: Final = "import time\nend = time.monotonic() + {limit_s}\nwhile time.monotonic() < end: pass"


class Unsupported(Exception):
    """This machine has no freezer that this user may use."""


class Freezer:
    """A control group for a run, and one in it for the process that is stopped."""

    def __init__(self, group: Path) -> None:
        self._group = group
        self._stopped = group / "stopped"

    @classmethod
    @contextlib.contextmanager
    def opened(cls) -> Generator[Freezer]:
        """Make the groups; remove them at the end."""
        root = next((each for each in _GROUPS if (each / "cgroup.procs").exists()), None)
        if root is None:
            raise Unsupported("no cgroup2 is mounted")
        freezer = cls(root / f"flaky-{os.getpid()}")
        try:
            freezer._stopped.mkdir(parents=True)
        except OSError as error:
            raise Unsupported(f"{root} is not writable: {error.strerror}") from error
        try:
            yield freezer
        finally:
            (freezer._group / "cgroup.kill").write_text("1")
            for folder in (freezer._stopped, freezer._group):
                while folder.exists():
                    with contextlib.suppress(OSError):
                        folder.rmdir()
                    time.sleep(0.01)

    def add_this_process(self) -> None:
        """For a child before it starts its program; all its own children are in the group, too."""
        (self._group / "cgroup.procs").write_text(str(os.getpid()))

    def stop_one(self, over: threading.Event) -> None:
        """Stop a random process of the group for a random time."""
        pids = (self._group / "cgroup.procs").read_text().split()
        if not pids:
            return
        with contextlib.suppress(OSError):  # it has ended meanwhile
            (self._stopped / "cgroup.procs").write_text(random.choice(pids))  # noqa: S311
            (self._stopped / "cgroup.freeze").write_text("1")
        over.wait(random.uniform(*_STOP_S))  # noqa: S311
        (self._stopped / "cgroup.freeze").write_text("0")
        for pid in (self._stopped / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (self._group / "cgroup.procs").write_text(pid)

    def pause_all(self, seconds: float) -> None:
        """Stop the whole run for a part of a period: it gets less of the processors."""
        (self._group / "cgroup.freeze").write_text("1")
        time.sleep(seconds)
        (self._group / "cgroup.freeze").write_text("0")


@contextlib.contextmanager
def load(processes: int) -> Generator[None]:
    """Keep this many processes busy; they end by themselves if this one is killed."""
    command = [sys.executable, "-c", _HOG.format(limit_s=_RUN_LIMIT_S)]
    hogs = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


@contextlib.contextmanager
def disturbed(freezer: Freezer, cpu_percent: int, stops_s: float) -> Generator[None]:
    """Throttle the run and stop its processes until the end of the block."""
    over = threading.Event()

    def stop() -> None:
        while not over.wait(random.uniform(0.5, 1.5) * stops_s):  # noqa: S311
            freezer.stop_one(over)

    def throttle() -> None:
        while not over.wait(_PERIOD_S * cpu_percent / 100):
            freezer.pause_all(_PERIOD_S * (1 - cpu_percent / 100))

    wanted = [*([stop] if stops_s else []), *([throttle] if cpu_percent < 100 else [])]
    threads = [threading.Thread(target=each, daemon=True) for each in wanted]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def run_once(arguments: Sequence[str], log: Path, freezer: Freezer | None) -> list[str]:
    """Run the tests; return those that failed, or the run itself if it broke."""
    command = [sys.executable, "-m", "pytest", "-n", "auto", "--dist=loadgroup", *arguments]
    RECORD.unlink(missing_ok=True)
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=freezer.add_this_process if freezer else None,
        )
        try:
            code = process.wait(_RUN_LIMIT_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.kill()
            process.wait()
            raise
    failed = list[str](json.loads(RECORD.read_text())["failed"]) if RECORD.exists() else []
    return failed or ([] if code == 0 else [f"the run itself: pytest exited with {code}"])


def report(failures: Counter[str], times: int, logs: Sequence[Path]) -> str:
    """Say which tests failed, and how often."""
    if not failures:
        return f"no test failed in {times} runs"
    rows = [f"{count:>4} of {times}  {test}" for test, count in failures.most_common()]
    return "\n".join(["failed at least once:", *rows, "logs:", *(f"  {log}" for log in logs)])


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="make flaky", description="Run tests many times under bad conditions."
    )
    parser.add_argument("--times", type=int, default=10, help="how many runs (10)")
    parser.add_argument("--load", type=int, default=0, metavar="N", help="busy processes beside it")
    parser.add_argument(
        "--cpu", type=int, default=100, metavar="PERCENT", help="of the processors' time, 5 to 100"
    )
    parser.add_argument(
        "--stops", type=float, default=0, metavar="S", help="seconds between stops of a process"
    )
    options, tests = parser.parse_known_args(words)
    if not 5 <= options.cpu <= 100:
        parser.error("--cpu takes 5 to 100")
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    failures, logs = Counter[str](), list[Path]()
    disturbs = options.cpu < 100 or options.stops > 0
    for number in range(1, options.times + 1):
        log, began_s = LOGS / f"{number}.log", time.monotonic()
        with contextlib.ExitStack() as conditions:
            conditions.enter_context(load(options.load))
            freezer = None
            if disturbs:
                try:
                    freezer = conditions.enter_context(Freezer.opened())
                except Unsupported as error:
                    parser.error(f"--cpu and --stops need root and the freezer of cgroup2: {error}")
                conditions.enter_context(disturbed(freezer, options.cpu, options.stops))
            failed = run_once(tests, log, freezer)
        print(f"run {number}: {len(failed)} failed, {time.monotonic() - began_s:.0f} s", flush=True)
        for test in failed:
            print(f"  {test}", flush=True)
        failures.update(failed)
        if failed:
            logs.append(log)
        else:
            log.unlink()
    print(report(failures, options.times, logs))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
