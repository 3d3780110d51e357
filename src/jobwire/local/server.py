"""A server in a locked data directory: what the local Valkey and S3 server have in common.

Synchronous: `start` returns when the server is ready.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import IO, ClassVar, Self

from jobwire.local.datadir import DataDir
from jobwire.local.errors import PortInUse, StartFailed
from jobwire.private_files import open_private
from jobwire.spawn import ChildProcess


def new_log(path: Path) -> IO[bytes]:
    """Open an empty log; the previous one is renamed to `.log.old`."""
    if os.path.lexists(path):
        path.replace(path.with_suffix(".log.old"))
    return os.fdopen(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")


class LocalServer(ABC):
    """One server in one data directory; address and data survive a restart."""

    NAME: ClassVar[str]
    """Its name in messages."""
    STOP_S: ClassVar[float] = 10.0
    """How long it may take to write its data."""

    def __init__(self, data_dir: Path | str) -> None:
        self.data_dir = Path(data_dir).absolute()
        self._lock: DataDir | None = None
        self._child: ChildProcess | None = None

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._running().pid

    @property
    def alive(self) -> bool:
        """Whether the server process runs; polled by the supervisor."""
        return self._child is not None and self._child.exit_code() is None

    @property
    def fault(self) -> str:
        """A server that runs does its work."""
        return ""

    def start(self) -> Self:
        """Start the server and return when it is ready, with its data loaded."""
        if self.alive:
            return self
        if self._lock is None:
            self._lock = DataDir.hold(self.data_dir)
        try:
            self._start(self._lock)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop the server gracefully; then release the data directory."""
        if self._child is not None:
            self._child.stop(self.STOP_S)
            self._child = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def kill(self) -> None:
        """Kill the server; `start` restarts it on the same port with its data."""
        self._running().kill()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for the exit code; None if the server still runs after the timeout."""
        return self._running().wait(timeout_s)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def _start(self, lock: DataDir) -> None:
        """Launch the program into `_child`, and wait until it is ready."""

    def _check_started(self, port: int, log: Path, port_taken: Sequence[str]) -> None:
        """Raise if the server has exited during its start; PortInUse if its log has one of the
        phrases `port_taken`."""
        code = self._running().exit_code()
        if code is None:
            return
        text = log.read_text(errors="replace")
        if any(phrase in text for phrase in port_taken):
            raise PortInUse(port)
        lines = [line for line in text.splitlines() if line.strip()]
        tail = " / ".join(lines[-2:])[-400:] or "its log is empty"
        raise StartFailed(f"{self.NAME} exited with code {code}: {tail}")

    def _running(self) -> ChildProcess:
        if self._child is None:
            raise StartFailed(f"{self.NAME} is not started")
        return self._child
