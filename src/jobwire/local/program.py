"""A jobwire program as child process: `python -m jobwire gateway …`, with a readiness pipe.

The child writes `ready` or its start error into the pipe; the pipe also ends with the child. The
child inherits stdout and stderr.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final

from jobwire.local.errors import StartFailed
from jobwire.spawn import ChildProcess, spawn

READY: Final = "ready"
# A program may wait half a minute for its server.
_READY_TIMEOUT_S: Final = 60.0
_EXIT_S: Final = 5.0


class Program:
    """One child process; `arguments` is what follows `jobwire` on its command line.

    `env` is called at each start: it may contain addresses of servers that started before. With
    `takes_over`, a program that is started after one that died gets that one's process id, as
    `--replaces`; `dead_pid` is one that died before.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        env: Callable[[], Mapping[str, str]],
        keep_fds: Sequence[int] = (),
        grace_s: float,
        takes_over: bool = False,
        dead_pid: int | None = None,
    ) -> None:
        self._name = name
        self._takes_over = takes_over
        self._dead_pid = dead_pid
        self._arguments = arguments
        self._env = env
        self._keep_fds = keep_fds
        self._grace_s = grace_s
        self._child: ChildProcess | None = None
        self._pipe: int | None = None
        self._fault = ""

    @property
    def pid(self) -> int:
        if self._child is None:
            raise StartFailed(f"the {self._name} is not started")
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.exit_code() is None

    def start(self) -> None:
        """Start the program and return when it is ready."""
        if self._takes_over and self._child is not None:
            self._dead_pid = self._child.pid
        replaces = [] if self._dead_pid is None else ["--replaces", str(self._dead_pid)]
        read_fd, write_fd = os.pipe()
        arguments = [*self._arguments, *replaces, "--ready-fd", str(write_fd)]
        try:
            self._child = spawn(
                [sys.executable, "-m", "jobwire", *arguments],
                env={**os.environ, **self._env()},
                keep_fds=[write_fd, *self._keep_fds],
            )
        finally:
            os.close(write_fd)
        self._close_pipe()
        self._pipe, self._fault = read_fd, ""
        message = _read_line(read_fd).decode()
        if message != READY:
            # It has written why and ends by itself, with the exit code of that reason.
            code = self._child.wait(_EXIT_S if message else 0)
            code = self._child.kill() if code is None else code
            self._child = None
            if not message:
                raise StartFailed(f"the {self._name} exited with code {code}")
            raise StartFailed(message, code if code > 0 else None)
        os.set_blocking(read_fd, False)
        self._dead_pid = None

    @property
    def fault(self) -> str:
        """Why it does not do its work though it lives, by its last word; a program that has closed
        the pipe is well."""
        if self._pipe is not None:
            with contextlib.suppress(BlockingIOError):
                lines = os.read(self._pipe, 65536).decode().splitlines()
                if lines:
                    self._fault = "" if lines[-1] == READY else lines[-1]
                else:
                    self._close_pipe()
        return self._fault

    def _close_pipe(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after the grace period."""
        self._close_pipe()
        if self._child is not None:
            self._child.stop(self._grace_s)
            self._child = None


def _read_line(fd: int) -> bytes:
    """Read up to the end of the line or of the pipe; what follows is left to `Program.fault`."""
    line = b""
    deadline_s = time.monotonic() + _READY_TIMEOUT_S
    while not line.endswith(b"\n"):
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or not select.select([fd], [], [], left_s)[0]:
            return b"it was not ready in time"
        part = os.read(fd, 1)
        if not part:
            break
        line += part
    return line.strip()


class ReadyPipe:
    """The child's end of the pipe; a program that was started by hand has none."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    @classmethod
    @contextlib.contextmanager
    def of(
        cls, fd: int | None, *, explain: Callable[[Exception], tuple[str, int]]
    ) -> Generator[ReadyPipe]:
        """Start up inside: an exception is sent to the parent, which reports it. `explain` returns
        its text and the exit code."""
        pipe = cls(fd)
        try:
            yield pipe
        except Exception as error:
            if not pipe.is_open:
                raise
            text, code = explain(error)
            pipe._write(" ".join(text.split()).encode())
            raise SystemExit(code) from error

    @property
    def is_open(self) -> bool:
        return self._fd is not None

    def ready(self) -> None:
        """Report readiness; later errors are reported by the child itself."""
        self._write(READY.encode())

    def _write(self, message: bytes) -> None:
        if self._fd is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._fd, message + b"\n")
            os.close(self._fd)
            self._fd = None
