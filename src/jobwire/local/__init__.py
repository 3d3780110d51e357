"""The servers that `jobwire up` starts, and their supervisor.

valkey.py      a Valkey server
s3.py          an S3 server; s3_keys.py and s3_ports.py store its secrets and ports
server.py      what both have in common
program.py     a jobwire program as child process
supervisor.py  starts, restarts and stops all of them
datadir.py     the lock of a data directory
listen.py, ports.py   listening sockets, free ports
errors.py      start errors
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobwire.local.datadir import DataDir
from jobwire.local.errors import (
    DataDirHeld,
    DataDirUnwritable,
    LocalError,
    PortInUse,
    ProgramMissing,
    StartFailed,
)
from jobwire.local.ports import free_port, free_ports
from jobwire.local.valkey import LocalValkey

if TYPE_CHECKING:
    from jobwire.local.s3 import LocalS3

__all__ = [
    "DataDir",
    "DataDirHeld",
    "DataDirUnwritable",
    "LocalError",
    "LocalS3",
    "LocalValkey",
    "PortInUse",
    "ProgramMissing",
    "StartFailed",
    "free_port",
    "free_ports",
]


def __getattr__(name: str) -> object:
    # Lazy: it needs the bucket's library, which is optional.
    if name == "LocalS3":
        from jobwire.local.s3 import LocalS3

        return LocalS3
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
