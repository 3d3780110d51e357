"""Notices a loop that silently stopped: connected, healthy to look at, and doing nothing.

Every wait for an engine is a Step with a time by which it must be over; whatever holds it up, a
step that is overdue is broken off and its loop goes on as after a lost connection. The watch is on
progress, not on the connection: that is where such bugs hide.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import Final, TypeVar

from jobwire.job.errors import BackendUnavailable

_log: Final = logging.getLogger("jobwire.worker")
_LOOK_EVERY_S: Final = 1.0

T = TypeVar("T")


class Stuck(BackendUnavailable):
    """A step took far longer than it may; what became of it is unknown."""


class WatchedStep:
    """One wait for an engine."""

    __slots__ = ("due_s", "overdue", "task", "what")

    def __init__(self, what: str, task: "asyncio.Task[object] | None", due_s: float) -> None:
        self.what = what
        self.task = task
        self.due_s = due_s
        self.overdue = False


class Watchdog:
    """The steps of a worker, and an eye on them."""

    def __init__(self, slack_s: float) -> None:
        self._slack_s = slack_s
        self._loop = asyncio.get_running_loop()
        self._steps: set[WatchedStep] = set()
        self.beat_s = time.monotonic()
        """When the event loop last had time for us; read by the keepers' threads."""

    async def watched(self, what: str, answer: Awaitable[T], timeout_s: float = 0.0) -> T:
        """Wait for an engine, for so long and some slack; Stuck where that was not enough."""
        task = asyncio.current_task()
        due_s = self._loop.time() + timeout_s + self._slack_s
        self._steps.add(step := WatchedStep(what, task, due_s))
        try:
            return await answer
        except asyncio.CancelledError:
            if step.overdue and task is not None and not task.uncancel():
                raise Stuck(f"{what} did not come back") from None
            raise
        finally:
            self._steps.discard(step)

    async def watch(self) -> None:
        """Look after all steps, for ever."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            self.beat_s = time.monotonic()
            now_s = self._loop.time()
            for step in [each for each in self._steps if each.due_s < now_s and not each.overdue]:
                _log.error("%s did not come back; broken off", step.what)
                step.overdue = True
                if step.task is not None:
                    step.task.cancel()
