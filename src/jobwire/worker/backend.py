"""Whether the server under a queue answers, and the way back when it did not.

A Source asks it before it sends. After trouble it waits, tries, and adopts what the server started
for us while its answers were lost; only then may anything be sent again.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from jobwire.job.clock import random_fraction
from jobwire.job.errors import BackendUnavailable
from jobwire.worker.task_pool import TaskPool

_log: Final = logging.getLogger("jobwire.worker")
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0


class BackendState:
    """The state of one queue's server, as far as its answers tell."""

    def __init__(self, name: str, tasks: TaskPool, recover: Callable[[], Awaitable[None]]) -> None:
        self._name = name
        self._tasks = tasks
        self._recover = recover
        self._available = asyncio.Event()
        self._available.set()
        self.losses = 0
        """How often it was said not to answer; who recovers sees by it what came meanwhile."""

    @property
    def available(self) -> bool:
        """Whether anything may be sent."""
        return self._available.is_set()

    async def wait(self) -> None:
        """Wait until it is firm."""
        await self._available.wait()

    def mark_unavailable(self, error: Exception) -> None:
        """It did not answer, or not as it should."""
        self._note(error)
        self.losses += 1
        if self.available:
            self._available.clear()
            self._tasks.start(self._recover_with_backoff(), f"{self._name}: recovery")

    async def _recover_with_backoff(self) -> None:
        for tries in itertools.count():
            # With chance: a whole fleet lost it in the same moment.
            await asyncio.sleep(
                random_fraction() * min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(tries, 9))
            )
            try:
                await self._recover()
            except Exception as error:  # noqa: BLE001 - a queue is never given up
                self._note(error)
            else:
                break

    def mark_available(self) -> None:
        """It answers again; called by `recover` in the right moment."""
        self._available.set()

    def _note(self, error: Exception) -> None:
        if not isinstance(error, BackendUnavailable):
            _log.error("%s: unexpected trouble", self._name, exc_info=error)
        elif self.available:
            _log.warning("%s: %s (%s)", self._name, error, error.detail)
