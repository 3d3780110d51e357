"""Keeps the parts of `jobwire up` running: starts them in order, one that dies again, stops all.

One thread and no surprises: parts are started one after the other, looked at ten times a second,
and stopped in reverse. Whatever is still there when the time is up is killed. A part that ends
comes back after a pause that doubles while it keeps failing.

Every change is told to `tell`, so that others can see which part is in what state.
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

from jobwire.local.errors import LocalError

STOP_WITHIN_S: Final = 9.5
_LOOK_S: Final = 0.1
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 15.0
_STEADY_S: Final = 30.0
"""A part that ran this long has left its troubles behind."""
_log = logging.getLogger("jobwire.up")


class SupervisedServer(Protocol):
    """What can be a part: a server or a program that runs as a process of its own."""

    @property
    def pid(self) -> int: ...
    @property
    def alive(self) -> bool: ...
    def start(self) -> object:
        """Start it and return when it is ready; LocalError if it cannot be."""
        ...

    def stop(self) -> None: ...


State = Literal["starting", "ready", "restarting", "stopped"]


@dataclass(slots=True)
class SupervisedPart:
    """A server with its name, and how it is."""

    name: str
    server: SupervisedServer
    state: State = "stopped"
    note: str = ""
    """Why it is not ready."""
    restarts: int = 0
    failures: int = 0
    next_try_s: float = 0.0
    ready_since_s: float = 0.0

    @property
    def pid(self) -> int | None:
        return self.server.pid if self.server.alive else None


def pause_s(failures: int) -> float:
    """How long to wait before the next start."""
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(failures, 10))


class Supervisor:
    """Runs the parts until a signal comes."""

    def __init__(
        self, parts: Sequence[SupervisedPart], tell: Callable[[Sequence[SupervisedPart]], None]
    ) -> None:
        self._parts = parts
        self._tell = tell
        self._asked_to_stop = threading.Event()
        self._starting: SupervisedPart | None = None

    def run(self, started: Callable[[], None], stopping: Callable[[], None]) -> None:
        """Start everything, call `started`, and keep it running until SIGTERM or SIGINT.

        LocalError if a part cannot be started at all; then nothing is left running.
        """
        with self._signals():
            try:
                for part in self._parts:
                    self._start(part)
                    if self._asked_to_stop.is_set():
                        return
                started()
                while not self._asked_to_stop.wait(_LOOK_S):
                    self._look()
            except LocalError:
                # Told to stop while a part was starting, we ended it ourselves.
                if not self._asked_to_stop.is_set():
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

    def _look(self) -> None:
        now_s = time.monotonic()
        for part in self._parts:
            if part.state == "ready":
                if not part.server.alive:
                    self._on_exit(part, now_s)
                elif part.failures and now_s - part.ready_since_s > _STEADY_S:
                    part.failures = 0
            elif now_s >= part.next_try_s:
                self._start_again(part)

    def _on_exit(self, part: SupervisedPart, now_s: float) -> None:
        wait_s = pause_s(part.failures)
        part.failures += 1
        part.next_try_s = now_s + wait_s
        _log.warning("%s ended; it starts again in %.1f s", part.name, wait_s)
        self._set(part, "restarting", "it ended and is started again")

    def _start_again(self, part: SupervisedPart) -> None:
        part.restarts += 1
        try:
            self._start(part)
        except LocalError as error:
            wait_s = pause_s(part.failures)
            part.failures += 1
            part.next_try_s = time.monotonic() + wait_s
            _log.error("%s: %s; next try in %.1f s", part.name, error, wait_s)
            self._set(part, "restarting", str(error))
        else:
            _log.info("%s is back", part.name)

    def _set(self, part: SupervisedPart, state: State, note: str = "") -> None:
        part.state, part.note = state, note
        self._tell(self._parts)

    # The end

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
        if self._asked_to_stop.is_set():
            self._kill_all()
        self._asked_to_stop.set()
        # A start may last long; ended from outside, it fails and we go on to stop the rest.
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
    """Without waiting: called where nothing may wait."""
    if part.server.alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(part.server.pid, signal.SIGKILL)
