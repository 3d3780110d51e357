"""`jobwire worker --reload`: run the command as a child process; restart it when a file changes.

For development only. The modification times of the Python files below the working directory are
polled. A child that cannot start is restarted at the next change.
"""

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from jobwire.cli import output
from jobwire.spawn import ChildProcess, spawn

_POLL_S: Final = 0.3
_GRACE_S: Final = 10.0
_SKIPPED: Final = frozenset({"node_modules", "site-packages", "__pycache__"})


def run_with_reload(arguments: Sequence[str]) -> None:
    """Run `jobwire arguments` until SIGTERM or SIGINT."""
    stopping = False

    def stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, stop)
    while not stopping:
        before = _modification_times(Path.cwd())
        child = spawn([sys.executable, "-m", "jobwire", *arguments])
        while not stopping and _modification_times(Path.cwd()) == before:
            time.sleep(_POLL_S)
        if not stopping:
            output.info("a file has changed: restarting")
        _stop(child)


def _stop(child: ChildProcess) -> None:
    """Stop without a drain: the second signal makes the worker release its jobs at once."""
    if child.exit_code() is None:
        child.send(signal.SIGTERM)
    if child.exit_code() is None:
        child.stop(_GRACE_S)


def _modification_times(folder: Path) -> dict[Path, int]:
    times: dict[Path, int] = {}
    for file in _python_files(folder):
        try:
            times[file] = file.stat().st_mtime_ns
        except OSError:
            continue  # deleted meanwhile
    return times


def _python_files(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.name.startswith(".") or entry.name in _SKIPPED:
            continue
        if entry.is_dir():
            yield from _python_files(entry)
        elif entry.suffix == ".py":
            yield entry
