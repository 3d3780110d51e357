"""`jobwire` programs as forks of one process that has loaded the package.

Such a program is a process of its own, with its own session, arguments, environment, folder, files
and exit code, and dies with the test run; but its start costs no imports: half a second to two
seconds of CPU each, of which the suite has hundreds. The process that forks runs this file. It has
no thread, and closes its own files in each program.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

# Python and the libraries read these when they are loaded.
_READ_AT_START: Final = ("PYTHON", "LC_", "LANG", "LD_", "OTEL_")
# A fork can be given another search path, unless Python would run a module of it before all others.
_SEARCH_PATH: Final = "PYTHONPATH"
_RUN_AT_START: Final = ("sitecustomize.py", "usercustomize.py")
# All modules of these, and what they import.
_PACKAGES: Final = ("jobwire.cli", "jobwire.systems.jobs", "jobwire.systems.queues")
_MODULES: Final = (
    "jobwire.client",
    "jobwire.doctor.machine",
    "jobwire.doctor.program",
    "jobwire.doctor.valkey",
    "jobwire.local.listen",
    "jobwire.page",
    "jobwire.settings",
    "jobwire.valkey.connection",
    "jobwire.systems.backends",
    "jobwire.programs.gateway",
    "jobwire.programs.installation",
    "jobwire.programs.worker",
    "uvloop",
)

used_cpu_s: Final[list[float]] = []
"""Of each program that has ended: it is no child of the process that counts (`seconds`)."""


class ForkServer:
    """The process that forks, as seen by the tests."""

    def __init__(self) -> None:
        self._env: Final = dict(os.environ)
        self._lock = threading.Lock()
        self._requests: socket.socket | None = None

    def can_start(self, env: Mapping[str, str]) -> bool:
        """Whether a program with this environment would load as the server has."""
        return _read_at_start(env) == _read_at_start(self._env) and not any(
            Path(folder, name).exists() for folder in _search_path(env) for name in _RUN_AT_START
        )

    def start(
        self, arguments: Sequence[str], cwd: Path, env: Mapping[str, str], out: int, err: int
    ) -> ForkedProgram:
        """Start `jobwire` with these arguments and files."""
        request = {"arguments": [*arguments], "cwd": str(cwd), "env": dict(env)}
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            requests = self._started()
            socket.send_fds(requests, [b"\n"], [theirs.fileno(), out, err])
            requests.sendall(json.dumps(request).encode() + b"\n")
            return ForkedProgram(ours)

    def _started(self) -> socket.socket:
        if self._requests is None:
            self._requests, theirs = socket.socketpair()
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, __file__, str(theirs.fileno())],
                    env={**self._env, "PYTHONUNBUFFERED": "1"},
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            atexit.register(_close, self._requests, process)
        return self._requests


def _close(requests: socket.socket, process: subprocess.Popen[bytes]) -> None:
    requests.close()  # which ends it
    process.wait()


class ForkedProgram:
    """A program that was forked: used as a `ChildProcess`, but the child of another process."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._received = b""
        self._code: int | None = None
        self.pid: Final = int(self._answer()[0])

    def exit_code(self) -> int | None:
        return self.wait(0)

    def wait(self, timeout_s: float | None = None) -> int | None:
        if self._code is None and (
            self._received or select.select([self._line], [], [], timeout_s)[0]
        ):
            code, cpu_s = self._answer()
            self._code = int(code)
            self._line.close()
            used_cpu_s.append(float(cpu_s))
        return self._code

    def send(self, signum: signal.Signals) -> None:
        if self.exit_code() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signum)

    def kill(self) -> int:
        self.send(signal.SIGKILL)
        code = self.wait()
        assert code is not None
        return code

    def _answer(self) -> list[bytes]:
        # A program that ends at once: its pid and its exit code may arrive together.
        while b"\n" not in self._received:
            part = self._line.recv(64)
            if not part:
                self._line.close()
                self._code = -signal.SIGKILL
                raise RuntimeError("the fork server has ended; its error is in the test's stderr")
            self._received += part
        answer, _, self._received = self._received.partition(b"\n")
        return answer.split()


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    own = {name: value for name, value in env.items() if name.startswith(_READ_AT_START)}
    own.pop("PYTHONUNBUFFERED", None)
    own.pop(_SEARCH_PATH, None)
    return own


def _search_path(env: Mapping[str, str]) -> list[str]:
    return [folder for folder in env.get(_SEARCH_PATH, "").split(os.pathsep) if folder]


class _Request:
    """What a program was asked for; the files are open in the server too until `close`."""

    def __init__(self, text: bytes, files: Sequence[int]) -> None:
        given: dict[str, Any] = json.loads(text)
        self.arguments: list[str] = given["arguments"]
        self.cwd: str = given["cwd"]
        self.env: dict[str, str] = given["env"]
        self.line = socket.socket(fileno=files[0])
        self.files = files[1:]

    def close_files(self) -> None:
        for file in self.files:
            os.close(file)


def _serve(requests: socket.socket) -> _Request | None:
    """Fork programs until the tests end. Returns a request in its program, None in the server."""
    lines: dict[int, socket.socket] = {}
    wake, waker = socket.socketpair()
    with (
        selectors.DefaultSelector() as waiting,
        contextlib.ExitStack() as files,
        requests,
        wake,
        waker,
    ):
        waker.setblocking(False)
        signal.signal(signal.SIGCHLD, _woken)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        waiting.register(requests, selectors.EVENT_READ)
        waiting.register(wake, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in waiting.select()]
            if wake in ready:
                wake.recv(4096)
                _report_ends(lines)
            if requests in ready:
                request = _receive(requests)
                if request is None:
                    for pid in lines:
                        os.kill(pid, signal.SIGKILL)
                    return None
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    for line in (*lines.values(), request.line):
                        files.enter_context(line)
                    return request
                request.close_files()
                lines[pid] = request.line
                request.line.send(b"%d\n" % pid)


def _woken(_signum: int, _frame: object) -> None:
    """A program has ended: the file that wakes the loop is written."""


def _receive(requests: socket.socket) -> _Request | None:
    start, files, _, _ = socket.recv_fds(requests, 1, 3)
    if not start:
        return None
    text = b""
    while not text.endswith(b"\n"):
        part = requests.recv(1 << 16)
        if not part:
            return None
        text += part
    return _Request(text, files)


def _report_ends(lines: dict[int, socket.socket]) -> None:
    while lines:
        pid, status, used = os.wait4(-1, os.WNOHANG)
        if pid == 0:
            return
        with lines.pop(pid) as line, contextlib.suppress(BrokenPipeError):
            code, cpu_s = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
            line.send(b"%d %.3f\n" % (code, cpu_s))


def _become(request: _Request) -> None:
    """Take the session, the signals, the files, the environment and the folder of a program."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number, file in enumerate((nothing, *request.files)):
        os.dup2(file, number)
    os.close(nothing)
    request.close_files()
    sys.path[: 1 + len(_search_path(os.environ))] = [request.cwd, *_search_path(request.env)]
    os.environ.clear()
    os.environ.update(request.env)
    if "PYTHONUNBUFFERED" not in request.env:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - lives as long as the process
    with contextlib.suppress(AttributeError):
        time.tzset()
    os.chdir(request.cwd)
    sys.argv = ["jobwire", *request.arguments]


def main() -> None:
    for name in _PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(package.__path__, f"{name}."):
            importlib.import_module(module.name)
    for name in _MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is loaded is not copied page by page by each fork's garbage collector
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        _become(request)
        # Its SystemExit ends this process, as that of any program.
        runpy.run_module("jobwire", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
