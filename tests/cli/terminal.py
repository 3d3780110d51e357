"""A command on its own pseudo terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.cli.runner import clean_env
from tests.support.wait import DEADLINE_S


def _without_size(env: dict[str, str]) -> dict[str, str]:
    """The size is that of the pseudo terminal, not of the test run."""
    return {name: text for name, text in env.items() if name not in ("COLUMNS", "LINES")}


class Terminal:
    """`with Terminal("watch", job_id, cwd=…, env=…) as terminal: terminal.until("done")`."""

    def __init__(
        self, *arguments: str, cwd: Path, env: Mapping[str, str], columns: int = 80
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "jobwire", *arguments],
            cwd=cwd,
            env={**_without_size(clean_env()), "TERM": "xterm-256color", **env},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            close_fds=True,
        )
        os.close(theirs)
        os.set_blocking(self._ours, False)
        self.screen = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._ours)

    def until(self, text: str, timeout_s: float = DEADLINE_S) -> None:
        """Read until this text has been shown."""
        deadline = time.monotonic() + timeout_s
        while text not in self.screen:
            if not self._read() or time.monotonic() > deadline:
                raise AssertionError(f"{text!r} was not shown, but:\n{self.screen}")

    def wait(self, timeout_s: float = DEADLINE_S) -> int:
        """Read to the end; return the exit code."""
        deadline = time.monotonic() + timeout_s
        while self._read():
            if time.monotonic() > deadline:
                raise AssertionError(f"it did not end; it shows:\n{self.screen}")
        return self._process.wait(timeout=timeout_s)

    def interrupt(self) -> None:
        """Send what Ctrl-C sends."""
        self._process.send_signal(signal.SIGINT)

    def _read(self) -> bool:
        try:
            chunk = os.read(self._ours, 65536)
        except BlockingIOError:
            time.sleep(0.01)
            return True
        except OSError:  # the other side is closed
            return False
        self.screen += chunk.decode(errors="replace")
        return bool(chunk)
