"""Whether the server of a queue answers, and the recovery after it did not.

A QueueLoop asks it before it sends. After a failure it waits with backoff, tries, and recovers jobs
that the server started while its answers were lost; only then may anything be sent again.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from jobwire.job import retry
from jobwire.job.errors import BackendUnavailable
from jobwire.job.ids import random_fraction
from jobwire.worker.task_pool import TaskPool

_log: Final = logging.getLogger("jobwire.worker")
_BACKOFF: Final = retry.exponential(0.05, 1.0)
"""With full jitter: the whole fleet lost the server in the same moment."""


class BackendState:
    """The state of one queue's server, as its answers show it."""

    def __init__(self, name: str, tasks: TaskPool, recover: Callable[[], Awaitable[None]]) -> None:
        """`recover` calls `mark_available` once the server answers."""
        self._name = name
        self._tasks = tasks
        self._recover = recover
        self._available = asyncio.Event()
        self._available.set()
        self.losses = 0
        """How often `mark_unavailable` was called; a recovery sees by it what failed meanwhile."""

    @property
    def available(self) -> bool:
        """Whether anything may be sent."""
        return self._available.is_set()

    async def wait(self) -> None:
        """Wait until anything may be sent."""
        await self._available.wait()

    def mark_unavailable(self, error: Exception) -> None:
        """The server did not answer, or not as it should."""
        self._log_error(error)
        self.losses += 1
        if self.available:
            self._available.clear()
            self._tasks.start(self._recover_with_backoff(), f"{self._name}: recovery")

    async def _recover_with_backoff(self) -> None:
        for attempt in itertools.count(1):
            await asyncio.sleep(retry.delay_s(_BACKOFF, attempt, random_fraction()))
            try:
                await self._recover()
            except Exception as error:  # noqa: BLE001 - a queue is never given up
                self._log_error(error)
            else:
                break

    def mark_available(self) -> None:
        """The server answers again."""
        self._available.set()

    def _log_error(self, error: Exception) -> None:
        if not isinstance(error, BackendUnavailable):
            _log.error(
                "server failed unexpectedly engine=%(engine)s; will retry",
                {"engine": self._name},
                exc_info=error,
            )
        elif self.available:
            _log.warning(
                "server unavailable engine=%(engine)s error=%(error)s detail=%(detail)s; "
                "will retry",
                {"engine": self._name, "error": error, "detail": error.detail},
            )
