"""Names of workers in the consumer group, and the end of a dead worker's leases."""

import logging
import os
import secrets
import socket
from typing import Final

from jobwire.systems.jobs import contract
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.replies import collect
from jobwire.systems.jobs.scripts import script
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection

_log: Final = logging.getLogger("jobwire.streams")
_EXPIRE_LEASES: Final = script("expire_leases")
_MAX_LEASES: Final = 10_000
"""Leases of one dead worker that expire at once; the others do so in time."""


def new_consumer() -> str:
    """A unique consumer name that shows the worker's host and process."""
    return f"{_names(os.getpid())}{secrets.token_hex(4)}"


async def expire_leases(connection: Connection, settings: StreamsSettings, pid: int) -> int:
    """Let the leases of a dead process on this machine expire; returns how many."""
    args = (_names(pid), round(settings.lease_s * 1000), _MAX_LEASES)
    queue = StreamsKeys(settings.key_prefix).queue
    (expired,) = await collect([connection.run(_EXPIRE_LEASES, (queue,), args)])
    assert isinstance(expired, int)
    _log.info(
        "worker replaced dead_pid=%(dead_pid)s expired_leases=%(expired_leases)s",
        {"dead_pid": pid, "expired_leases": expired},
    )
    return expired


def _names(pid: int) -> str:
    """The beginning of the consumer names of a process on this machine."""
    return f"{contract.CONSUMER_PREFIX}{socket.gethostname()}-{pid}-"
