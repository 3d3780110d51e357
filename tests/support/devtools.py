"""Headless Chromium, controlled over a pipe with its DevTools protocol.

`browser.py` builds pages for tests on it. There is no driver and no open port: messages
are JSON texts that end with a zero byte. When the pipe closes Chromium ends, so it does not outlive
a test run that is killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from tests.support.machine import short_folder

Json = dict[str, Any]
Listener = Callable[[str, Json], None]

_FLAGS: Final = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",  # root cannot have one; only pages of ours are opened
    "--no-proxy-server",
    "--no-first-run",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
_ANSWER_S: Final = 60.0
_GRACE_S: Final = 5.0


_LEFT: Final = ("Inspected target navigated or closed", "Execution context was destroyed.")


class DocumentLeft(AssertionError):
    """The page went to another document before the answer."""


class DevTools:
    """One Chromium. `call` works from any thread; events of a session go to its listener."""

    def __init__(self, program: str, folder: Path) -> None:
        self._number = 0
        self._answers: dict[int, Future[Json]] = {}
        self._listeners: dict[str, Listener] = {}
        self._lock = threading.Lock()
        commands, self._send = os.pipe()
        self._receive, replies = os.pipe()
        # Chromium reads commands from descriptor 3 and writes to 4, so these must not be in use.
        commands, replies = (_moved_up(fd) for fd in (commands, replies))
        log = os.open(folder / "chromium.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._files = contextlib.ExitStack()
        temporary = self._files.enter_context(short_folder())
        variables = {
            **os.environ,
            "HOME": str(folder),
            "TMPDIR": str(temporary),
            "LC_ALL": "C.UTF-8",  # else it finds no file whose path is not ASCII
        }
        self._pid = os.posix_spawn(
            program,
            [program, *_FLAGS, f"--user-data-dir={folder / 'profile'}"],
            variables,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, commands, 3),
                (os.POSIX_SPAWN_DUP2, replies, 4),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setpgroup=0,
        )
        for fd in (commands, replies, log):
            os.close(fd)
        self._thread = threading.Thread(target=self._listen, name="devtools", daemon=True)
        self._thread.start()

    def call(self, method: str, session: str | None = None, **params: object) -> Json:
        """Send a command and wait for its result."""
        answer: Future[Json] = Future()
        with self._lock:
            self._number += 1
            number = self._number
            self._answers[number] = answer
            command: Json = {"id": number, "method": method, "params": params}
            if session is not None:
                command["sessionId"] = session
            _write(self._send, json.dumps(command).encode() + b"\0")
        return answer.result(_ANSWER_S)

    def listen(self, session: str, listener: Listener) -> None:
        """Pass the events of a session to a listener, which is called in the reader's thread."""
        self._listeners[session] = listener

    def close(self) -> None:
        """End it, and wait for the end."""
        with contextlib.suppress(OSError):
            self.call("Browser.close")
        os.close(self._send)
        deadline_s = time.monotonic() + _GRACE_S
        while not (ended := self._has_ended()) and time.monotonic() < deadline_s:
            time.sleep(0.01)
        # A remaining child process would hold the pipe open.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        if not ended:
            os.waitpid(self._pid, 0)
        self._thread.join(_GRACE_S)
        assert not self._thread.is_alive(), "a process of Chromium still holds the pipe"
        os.close(self._receive)
        self._files.close()

    def _has_ended(self) -> bool:
        return os.waitpid(self._pid, os.WNOHANG)[0] != 0

    def _listen(self) -> None:
        rest = b""
        while chunk := os.read(self._receive, 1 << 16):
            *messages, rest = (rest + chunk).split(b"\0")
            for raw in messages:
                self._take(json.loads(raw))
        for answer in list(self._answers.values()):
            answer.set_exception(BrokenPipeError("Chromium has ended"))

    def _take(self, message: Json) -> None:
        if "id" in message:
            answer = self._answers.pop(message["id"])
            if "error" in message:
                text = message["error"]["message"]
                error = DocumentLeft if text in _LEFT else AssertionError
                answer.set_exception(error(f"Chromium: {text}"))
            else:
                answer.set_result(message["result"])
        elif listener := self._listeners.get(message.get("sessionId", "")):
            listener(message["method"], message["params"])


def _moved_up(fd: int) -> int:
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(fd)
    return moved


def _write(fd: int, raw: bytes) -> None:
    while raw:
        raw = raw[os.write(fd, raw) :]
