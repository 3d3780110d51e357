"""The lock of a data directory, with its holder's pid.

Two servers in one directory would corrupt each other's files. The process that starts a server
takes the lock and passes it to the server, so that the lock is held until both have ended, also
when the starting process was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Final, Self

from jobwire.local.errors import DataDirHeld, DataDirUnwritable
from jobwire.private_files import check_directory, open_private

LOCK_FILE: Final = "lock"
# How long a server may take to end after its parent was killed.
_GRACE_S: Final = 10.0


class DataDir:
    """A locked directory; `fd` is the lock, for a server to inherit."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd

    @classmethod
    def hold(cls, path: Path) -> Self:
        """Create the directory if it is missing and lock it."""
        path = path.absolute()
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_directory(path)
            fd = open_private(path / LOCK_FILE, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise DataDirUnwritable(path, error.strerror or str(error)) from error
        try:
            _lock(path, fd)
            os.truncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            os.close(fd)
            raise DataDirUnwritable(path, error.strerror or str(error)) from error
        except DataDirHeld:
            os.close(fd)
            raise
        return cls(path, fd)

    def hide_from_git(self) -> None:
        """Make git ignore the directory: it has passwords, and data of jobs."""
        with contextlib.suppress(FileExistsError):
            fd = open_private(self.path / ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(fd, "w") as file:
                file.write("*\n")

    def release(self) -> None:
        """Close the lock; not an unlock, which would also release it for a running server."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _lock(path: Path, fd: int) -> None:
    deadline = time.monotonic() + _GRACE_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _written_pid(fd)
            # The server of a dead holder is still ending, or a new holder has not written its
            # pid yet: wait.
            holder_alive = holder is not None and _is_alive(holder)
            if holder_alive or time.monotonic() > deadline:
                raise DataDirHeld(path, holder) from None
            time.sleep(0.02)
        else:
            return


def _written_pid(fd: int) -> int | None:
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
