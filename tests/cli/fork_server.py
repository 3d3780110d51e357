"""`jobwire` commands as forks of one process that has loaded the package.

A command is a process of its own with its own arguments, environment, folder and exit code, but its
start costs no imports: half a second of CPU each, of which the suite has hundreds. Used by
`tests.cli.runner`; `python -m tests.cli.fork_server` is the process that forks.
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
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final, cast

_MODULES: Final = (
    "jobwire.client",
    "jobwire.doctor.machine",
    "jobwire.doctor.program",
    "jobwire.doctor.valkey",
    "jobwire.settings",
    "jobwire.valkey.connection",
    "jobwire.wiring.backends",
    "jobwire.wiring.installation",
)


class ForkServer:
    """The process that forks, as seen by the tests; one command at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def run(
        self, arguments: Sequence[str], cwd: Path, env: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str] | None:
        """Run a command to its end; None if another one is running."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
                request = {"arguments": [*arguments], "cwd": str(cwd), "env": dict(env)}
                code = self._exchange({**request, "out": out.name, "err": err.name}, timeout_s)
                text = [Path(file.name).read_text() for file in (out, err)]
                return subprocess.CompletedProcess(["jobwire", *arguments], code, *text)
        finally:
            self._lock.release()

    def _exchange(self, request: Mapping[str, object], timeout_s: float) -> int:
        process = self._started()
        stdin, stdout = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        stdin.write(json.dumps(request).encode() + b"\n")
        pid = int(_line(stdout))
        if not select.select([stdout], [], [], timeout_s)[0]:
            os.kill(pid, signal.SIGKILL)
            _line(stdout)
            raise subprocess.TimeoutExpired(cast("list[str]", request["arguments"]), timeout_s)
        return int(_line(stdout))

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.cli.fork_server"],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
            )
            atexit.register(self._close, self._process)
        return self._process

    def _close(self, process: subprocess.Popen[bytes]) -> None:
        with process:  # closes its stdin, which ends it
            pass


def _line(stdout: IO[bytes]) -> bytes:
    line = stdout.readline()
    if not line:
        raise RuntimeError("the fork server has ended; its error is in the test's stderr")
    return line


def main() -> None:
    import jobwire.cli

    for module in pkgutil.iter_modules(jobwire.cli.__path__):
        importlib.import_module(f"jobwire.cli.{module.name}")
    for name in _MODULES:
        importlib.import_module(name)
    gc.freeze()  # what is loaded is not copied page by page by each fork's garbage collector
    requests, answers = os.dup(0), os.dup(1)
    with os.fdopen(requests, "rb") as lines:
        for line in lines:
            pid = os.fork()
            if pid == 0:
                os.close(answers)
                _become(json.loads(line))
                # Its SystemExit ends this process, as that of any program.
                runpy.run_module("jobwire", run_name="__main__", alter_sys=True)
                return
            os.write(answers, f"{pid}\n".encode())
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.write(answers, f"{code}\n".encode())


def _become(request: Mapping[str, object]) -> None:
    """Take the arguments, the environment, the folder and the files of a command."""
    for number, path in ((0, os.devnull), (1, str(request["out"])), (2, str(request["err"]))):
        file = os.open(path, os.O_RDWR)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(cast("dict[str, str]", request["env"]))
    with contextlib.suppress(AttributeError):
        time.tzset()
    os.chdir(str(request["cwd"]))
    sys.path[0] = str(request["cwd"])
    sys.argv = ["jobwire", *cast("list[str]", request["arguments"])]


if __name__ == "__main__":
    main()
