"""Supervises the parts of `jobwire up`: starts them in order, restarts those that exit, stops all.

One thread: parts are started one after the other, polled ten times a second, and stopped in
reverse order. Parts that still run at the stop deadline are killed. A part that exits is restarted
with exponential backoff.

`on_change` is called at every change of a part's state.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Final, Literal, Protocol

from jobwire.job import retry
from jobwire.local.errors import LocalError

STOP_WITHIN_S: Final = 9.5
_POLL_S: Final = 0.1
_BACKOFF: Final = retry.exponential(0.2, 15.0, jitter=0)
_STABLE_S: Final = 30.0
"""A part that ran this long starts with the first backoff again."""
_log = logging.getLogger("jobwire.up")


class SupervisedServer(Protocol):
    """A server or program that runs as a child process."""

    @property
    def pid(self) -> int: ...
    @property
    def alive(self) -> bool: ...
    @property
    def fault(self) -> str:
        """Why it does not do its work though it is alive; empty if it does."""
        ...

    def start(self) -> object:
        """Start and return when ready; LocalError on failure."""
        ...

    def stop(self) -> None: ...


State = Literal["starting", "ready", "restarting", "stopped"]


@dataclass(slots=True)
class SupervisedPart:
    """A server with its name and state."""

    name: str
    server: SupervisedServer
    state: State = "stopped"
    note: str = ""
    """Why the part is not ready."""
    failures: int = 0
    next_try_s: float = 0.0
    ready_since_s: float = 0.0

    @property
    def pid(self) -> int | None:
        return self.server.pid if self.server.alive else None


class Supervisor:
    """Runs the parts until a signal arrives."""

    def __init__(
        self, parts: Sequence[SupervisedPart], on_change: Callable[[Sequence[SupervisedPart]], None]
    ) -> None:
        self._parts = parts
        self._on_change = on_change
        self._stop_requested = threading.Event()
        self._starting: SupervisedPart | None = None

    def run(self, started: Callable[[], None], stopping: Callable[[], None]) -> None:
        """Start all parts, call `started`, and supervise them until SIGTERM or SIGINT.

        LocalError if a part cannot be started; then nothing is left running.
        """
        with self._signals():
            try:
                for part in self._parts:
                    self._start(part)
                    if self._stop_requested.is_set():
                        return
                started()
                while not self._stop_requested.wait(_POLL_S):
                    self._poll()
            except LocalError:
                # A stop during a start kills the starting part, which then fails.
                if not self._stop_requested.is_set():
                    raise
            finally:
                stopping()
                self._stop_all()

    def _start(self, part: SupervisedPart) -> None:
        self._starting = part
        self._set(part, "starting" if part.state == "stopped" else part.state)
        try:
            part.server.start()
        finally:
            self._starting = None
        part.ready_since_s = time.monotonic()
        self._set(part, "ready")

    def _poll(self) -> None:
        now_s = time.monotonic()
        for part in self._parts:
            if part.server.alive:
                if (fault := part.server.fault) != part.note:
                    self._set(part, "restarting" if fault else "ready", fault)
                if part.failures and now_s - part.ready_since_s > _STABLE_S:
                    part.failures = 0
            elif part.state == "ready":
                self._on_exit(part, now_s)
            elif now_s >= part.next_try_s:
                self._restart(part)

    def _on_exit(self, part: SupervisedPart, now_s: float) -> None:
        part.failures += 1
        wait_s = retry.delay_s(_BACKOFF, part.failures, 0.0)
        part.next_try_s = now_s + wait_s
        _log.warning(
            "part exited part=%(part)s after_s=%(after_s)s; it is restarted",
            {"part": part.name, "after_s": round(wait_s, 1)},
        )
        self._set(part, "restarting", "it exited and is being restarted")

    def _restart(self, part: SupervisedPart) -> None:
        try:
            self._start(part)
        except LocalError as error:
            part.failures += 1
            wait_s = retry.delay_s(_BACKOFF, part.failures, 0.0)
            part.next_try_s = time.monotonic() + wait_s
            _log.error(
                "part not restarted part=%(part)s after_s=%(after_s)s error=%(error)s; will retry",
                {"part": part.name, "after_s": round(wait_s, 1), "error": error},
            )
            self._set(part, "restarting", str(error))
        else:
            _log.info("part restarted part=%(part)s", {"part": part.name})

    def _set(self, part: SupervisedPart, state: State, note: str = "") -> None:
        part.state, part.note = state, note
        self._on_change(self._parts)

    # Stopping

    @contextlib.contextmanager
    def _signals(self) -> Generator[None]:
        before = {
            number: signal.signal(number, self._on_signal)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, _signum: int, _frame: FrameType | None) -> None:
        if self._stop_requested.is_set():
            self._kill_all()
        self._stop_requested.set()
        # A start may take long: killing the part ends it, and the rest is stopped.
        if self._starting is not None:
            _kill(self._starting)

    def _stop_all(self) -> None:
        alarm = threading.Timer(STOP_WITHIN_S, self._kill_all)
        alarm.start()
        try:
            for part in reversed(self._parts):
                part.server.stop()
                part.state = "stopped"
        finally:
            alarm.cancel()

    def _kill_all(self) -> None:
        for part in self._parts:
            _kill(part)


def _kill(part: SupervisedPart) -> None:
    """Send SIGKILL without waiting: called from a signal handler."""
    if part.server.alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(part.server.pid, signal.SIGKILL)
