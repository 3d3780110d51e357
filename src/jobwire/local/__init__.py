"""The real servers that jobwire brings along.

valkey.py    a real Valkey: started, watched, stopped
spawn.py     children that die with us
datadir.py   one holder a data directory
ports.py     free ports on loopback
errors.py    what this machine may refuse, in one line each
"""

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
from jobwire.local.spawn import Child, spawn
from jobwire.local.valkey import LocalValkey

__all__ = [
    "Child",
    "DataDir",
    "DataDirHeld",
    "DataDirUnwritable",
    "LocalError",
    "LocalValkey",
    "PortInUse",
    "ProgramMissing",
    "StartFailed",
    "free_port",
    "free_ports",
    "spawn",
]
