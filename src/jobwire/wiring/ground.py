"""The server under every part: connected to, and waited for at the start.

Used by each program that this room puts together. A part that cannot reach its server at start
tries for half a minute; once started it survives any outage by itself.
"""

import asyncio
import time
from typing import Final

from jobwire.log import component
from jobwire.valkey import AuthFailed, Config, Connection, Unavailable, Unsupported

PATIENCE_S: Final = 30.0
_log = component("wiring")


async def reach(config: Config, name: str) -> Connection:
    """Connect, and wait for a server that is not there yet; ValkeyError after half a minute."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await Connection.open(config, name=name)
        except (AuthFailed, Unsupported):
            raise
        except Unavailable as error:
            if time.monotonic() > deadline_s:
                raise
            _log.warning("%s; trying again", error)
            await asyncio.sleep(1.0)
