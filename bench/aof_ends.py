"""Ways in which a server ends: each returns the data directory that the next one finds."""

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

_HELD_BACK: Final = 3_000_000
"""So many bytes that the server has answered for and not yet written are worth a kill."""
_PATIENCE_S: Final = 5.0


def killed(server: LocalValkey) -> Path:
    """kill -9; what was given to the kernel is safe."""
    server.kill()
    return server.data_dir


def killed_when_slow(server: LocalValkey) -> Path:
    """The same while an fsync takes long and the server holds back what it has answered for."""
    with slow_disk(server.pid):
        asyncio.run(_kill_when_it_holds_back(server))
    server.kill()
    return server.data_dir


async def _kill_when_it_holds_back(server: LocalValkey) -> None:
    async with Connection.open(server.url) as connection:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                held_back = 0
                while held_back < _HELD_BACK:
                    told = str(await connection.call("INFO", "persistence"))
                    held_back = int(re.findall(r"aof_buffer_length:(\d+)", told)[0])
        os.kill(server.pid, signal.SIGKILL)


def power_cut(server: LocalValkey) -> Path:
    """Everything stops at once. What the kernel had not brought to the disk is not there."""
    os.kill(server.pid, signal.SIGSTOP)
    (log,) = server.data_dir.glob("appendonlydir/*.incr.aof")
    safe = safe_size(log)
    copy = server.data_dir.with_name("after-the-cut")
    shutil.copytree(server.data_dir, copy)
    os.truncate(copy / log.relative_to(server.data_dir), safe)
    server.kill()
    return copy
