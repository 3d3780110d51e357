"""`python -m tests.system`: installs system packages for the tests, where possible.

Called by `make test` before the suite. As root on Debian it installs; elsewhere it prints in one
line the missing packages and the tests that will be skipped. Quick if all are installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_POSTGRES: Final = Path("/usr/lib/postgresql")


@dataclass(frozen=True, slots=True)
class Need:
    """A program that the tests start, and the Debian package that has it."""

    program: str
    package: str
    why: str


NEEDS: Final = (
    # The server's own program, without the service that `redis-server` would start.
    Need("redis-check-rdb", "redis-tools", "tests against Redis 7"),
    Need("chromium", "chromium", "tests in a browser"),
    Need("faketime", "faketime", "tests of a server whose clock jumps"),
    Need("postgres", "postgresql-15", "tests against PostgreSQL"),
    Need("docker-compose", "docker-compose", "tests of the compose file"),
)


def postgres_programs() -> Path | None:
    """The folder with `initdb` and `postgres`; None if PostgreSQL is not installed."""
    found = sorted(_POSTGRES.glob("*/bin/postgres"))
    if found:
        return found[-1].parent
    program = shutil.which("postgres")
    return Path(program).resolve().parent if program else None


def is_missing(need: Need) -> bool:
    """Whether the program is missing on this machine."""
    if need.program == "postgres":  # Debian does not put it into PATH
        return postgres_programs() is None
    return shutil.which(need.program) is None


def install(need: Need) -> bool:
    """Install it if possible; return whether it is installed now."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::http::Timeout=30"]
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = [*apt, "install", "-y", "--no-install-recommends", need.package]
    for command in (install, [*apt, "update"], install):
        done = subprocess.run(command, env=env, capture_output=True, check=False)
        if not is_missing(need):
            return True
        if done.returncode and command[-1] == "update":
            break
    return False


def main() -> None:
    for need in filter(is_missing, NEEDS):
        if not install(need):
            print(
                f"no {need.program} (Debian package {need.package}): {need.why} are skipped",
                file=sys.stderr,
            )


if __name__ == "__main__":
    main()
