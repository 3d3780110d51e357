"""Children that die with us, also when we are killed and cannot say goodbye.

Used by every room that starts a program, and knows none of them. On Linux the kernel tells the
child of our death; elsewhere a small watchdog holds a pipe whose other end closes when we are gone.

A child never outlives us, and never runs unguarded: the guard stands before the program starts.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Final, Literal

Guard = Literal["kernel", "pipe"]
Stream = int | IO[bytes] | None

# The kernel's way. The parent may die before the signal is asked for, hence the second look.
_KERNEL_LAUNCHER: Final = """
import ctypes, os, sys
parent, signum = int(sys.argv[1]), int(sys.argv[2])
ctypes.CDLL(None, use_errno=True).prctl(1, signum, 0, 0, 0)
if os.getppid() != parent:
    sys.exit(1)
os.execvp(sys.argv[3], sys.argv[3:])
"""

# The pipe's way. The program waits for a byte from its watchdog; without one it never starts.
_PIPE_LAUNCHER: Final = """
import os, sys
fd = int(sys.argv[1])
go = os.read(fd, 1)
os.close(fd)
if not go:
    sys.exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""
_PIPE_WATCHDOG: Final = """
import os, signal, sys
life, go, pid, signum = map(int, sys.argv[1:])
os.write(go, b"g")
os.close(go)
if not os.read(life, 1):
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        pass
"""


def spawn(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdout: Stream = None,
    stderr: Stream = None,
    keep_fds: Sequence[int] = (),
    last_signal: signal.Signals = signal.SIGTERM,
    guard: Guard = "kernel" if sys.platform == "linux" else "pipe",
) -> ChildProcess:
    """Start a program in a session of its own that gets `last_signal` when we die.

    A session of its own, so that Ctrl-C reaches us alone and we stop our children in order.
    """
    words = [str(word) for word in command]
    if shutil.which(words[0]) is None:
        raise FileNotFoundError(f"the program {words[0]} is not installed or may not be run")

    def launch(launcher: str, arguments: Sequence[object], fds: Sequence[int]) -> _Process:
        return subprocess.Popen(
            [sys.executable, "-ISc", launcher, *map(str, arguments)],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            pass_fds=fds,
            start_new_session=True,
        )

    if guard == "kernel":
        arguments = [os.getpid(), int(last_signal), *words]
        return ChildProcess(_forker.run(lambda: launch(_KERNEL_LAUNCHER, arguments, keep_fds)))

    go_read, go_write = os.pipe()
    try:
        process = launch(_PIPE_LAUNCHER, [go_read, *words], [go_read, *keep_fds])
        return ChildProcess(process, _Watchdog(process.pid, go_write, last_signal))
    finally:
        os.close(go_read)
        os.close(go_write)


class ChildProcess:
    """A running program of ours."""

    def __init__(self, process: _Process, watchdog: _Watchdog | None = None) -> None:
        self._process = process
        self._watchdog = watchdog

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """The code it ended with, or None while it runs; minus the signal that killed it."""
        code = self._process.poll()
        if code is not None:
            self._ended()
        return code

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for its end; None if it still runs after that time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self.exit_code()

    def send(self, signum: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        self._process.send_signal(signum)

    def stop(self, grace_s: float = 10.0) -> int:
        """Ask it to end, insist after `grace_s`, and return its exit code."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)  # a stopped process cannot hear the first one
        code = self.wait(grace_s)
        return self.kill() if code is None else code

    def kill(self) -> int:
        """End it at once (SIGKILL)."""
        self.send(signal.SIGKILL)
        code = self._process.wait()
        self._ended()
        return code

    def _ended(self) -> None:
        if self._watchdog is not None:
            self._watchdog.dismiss()
            self._watchdog = None


class _Watchdog:
    """A process that outlives us just long enough to end one child."""

    def __init__(self, pid: int, go: int, last_signal: signal.Signals) -> None:
        life_read, self._life = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-ISc", _PIPE_WATCHDOG]
                + [str(number) for number in (life_read, go, pid, int(last_signal))],
                stdin=subprocess.DEVNULL,
                pass_fds=[life_read, go],
                start_new_session=True,
            )
        finally:
            os.close(life_read)

    def dismiss(self) -> None:
        """The child has ended and its pid may soon belong to a stranger: leave it alone."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._life, b"e")
        os.close(self._life)
        self._process.wait()


class _Forker:
    """One thread that starts all children and lives as long as the process.

    The kernel ties a child to the *thread* that started it, not to the process: a child started
    from a short-lived thread would be told to end while we are well.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def run(self, launch: Callable[[], _Process]) -> _Process:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, args=(self._orders,), name="jobwire-forker", daemon=True
                )
                self._thread.start()
        done: Future[_Process] = Future()
        self._orders.put((launch, done))
        return done.result()

    def _forget(self) -> None:
        # After a fork the thread exists in the parent only.
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._orders: queue.SimpleQueue[_Order] = queue.SimpleQueue()

    @staticmethod
    def _serve(orders: queue.SimpleQueue[_Order]) -> None:
        while True:
            launch, done = orders.get()
            try:
                done.set_result(launch())
            except BaseException as error:  # noqa: BLE001 - it is raised where the order came from
                done.set_exception(error)


_Process = subprocess.Popen[bytes]
_Order = tuple[Callable[[], _Process], Future[_Process]]
_forker: Final = _Forker()
