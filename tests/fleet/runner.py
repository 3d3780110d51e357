"""Starts an installation's programs by the command line, and ends them with the test."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import httpx

from jobwire import AsyncClient, Client
from jobwire.local import LocalValkey, free_port
from tests.cli.runner import clean_env
from tests.support import Program, wait_until_sync
from tests.support.program import ROOT

APP = "tests.fleet.app:app"


class Fleet:
    """`with Fleet(folder) as fleet: fleet.start_gateway(); fleet.start_worker()`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._stack = contextlib.ExitStack()
        self.valkey = LocalValkey(folder / "valkey", admin=True)
        self.worker: Program | None = None

    def __enter__(self) -> Self:
        self._stack.enter_context(self.valkey)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def env(self) -> dict[str, str]:
        """The environment with which a program finds the servers."""
        return {"JOBWIRE_URL": self.url}

    def start(self, *args: str, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> Program:
        """A program of ours, on our server."""
        hidden = {name: "" for name in os.environ if name not in clean_env()}
        ours = {
            "JOBWIRE_VALKEY_URL": self.valkey.url,
            "JOBWIRE_DATA_DIR": str(self.folder / "data"),
        }
        command = [sys.executable, "-m", "jobwire", *args]
        program = Program(command=command, cwd=cwd, env={**hidden, **ours, **(env or {})})
        self._stack.callback(program.close)
        return program

    def start_gateway(self, **env: str) -> Program:
        """A gateway on the fleet's port; returns when it answers."""
        program = self.start("gateway", "--port", str(self.port), env=env)
        wait_until_sync(lambda: self.answers(program), "the gateway to answer", timeout_s=60)
        return program

    def answers(self, program: Program) -> bool:
        if program.exit_code is not None:
            raise AssertionError(f"the gateway ended:\n{program.output}")
        try:
            return (
                httpx.get(
                    f"{self.url}/readyz", trust_env=False, verify=False, timeout=5
                ).status_code
                == 200
            )
        except httpx.HTTPError:
            return False

    def start_worker(self, app: str = APP, **env: str) -> Program:
        """A worker; returns when it takes jobs."""
        program = self.start("worker", app, env=env)
        program.wait_for_line("worker with", timeout_s=60)
        return program

    def client(self) -> Client:
        return Client(self.url)

    def async_client(self) -> AsyncClient:
        return AsyncClient(self.url)
