"""The server's memory use, read at most once a second (J-57).

Gateways check it before anything new is stored: the last tenth of the memory is reserved for the
reports and results of existing jobs.
"""

import logging
import time
from collections.abc import Callable
from typing import Final, cast

from jobwire.valkey.connection import Connection
from jobwire.valkey.errors import ServerError, ValkeyError

SHARE: Final = 0.9
"""The part of the server's `maxmemory` that submissions may use."""
TENANTS: Final = 4
"""The jobs of one tenant may use the memory divided by this number, if there are several."""
_EVERY_S: Final = 1.0

_log = logging.getLogger("jobwire.valkey")


class ServerMemory:
    """The last reading. A server without `maxmemory`, or that refuses INFO, is never full."""

    def __init__(self, connection: Connection, now_s: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._now_s = now_s
        self._next_s = 0.0
        self.used = 0
        self.limit = 0

    @property
    def is_connected(self) -> bool:
        """Whether the server can be asked; without a connection the last reading is old."""
        return self._connection.connected

    @property
    def is_due(self) -> bool:
        """Whether to read again. Not for each submission: a server that is full would have to
        answer INFO as often as it is asked."""
        return self._now_s() >= self._next_s

    @property
    def is_full(self) -> bool:
        return self.limit > 0 and self.used >= SHARE * self.limit

    @property
    def tenant_share(self) -> int:
        """The bytes of one of several tenants; 0 if the server has no limit."""
        return self.limit // TENANTS

    async def read(self) -> None:
        """Read it; concurrent callers use the previous reading, and so does everyone while the
        server does not answer: what they want to store fails with its own error."""
        if not self._connection.connected:
            return  # a submission waits once for the server, not for this and then again
        self._next_s = self._now_s() + _EVERY_S
        try:
            answer = cast(str, await self._connection.call("INFO", "memory"))
        except ValkeyError as error:
            if isinstance(error, ServerError) and error.code == "NOPERM":
                _log.warning(
                    "INFO is not permitted error=%(error)s; memory limit is not checked",
                    {"error": error},
                )
                self._next_s = float("inf")
                return
            self._next_s = 0.0
            return
        found = dict(line.split(":", 1) for line in answer.splitlines() if ":" in line)
        self.used, self.limit = int(found["used_memory"]), int(found["maxmemory"])
