"""A web app of the examples, served as its README says."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Self

import httpx

from jobwire.local import free_port
from tests.support import Program, wait_until_sync


class Site:
    """`with Site("examples.page.serve:app", env) as site:`; may be ended and started again."""

    def __init__(self, app: str, env: Mapping[str, str]) -> None:
        self._app = app
        self._env = {**env, "JOBWIRE_DATA_DIR": ""}
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.program: Program | None = None

    def start(self) -> Self:
        """Returns when it answers; one that runs is ended first."""
        self.close()
        port = ("--port", str(self._port), "--timeout-graceful-shutdown", "1")
        words = ("-m", "uvicorn", self._app, *port, "--log-level", "warning")
        program = self.program = Program(*words, env=self._env)

        def answers() -> bool:
            assert program.exit_code is None, program.output
            with contextlib.suppress(httpx.HTTPError):
                return (
                    httpx.get(f"{self.url}/openapi.json", trust_env=False, verify=False).status_code
                    == 200
                )
            return False

        wait_until_sync(answers, "the example to answer")
        return self

    def close(self) -> None:
        if self.program is not None:
            self.program.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()
