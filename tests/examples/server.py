"""A web app of the examples, served as in its README."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Self

import httpx

from jobwire.local import free_port
from tests.support import Program, wait_until_sync


class Site:
    """`with Site("examples.page.serve:app", env) as site:`; can be restarted."""

    def __init__(self, app: str, env: Mapping[str, str]) -> None:
        self._app = app
        self._env = {**env, "JOBWIRE_DATA_DIR": ""}
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.program: Program | None = None

    def start(self) -> Self:
        """Start it and wait until it responds; a running one is stopped first."""
        self.close()
        port = ("--port", str(self._port), "--timeout-graceful-shutdown", "1")
        command = ("-m", "uvicorn", self._app, *port, "--log-level", "warning")
        program = self.program = Program(*command, env=self._env)

        def responds() -> bool:
            assert program.exit_code is None, program.output
            with contextlib.suppress(httpx.HTTPError):
                return (
                    httpx.get(f"{self.url}/openapi.json", trust_env=False, verify=False).status_code
                    == 200
                )
            return False

        wait_until_sync(responds, "the example to respond")
        return self

    def close(self) -> None:
        if self.program is not None:
            self.program.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()
