"""`--reload`: run the command as a child process; replace it when a file changes.

For development only. The modification times of the Python files below the working directory are
polled. The child that is replaced takes no more jobs and finishes those that it runs, at most for
its drain time, while the new one runs already. A child that cannot start is started again at the
next change; one that ends later is replaced. A supervisor that waits for the first child to be
ready is told whether there is one from then on.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from jobwire.cli import output
from jobwire.job import retry
from jobwire.local.program import READY
from jobwire.spawn import ChildProcess, spawn

_POLL_S: Final = 0.3
_BACKOFF: Final = retry.exponential(0.5, 15.0, jitter=0)
_STABLE_S: Final = 30.0
"""A child that ran this long is replaced at once when it ends."""
_SKIPPED: Final = frozenset({"node_modules", "site-packages", "__pycache__"})


def run_with_reload(arguments: Sequence[str], *, ready_fd: int | None = None) -> int:
    """Run `jobwire arguments` until SIGTERM or SIGINT; a second signal stops at once. The first
    child reports its readiness on `ready_fd`; without it, the exit code is that child's."""
    signals = 0

    def stop(_signal: int, _frame: FrameType | None) -> None:
        nonlocal signals
        signals += 1

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, stop)
    reloader = Reloader(arguments, told_fd=ready_fd)
    reloader.start(ready_fd=ready_fd)
    while not signals:
        time.sleep(_POLL_S)
        reloader.poll()
    reloader.terminate()
    while reloader.is_running:
        if signals > 1:
            reloader.terminate()  # the second signal makes a worker release its jobs
            signals = 1
        time.sleep(0.05)
    return 0


class Reloader:
    """The current child, and those that finish their jobs."""

    def __init__(
        self, arguments: Sequence[str], folder: Path | None = None, told_fd: int | None = None
    ) -> None:
        self._arguments = list(arguments)
        self._told_fd = told_fd
        self._child_fd: int | None = None
        """The child writes to its other end when it is ready."""
        self._was_ready = False
        self._started_s = 0.0
        self._ends = 0
        """How often a child ended soon after its start."""
        self._start_again: tuple[float, int] | None = None
        """When, and in place of which process."""
        self._folder = folder or Path.cwd()
        self._times = _modification_times(self._folder)
        self._child: ChildProcess | None = None
        self._replaced: list[ChildProcess] = []
        self._held_up = False
        """The child ended while another one still ran, which may have had its port."""

    def start(self, *, ready_fd: int | None = None, replaces: int | None = None) -> None:
        """Start a child; `replaces` is a process that was killed; its leases expire at once."""
        if self._child_fd is not None:
            os.close(self._child_fd)
        self._child_fd, child_end = os.pipe()
        os.set_blocking(self._child_fd, False)
        more = ["--reloader-fd", str(child_end)]
        more += [] if ready_fd is None else ["--ready-fd", str(ready_fd)]
        more += [] if replaces is None else ["--replaces", str(replaces)]
        try:
            self._child = spawn(
                [sys.executable, "-m", "jobwire", *self._arguments, *more],
                keep_fds=[child_end] if ready_fd is None else [child_end, ready_fd],
            )
        finally:
            os.close(child_end)
        self._was_ready, self._start_again = False, None
        self._started_s = time.monotonic()

    def poll(self) -> None:
        """Start a new child if a file has changed, or in place of one that has ended."""
        self._look_whether_ready()
        self._replaced = [child for child in self._replaced if child.exit_code() is None]
        times = _modification_times(self._folder)
        child = self._child
        code = None if child is None else child.exit_code()
        if times != self._times:
            self._times = times
            output.info("a file has changed: starting a new worker")
            if child is not None and code is None:
                child.send(signal.SIGTERM)
                self._replaced.append(child)
            self.start()
        elif child is not None and code is not None:
            self._child = None
            self._held_up = bool(self._replaced)
            self._ended(child.pid, code)
        elif self._start_again is not None:
            at_s, pid = self._start_again
            if time.monotonic() >= at_s:
                self.start(replaces=pid)
        elif child is None and self._held_up and not self._replaced:
            self._held_up = False
            self.start()

    def _look_whether_ready(self) -> None:
        if self._was_ready or self._child_fd is None:
            return
        with contextlib.suppress(BlockingIOError):
            self._was_ready = bool(os.read(self._child_fd, 16))
        if self._was_ready:
            self._tell(READY)

    def _ended(self, pid: int, code: int) -> None:
        """The child has ended without being asked: replace it, unless it could not start."""
        how = (
            f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        )
        if code >= 0 and not self._was_ready:
            self._tell(f"the worker {how} before it was ready; it is started at the next change")
            return
        stable = time.monotonic() - self._started_s > _STABLE_S
        self._ends = 1 if stable else self._ends + 1
        pause_s = 0.0 if self._ends == 1 else retry.delay_s(_BACKOFF, self._ends - 1, 0.0)
        output.info(f"the worker {how}: starting anew")
        self._tell(f"the worker {how} and is being replaced")
        self._start_again = time.monotonic() + pause_s, pid

    def _tell(self, state: str) -> None:
        """Tell the supervisor whether there is a worker."""
        if self._told_fd is not None:
            with contextlib.suppress(OSError):
                os.write(self._told_fd, f"{state}\n".encode())

    def terminate(self) -> None:
        """Send SIGTERM to all children."""
        for child in self._running():
            with contextlib.suppress(ProcessLookupError):
                child.send(signal.SIGTERM)

    @property
    def is_running(self) -> bool:
        return bool(self._running())

    def _running(self) -> list[ChildProcess]:
        children = [*self._replaced, *([self._child] if self._child else [])]
        return [child for child in children if child.exit_code() is None]


def _modification_times(folder: Path) -> dict[Path, int]:
    times: dict[Path, int] = {}
    for file in _python_files(folder):
        try:
            times[file] = file.stat().st_mtime_ns
        except OSError:
            continue  # deleted meanwhile
    return times


def _python_files(folder: Path) -> Iterator[Path]:
    try:
        entries = list(folder.iterdir())
    except OSError:
        return  # deleted meanwhile, or not ours to read
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _SKIPPED:
            continue
        if entry.is_dir():
            yield from _python_files(entry)
        elif entry.suffix == ".py":
            yield entry
