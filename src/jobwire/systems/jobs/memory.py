"""The server's memory use, read at most once a second (J-57).

The gateway checks it before jobs are submitted: the last tenth of the memory is reserved for the
reports and results of existing jobs.
"""

import logging
import time
from collections.abc import Callable
from typing import Final, cast

from jobwire.systems.jobs.replies import backend_unavailable
from jobwire.valkey import Connection, ServerError, ValkeyError

SHARE: Final = 0.9
"""The part of the server's `maxmemory` that submissions may use."""
_EVERY_S: Final = 1.0

_log = logging.getLogger("jobwire.streams")


class ServerMemory:
    """The last reading. A server without `maxmemory`, or that refuses INFO, is never full."""

    def __init__(self, connection: Connection, now_s: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._now_s = now_s
        self._next_s = 0.0
        self.used = 0
        self.limit = 0

    @property
    def is_due(self) -> bool:
        """Whether to read again. A reading of a full server is not reused: jobs would be refused
        although there is space again."""
        return self.is_full or self._now_s() >= self._next_s

    @property
    def is_full(self) -> bool:
        return self.limit > 0 and self.used >= SHARE * self.limit

    async def read(self) -> None:
        """Read it; concurrent callers use the previous reading."""
        self._next_s = self._now_s() + _EVERY_S
        try:
            answer = cast(str, await self._connection.call("INFO", "memory"))
        except ValkeyError as error:
            if isinstance(error, ServerError) and error.code == "NOPERM":
                _log.warning("INFO is not permitted: error=%s; memory limit is not checked", error)
                self._next_s = float("inf")
                return
            self._next_s = 0.0
            raise backend_unavailable(error) from error
        found = dict(line.split(":", 1) for line in answer.splitlines() if ":" in line)
        self.used, self.limit = int(found["used_memory"]), int(found["maxmemory"])
