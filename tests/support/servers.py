"""Servers for tests: the one of this worker, plain clients on it, and the elder relative."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from redis import Redis

from jobwire.local import LocalValkey


def plain_client(server: LocalValkey, name: str | None = None) -> Redis:
    """A client of somebody else's making, with all rights, for raw looks at the wire."""
    url = server.admin_url.replace("valkey://", "redis://")
    return Redis.from_url(url, decode_responses=True, client_name=name)


def redis_7_program(folder: Path) -> Path | None:
    """Debian's Redis 7 server, if it is installed.

    Debian ships the program as `redis-check-rdb` in `redis-tools`, without a service: it is the
    server when it is called by the server's name.
    """
    found = shutil.which("redis-server") or shutil.which("redis-check-rdb")
    if found is None:
        return None
    program = folder / "redis-server"
    if not program.exists():
        program.symlink_to(found)
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return program if re.search(r"\bv=7\.", said.stdout) else None
