"""Child processes that die with this process, also when it is killed.

Used by every package that starts a program. On Linux the kernel signals the child when its parent
dies; elsewhere a small watchdog process reads a pipe that closes when the parent dies. The guard is
active before the program starts.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Final, Literal

Guard = Literal["kernel", "pipe"]
Stream = int | IO[bytes] | None
_OWN_GROUPS: Final = Path("/proc/self/cgroup")
_GROUPS: Final = Path("/sys/fs/cgroup")
_KEPT_ENVIRONMENT: Final = ("PATH", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")

# Guard by the kernel. The parent may die before prctl, hence the check of getppid.
_KERNEL_LAUNCHER: Final = """
import ctypes, os, sys
parent, signum = int(sys.argv[1]), int(sys.argv[2])
ctypes.CDLL(None, use_errno=True).prctl(1, signum, 0, 0, 0)
if os.getppid() != parent:
    sys.exit(1)
os.execvp(sys.argv[3], sys.argv[3:])
"""

# Guard by a pipe. The program waits for a byte from its watchdog and does not start without it.
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


def usable_cores() -> int:
    """The cores that this process may use: a container or `taskset` may leave it fewer than the
    machine has."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_memory(groups: Path = _OWN_GROUPS, mounted: Path = _GROUPS) -> int:
    """The bytes of memory that this process may use: those of the machine, or the smallest limit of
    a control group that it is in, for example of a container or a service."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in _memory_limits(groups, mounted):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(limit.read_text()))
    return total


def _memory_limits(groups: Path, mounted: Path) -> Iterator[Path]:
    """The files with the limits, in both versions of control groups. In a container the path of the
    group may exist outside only; the container's own group is then the outermost one."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:  # this system has none
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root, name = mounted, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = mounted / "memory", "memory.limit_in_bytes"
        else:
            continue
        own = root / path.lstrip("/")
        for group in (own, *own.parents):
            if group.is_relative_to(root):
                yield group / name


def how_ended(code: int | None) -> str:
    """An exit code in words; None if the process still runs but has closed its connection."""
    if code is None:
        return "closed its connection"
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


def environment_without_secrets(**more: str) -> dict[str, str]:
    """For a program that reads untrusted data: it finds programs and our modules, nothing else."""
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    return {**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **more}


def spawn(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdout: Stream = None,
    stderr: Stream = None,
    keep_fds: Sequence[int] = (),
    umask: int = -1,
    last_signal: signal.Signals = signal.SIGTERM,
    guard: Guard = "kernel" if sys.platform == "linux" else "pipe",
) -> ChildProcess:
    """Start a program that gets `last_signal` when this process dies.

    It has its own session, so that Ctrl-C reaches only this process, which stops its children in
    order.
    """
    argv = [str(argument) for argument in command]
    if shutil.which(argv[0]) is None:
        raise FileNotFoundError(f"the program {argv[0]} is not installed or not executable")

    def launch(launcher: str, arguments: Sequence[object], fds: Sequence[int]) -> _Process:
        return subprocess.Popen(
            [sys.executable, "-ISc", launcher, *map(str, arguments)],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            pass_fds=fds,
            umask=umask,
            start_new_session=True,
        )

    if guard == "kernel":
        arguments = [os.getpid(), int(last_signal), *argv]
        return ChildProcess(_forker.run(lambda: launch(_KERNEL_LAUNCHER, arguments, keep_fds)))

    go_read, go_write = os.pipe()
    try:
        process = launch(_PIPE_LAUNCHER, [go_read, *argv], [go_read, *keep_fds])
        return ChildProcess(process, _Watchdog(process.pid, go_write, last_signal))
    finally:
        os.close(go_read)
        os.close(go_write)


class ChildProcess:
    """A program started by `spawn`."""

    def __init__(self, process: _Process, watchdog: _Watchdog | None = None) -> None:
        self._process = process
        self._watchdog = watchdog

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """The exit code, None while it runs, minus the signal if one killed it."""
        code = self._process.poll()
        if code is not None:
            self._dismiss_watchdog()
        return code

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for its end; None if it still runs after the timeout."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self.exit_code()

    def send(self, signum: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        self._process.send_signal(signum)

    def stop(self, grace_s: float = 10.0) -> int:
        """Send SIGTERM, then SIGKILL after `grace_s`; returns the exit code."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)  # a suspended process handles SIGTERM only after it
        code = self.wait(grace_s)
        return self.kill() if code is None else code

    def kill(self) -> int:
        """Send SIGKILL and wait; returns the exit code."""
        self.send(signal.SIGKILL)
        code = self._process.wait()
        self._dismiss_watchdog()
        return code

    def _dismiss_watchdog(self) -> None:
        if self._watchdog is not None:
            self._watchdog.dismiss()
            self._watchdog = None


class _Watchdog:
    """A process that outlives this one just long enough to end one child."""

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
        """The child has ended and its pid may be reused: send no signal to it."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._life, b"e")
        os.close(self._life)
        self._process.wait()


class _Forker:
    """One thread that starts all children and lives as long as the process.

    The kernel ties a child to the *thread* that started it, not to the process: a child of a
    short-lived thread would be killed while the process lives.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def run(self, launch: Callable[[], _Process]) -> _Process:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, args=(self._requests,), name="jobwire-forker", daemon=True
                )
                self._thread.start()
        done: Future[_Process] = Future()
        self._requests.put((launch, done))
        return done.result()

    def _reset(self) -> None:
        # After a fork the thread exists in the parent only.
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()

    @staticmethod
    def _serve(requests: queue.SimpleQueue[_Request]) -> None:
        while True:
            launch, done = requests.get()
            try:
                done.set_result(launch())
            except BaseException as error:  # noqa: BLE001 - raised in the calling thread
                done.set_exception(error)


_Process = subprocess.Popen[bytes]
_Request = tuple[Callable[[], _Process], Future[_Process]]
_forker: Final = _Forker()
