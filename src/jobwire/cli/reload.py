"""`jobwire worker --reload`: the same command as a child, started again when a file changes.

For development only. It looks at the times of the Python files below the working directory, a few
times a second; a child that cannot start is left alone until the next change.
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

_LOOK_EVERY_S: Final = 0.3
_GRACE_S: Final = 10.0
_NOT_OURS: Final = frozenset({"node_modules", "site-packages", "__pycache__"})


def run_again_and_again(arguments: Sequence[str]) -> None:
    """Run `jobwire arguments` until we are told to end."""
    stopping = False

    def stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, stop)
    while not stopping:
        seen = times(Path.cwd())
        child = spawn([sys.executable, "-m", "jobwire", *arguments])
        while not stopping and times(Path.cwd()) == seen:
            time.sleep(_LOOK_EVERY_S)
        if not stopping:
            output.say("a file has changed: starting again")
        _end(child)


def _end(child: ChildProcess) -> None:
    """Give everything back at once; whoever saves a file does not want to wait for a drain."""
    if child.exit_code() is None:
        child.send(signal.SIGTERM)
    if child.exit_code() is None:
        child.stop(_GRACE_S)


def times(folder: Path) -> dict[Path, int]:
    """When each Python file below a folder was last changed."""
    found: dict[Path, int] = {}
    for file in _python_files(folder):
        try:
            found[file] = file.stat().st_mtime_ns
        except OSError:
            continue  # gone while we looked
    return found


def _python_files(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.name.startswith(".") or entry.name in _NOT_OURS:
            continue
        if entry.is_dir():
            yield from _python_files(entry)
        elif entry.suffix == ".py":
            yield entry
