"""Why a server refuses writes, in a sentence for each cause.

The one place for it: readiness, the doctor and the page show the same words.
"""

from collections.abc import Awaitable
from typing import Final, NamedTuple

from jobwire.valkey.errors import ServerError


class WriteRefusal(NamedTuple):
    """Why the server would refuse a write now, and what to do."""

    found: str
    fix: str


_WHY: Final = {
    "OOM": WriteRefusal(
        "the server is full: it has reached maxmemory and refuses new jobs",
        "raise maxmemory, or let workers finish the stored jobs",
    ),
    "READONLY": WriteRefusal(
        "the server is a replica and accepts no writes",
        "use the address of the primary, or those of the sentinels; see docs/failover.md",
    ),
    "MASTERDOWN": WriteRefusal(
        "the server is a replica whose primary is down",
        "use the address of the primary, or those of the sentinels; see docs/failover.md",
    ),
    "NOREPLICAS": WriteRefusal(
        "the server refuses writes: fewer replicas are connected and up to date than "
        "min-replicas-to-write",
        "start the missing replicas, or look why they lag; see docs/failover.md",
    ),
    "CLUSTERDOWN": WriteRefusal(
        "the Cluster is down: slots have no primary, or most primaries are gone",
        "start the missing nodes; CLUSTER INFO and CLUSTER NODES name them",
    ),
}
PAUSED: Final = WriteRefusal(
    "the server answers reads and no writes: they are paused, as by CLIENT PAUSE or in a failover",
    "wait for the end of the failover, or CLIENT UNPAUSE",
)
_DISK_FAILED: Final = "MISCONF"
_NO_PERMISSION: Final = ("NOPERM", "ACL failure")


async def answered(ping: Awaitable[object]) -> None:
    """Wait for the reply to PING, which a server whose disk has failed refuses like a write."""
    try:
        await ping
    except ServerError as error:
        if error.code != _DISK_FAILED:
            raise


def explain(error: ServerError) -> WriteRefusal:
    """The refusal of a write that the server answered with this error."""
    text = str(error)
    if error.code in _WHY:
        return _WHY[error.code]
    if any(each in text for each in _NO_PERMISSION):
        return WriteRefusal(
            f"the user of the connection may not write: {text}",
            "give it the rights with ACL SETUSER: keys, channels and commands",
        )
    if error.code == _DISK_FAILED:
        return WriteRefusal(
            f"the server cannot write to its disk and refuses writes: {text}",
            "free or replace the disk; the server's log has the error",
        )
    return WriteRefusal(f"the server refuses writes: {text}", "see its log")
