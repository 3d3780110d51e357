"""Ways to end a server; each returns the data directory for the next one."""

import asyncio
import contextlib
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Final

from bench.dirty import safe_size
from bench.slow_disk import slow_disk
from jobwire.local.valkey import LocalValkey
from jobwire.valkey import Connection

_MIN_BUFFERED: Final = 3_000_000
"""Kill the server when so many bytes are acknowledged and not written."""
_TIMEOUT_S: Final = 5.0


def killed(server: LocalValkey) -> Path:
    """kill -9: data that was written to the kernel survives."""
    server.kill()
    return server.data_dir


def killed_when_slow(server: LocalValkey) -> Path:
    """kill -9 during a slow fsync, while the server buffers acknowledged writes."""
    with slow_disk(server.pid):
        asyncio.run(_kill_when_buffered(server))
    server.kill()
    return server.data_dir


async def _kill_when_buffered(server: LocalValkey) -> None:
    async with Connection.open(server.url) as connection:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TIMEOUT_S):
                buffered = 0
                while buffered < _MIN_BUFFERED:
                    info = str(await connection.call("INFO", "persistence"))
                    buffered = int(re.findall(r"aof_buffer_length:(\d+)", info)[0])
        os.kill(server.pid, signal.SIGKILL)


def power_cut(server: LocalValkey) -> Path:
    """Stop at once; only the pages that are on the disk survive."""
    os.kill(server.pid, signal.SIGSTOP)
    (log,) = server.data_dir.glob("appendonlydir/*.incr.aof")
    safe = safe_size(log)
    copy = server.data_dir.with_name("after-the-cut")
    shutil.copytree(server.data_dir, copy)
    os.truncate(copy / log.relative_to(server.data_dir), safe)
    server.kill()
    return copy
