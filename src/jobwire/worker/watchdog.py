"""Detects a queue loop that hangs without an error: connected, and without progress.

Every wait for an engine is a WatchedStep with a deadline. An overdue step is cancelled and its loop
continues as after a lost connection. The watchdog checks progress, not the connection.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, ParamSpec, TypeVar

from jobwire.job.errors import BackendUnavailable

_log: Final = logging.getLogger("jobwire.worker")
_PERIOD_S: Final = 1.0

P = ParamSpec("P")
T = TypeVar("T")


class Stuck(BackendUnavailable):
    """A step exceeded its deadline; its outcome is unknown."""


class WatchedStep:
    """One wait for an engine."""

    __slots__ = ("due_s", "overdue", "task", "what")

    def __init__(self, what: str, task: "asyncio.Task[object] | None", due_s: float) -> None:
        self.what = what
        self.task = task
        self.due_s = due_s
        self.overdue = False


class Watchdog:
    """Watches all steps of a worker."""

    def __init__(self, slack_s: float) -> None:
        self._slack_s = slack_s
        self._loop = asyncio.get_running_loop()
        self._steps: set[WatchedStep] = set()
        self.beat_s = time.monotonic()
        """When the event loop last ran the watchdog; read by the lease renewal threads."""

    async def watched(self, what: str, answer: Awaitable[T], timeout_s: float = 0.0) -> T:
        """Await an engine's answer; Stuck if it takes longer than `timeout_s` and the slack."""
        task = asyncio.current_task()
        due_s = self._loop.time() + timeout_s + self._slack_s
        self._steps.add(step := WatchedStep(what, task, due_s))
        try:
            return await answer
        except asyncio.CancelledError:
            if step.overdue and task is not None and not task.uncancel():
                raise Stuck(f"{what} did not return in time") from None
            raise
        finally:
            self._steps.discard(step)

    async def watch(self) -> None:
        """Cancel overdue steps, forever."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            self.beat_s = time.monotonic()
            now_s = self._loop.time()
            for step in [each for each in self._steps if each.due_s < now_s and not each.overdue]:
                _log.error(
                    "step overdue step=%(step)s; it is cancelled and the loop continues",
                    {"step": step.what},
                )
                step.overdue = True
                if step.task is not None:
                    step.task.cancel()


def call(verb: Callable[P, Awaitable[T]], *args: P.args, **options: P.kwargs) -> Awaitable[T]:
    """Call an engine. It sends when called, so it may fail before there is anything to await: such
    an error is raised where the answer is awaited."""
    try:
        return verb(*args, **options)
    except Exception as error:  # noqa: BLE001 - raised where the answer is awaited
        return _failed(error)


async def _failed(error: Exception) -> Any:
    raise error
