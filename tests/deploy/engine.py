"""A container engine with compose for `make deploy-check`: docker, or podman with docker-compose.

CONTAINER_ENGINE chooses the command; compose finds another engine than Docker's by DOCKER_HOST.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.e2e.compose import COMPOSE
from tests.support.program import ROOT

_BUILD_S: Final = 1200


@dataclass(frozen=True)
class Engine:
    """The commands of an engine; every call must succeed unless said otherwise."""

    program: str
    compose_command: tuple[str, ...]

    @property
    def is_podman(self) -> bool:
        return "podman" in self.run("--version").lower()

    def run(self, *arguments: str, timeout_s: float = 120) -> str:
        return _run([self.program, *arguments], timeout_s=timeout_s)

    def fails(self, *arguments: str) -> bool:
        command = [self.program, *arguments]
        return subprocess.run(command, capture_output=True, timeout=120, check=False).returncode > 0

    def build(self, target: str, tag: str) -> None:
        # OCI's own format has no health check.
        form = ("--format", "docker") if self.is_podman else ()
        # As Docker reads a name without a registry, and so does compose.
        name = f"docker.io/library/{tag}" if self.is_podman else tag
        file = ("--file", "deploy/Dockerfile", "--target", target, "--tag", name)
        self.run("build", *form, *file, ".", timeout_s=_BUILD_S)

    def inspect(self, name: str) -> dict[str, Any]:
        (found,) = json.loads(self.run("inspect", name))
        return found

    def compose(self, *arguments: str, env: Mapping[str, str], file: str = "") -> str:
        files = ("--file", str(COMPOSE), *(("--file", file) if file else ()))
        command = [*self.compose_command, "--project-name", "jobwire-check", *files, *arguments]
        return _run(command, env={**os.environ, **env}, timeout_s=600)


def _run(
    command: list[str], *, env: Mapping[str, str] | None = None, timeout_s: float = 120
) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, check=False, env=env, cwd=ROOT
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def find_engine() -> Engine:
    """The engine of this machine; the test is skipped where there is none."""
    chosen = os.environ.get("CONTAINER_ENGINE")
    programs = [chosen] if chosen else ["docker", "podman"]
    for program in filter(shutil.which, programs):
        if not _works(program, "info"):
            continue
        if _works(program, "compose", "version"):
            return Engine(program, (program, "compose"))
        if shutil.which("docker-compose"):
            return Engine(program, ("docker-compose",))
        pytest.skip("expected: the container engine has no compose")
    pytest.skip("expected: there is no container engine (docker or podman) that runs")


def _works(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
