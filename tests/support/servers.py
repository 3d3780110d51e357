"""Servers for tests: the one of this worker, plain clients for it, and Redis 7."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final, cast

from redis import Redis

from jobwire.local import LocalValkey
from jobwire.valkey import Reply


class Plain(Redis):
    """A redis-py client, independent of jobwire, for raw access to the wire."""

    def call(self, *args: str | bytes | int | float) -> Reply:
        """Send any command and get the reply as it came, without the library's reshaping."""
        connection = self.connection_pool.get_connection()
        try:
            connection.send_command(*args)
            return cast("Reply", connection.read_response())
        finally:
            self.connection_pool.release(connection)


def plain_client(server: LocalValkey, name: str | None = None) -> Plain:
    """A client with all rights on a server that was started with `admin=True`."""
    return plain_from_url(server.admin_url, name)


def plain_from_url(url: str, name: str | None = None) -> Plain:
    """A client with the rights of the URL's user."""
    plain = Plain.from_url(
        url.replace("valkey:", "redis:"),
        decode_responses=True,
        encoding_errors="surrogateescape",
        client_name=name,
        # A server that does not answer fails the test instead of blocking it.
        socket_timeout=60,
    )
    assert isinstance(plain, Plain)
    return plain


OTHER_REDIS: Final = "JOBWIRE_TEST_REDIS"
"""A program to test with in place of Redis 7 (`python -m tests.redis8`)."""


def redis_7_program(folder: Path) -> Path | None:
    """Debian's Redis 7 server, if it is installed.

    Debian ships the program as `redis-check-rdb` in `redis-tools`, without a service: it is the
    server when it is called by the server's name.
    """
    if other := os.environ.get(OTHER_REDIS):
        return Path(other)
    found = shutil.which("redis-server") or shutil.which("redis-check-rdb")
    if found is None:
        return None
    program = folder / "redis-server"
    if not program.exists():
        program.symlink_to(found)
    version = subprocess.run(
        [program, "--version"], capture_output=True, text=True, timeout=60, check=False
    )
    return program if re.search(r"\bv=7\.", version.stdout) else None
