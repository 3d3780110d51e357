"""Runs `jobwire` commands, and `jobwire up` as a process that tests observe and kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import httpx
import psutil

from tests.support import Program, wait_until_sync
from tests.support.program import fork_server

_TIMEOUT_S: Final = 60


def clean_env(**variables: str) -> dict[str, str]:
    """The environment without jobwire settings of the test run."""
    ours = ("JOBWIRE_", "VALKEY_", "STREAMS_", "MINIO_", "OPENAI_")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
    return {**kept, **variables}


def jobwire(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [sys.executable, "-m", "jobwire", *arguments]
    variables = clean_env(**(env or {}))
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        if fork_server.can_start(variables):
            files = (out.file.fileno(), err.file.fileno())
            program = fork_server.start(arguments, cwd, variables, *files)
            code = program.wait(_TIMEOUT_S)
            if code is None:
                program.kill()
                raise subprocess.TimeoutExpired(command, _TIMEOUT_S)
        else:
            code = subprocess.run(
                command,
                cwd=cwd,
                env=variables,
                stdout=out.file,
                stderr=err.file,
                timeout=_TIMEOUT_S,
                check=False,
            ).returncode
        text = [Path(file.name).read_text() for file in (out, err)]
    return subprocess.CompletedProcess(command, code, *text)


def is_gone(pid: int) -> bool:
    """Whether a process has ended; a zombie has ended too."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class Up:
    """A running `jobwire up`; ends with the test."""

    def __init__(self, cwd: Path, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        self.cwd = cwd
        self.data_dir = cwd / ".jobwire"
        command = [sys.executable, "-m", "jobwire", "up", "--port", "0", *arguments]
        # Settings of the test run do not reach the program.
        hidden = {name: "" for name in os.environ if name not in clean_env()}
        self.program = Program(command=command, cwd=cwd, env={**hidden, **(env or {})})

    def wait_until_up(self) -> Self:
        line = self.program.wait_for_line('"http":', timeout_s=60)
        facts: dict[str, str] = json.loads(line)
        self.url = facts["http"].replace("localhost", "127.0.0.1")
        return self

    def endpoints(self) -> dict[str, Any]:
        return json.loads((self.data_dir / "endpoints.json").read_bytes())

    def ready(self) -> tuple[int, dict[str, dict[str, Any]]]:
        """Return the status of /readyz, and the parts by name."""
        response = httpx.get(f"{self.url}/readyz", timeout=60, trust_env=False, verify=False)
        return response.status_code, {part["name"]: part for part in response.json()["parts"]}

    def processes(self) -> list[int]:
        """The process and all its descendants."""
        own = psutil.Process(self.program.pid)
        return [own.pid, *(child.pid for child in own.children(recursive=True))]

    def wait_until_gone(self, pids: list[int]) -> None:
        wait_until_sync(lambda: all(map(is_gone, pids)), f"the processes {pids} to end")

    def send(self, signum: signal.Signals) -> None:
        os.kill(self.program.pid, signum)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it cleanly, so that no process is left."""
        if self.program.exit_code is None:
            self.program.terminate()
            self.program.wait()
        self.program.close()
