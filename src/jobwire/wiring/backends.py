"""The server under every part: connected to, and waited for at the start.

Used by each program that this room puts together. A part that cannot reach its server at start
tries for half a minute; once started it survives any outage by itself.
"""

from typing import Final

from jobwire.settings import Settings
from jobwire.valkey import Config, Connection
from jobwire.wires.streams.contract import StreamsKeys

PATIENCE_S: Final = 30.0


def queue_key(settings: Settings) -> str:
    """The key of the job queue."""
    return StreamsKeys(settings.jobs.key_prefix).queue


async def connect(config: Config, name: str) -> Connection:
    """Connect, and wait for a server that is not there yet; ValkeyError after half a minute."""
    return await Connection.open(config, name=name, patience_s=PATIENCE_S)
