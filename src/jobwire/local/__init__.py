"""The real servers that jobwire brings along.

valkey.py    a real Valkey: started, watched, stopped
s3.py        a real S3 server: the same; s3_keys.py and s3_ports.py keep its secrets and ports
datadir.py   one holder a data directory
ports.py     free ports on loopback
errors.py    what this machine may refuse, in one line each
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
    # Late, because it needs the bucket's library, which an installation for Valkey alone has not.
    if name == "LocalS3":
        from jobwire.local.s3 import LocalS3

        return LocalS3
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
