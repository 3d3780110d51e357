"""A server in a data directory that it alone holds: started, watched, stopped, killed.

What the local Valkey and the local S3 server have in common; how each is launched is its own. Both
are synchronous: a supervisor and a fixture want the server up before their next line.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import IO, ClassVar, Self

from jobwire.local.datadir import DataDir
from jobwire.local.errors import StartFailed
from jobwire.private_files import open_private
from jobwire.spawn import ChildProcess


def new_log(path: Path) -> IO[bytes]:
    """An empty log; the one of the last start is kept beside it."""
    if os.path.lexists(path):
        path.replace(path.with_suffix(".log.old"))
    return os.fdopen(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")


class LocalServer(ABC):
    """One server in one data directory, whose address and data outlive a restart."""

    NAME: ClassVar[str]
    """As people are told of it."""
    STOP_S: ClassVar[float] = 10.0
    """How long it may take to write everything down."""

    def __init__(self, data_dir: Path | str) -> None:
        self.data_dir = Path(data_dir).absolute()
        self._held: DataDir | None = None
        self._child: ChildProcess | None = None

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._running().pid

    @property
    def alive(self) -> bool:
        """Whether the server runs now; what a supervisor looks at."""
        return self._child is not None and self._child.exit_code() is None

    def start(self) -> Self:
        """Start it and return when it serves, after reading its data back if there is any."""
        if self.alive:
            return self
        if self._held is None:
            self._held = DataDir.hold(self.data_dir)
        try:
            self._start(self._held)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Let it write everything down and end; then give the data directory up."""
        if self._child is not None:
            self._child.stop(self.STOP_S)
            self._child = None
        if self._held is not None:
            self._held.release()
            self._held = None

    def kill(self) -> None:
        """End it as a crash would; `start` brings it back on the same port with its data."""
        self._running().kill()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for its end: the exit code, or None if it still runs after that time."""
        return self._running().wait(timeout_s)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def _start(self, held: DataDir) -> None:
        """Launch the program into `_child`, and wait until it serves."""

    def _running(self) -> ChildProcess:
        if self._child is None:
            raise StartFailed(f"{self.NAME} is not started")
        return self._child
