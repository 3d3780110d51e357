"""A program of ours as a part: `python -m jobwire gateway …`, with a word when it is ready.

Parent and child share a pipe. The child writes `ready`, or why it cannot be; if it ends without a
word the pipe does, too. Its output goes where ours goes.
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

_READY: Final = b"ready"
# A part may wait half a minute for its server.
_PATIENCE_S: Final = 60.0


class Program:
    """One of our own programs; `arguments` is what follows `jobwire` on its command line.

    `env` is asked at each start: it may name servers whose address is known only by then.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        env: Callable[[], Mapping[str, str]],
        keep_fds: Sequence[int] = (),
        grace_s: float,
    ) -> None:
        self._name = name
        self._arguments = arguments
        self._env = env
        self._keep_fds = keep_fds
        self._grace_s = grace_s
        self._child: ChildProcess | None = None

    @property
    def pid(self) -> int:
        if self._child is None:
            raise StartFailed(f"the {self._name} is not started")
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.exit_code() is None

    def start(self) -> None:
        """Start it and return when it says that it is ready."""
        ours, theirs = os.pipe()
        try:
            self._child = spawn(
                [sys.executable, "-m", "jobwire", *self._arguments, "--ready-fd", str(theirs)],
                env={**os.environ, **self._env()},
                keep_fds=[theirs, *self._keep_fds],
            )
        finally:
            os.close(theirs)
        try:
            said = _read(ours)
        finally:
            os.close(ours)
        if said != _READY:
            code = self._child.stop(0)
            self._child = None
            raise StartFailed(said.decode() or f"the {self._name} gave up (exit {code})")

    def stop(self) -> None:
        """Ask it to end, and insist after its grace."""
        if self._child is not None:
            self._child.stop(self._grace_s)
            self._child = None


def _read(fd: int) -> bytes:
    """What the child says, up to the end of the line or of the child."""
    said = b""
    deadline_s = time.monotonic() + _PATIENCE_S
    while not said.endswith(b"\n"):
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or not select.select([fd], [], [], left_s)[0]:
            return b"it did not get ready in time"
        part = os.read(fd, 4096)
        if not part:
            break
        said += part
    return said.strip()


class ReadyPipe:
    """The child's end of the pipe; a program started by hand has none, and says nothing."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    @classmethod
    @contextlib.contextmanager
    def of(cls, fd: int | None, *, explain: Callable[[Exception], str]) -> Generator[ReadyPipe]:
        """Start up inside: a failure goes to the parent in words, who says it in our place."""
        pipe = cls(fd)
        try:
            yield pipe
        except Exception as error:
            if not pipe.is_open:
                raise
            pipe._say(" ".join(explain(error).split()).encode())
            raise SystemExit(1) from error

    @property
    def is_open(self) -> bool:
        return self._fd is not None

    def ready(self) -> None:
        """Everything works; from now on a failure is the child's own to tell."""
        self._say(_READY)

    def _say(self, words: bytes) -> None:
        if self._fd is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._fd, words + b"\n")
            os.close(self._fd)
            self._fd = None
