"""Runs the maintenance tasks of engines, each with its own period, in workers and gateways (J-41).

There is no leader: a task that the fleet must run once per period guards that itself, and tells how
long the guard holds: no process tries before. Each task runs once when its process starts. One that
fails is retried in its next period and never ends the process that runs it. The tasks of a process
wake up together: an idle process sends the calls of all its shards in one write (L-11, G-6).
"""

import asyncio
import contextlib
import logging
import math
import os
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final

from jobwire.job import retry
from jobwire.job.engine import MaintenanceTask
from jobwire.job.errors import BackendUnavailable
from jobwire.job.ids import random_fraction

_log = logging.getLogger("jobwire.maintenance")

_CONTINUE_S: Final = 0.01
"""Between two runs of a task that has more to do: other clients need the server, too."""
_START_S: Final = 1.0
"""All tasks run once in the first second: what a dead process has left waits no whole period."""
_SOONEST_S: Final = 0.1
"""Between two runs of a task that knows when it has something to do."""
_TICKS_PER_S: Final = 4
"""How often in a second the tasks of a process wake up, at most."""


class Maintenance:
    """`async with Maintenance(engine.maintenance()).running(): …`."""

    def __init__(
        self,
        tasks: Sequence[MaintenanceTask],
        *,
        random_fraction: Callable[[], float] = random_fraction,
        done: Counter[str] | None = None,
    ) -> None:
        """`done` counts the items that each task has handled; for metrics."""
        self._tasks = tuple(tasks)
        self._random_fraction = random_fraction
        self.done: Counter[str] = Counter() if done is None else done

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run the tasks inside the block."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.run())
            try:
                yield
            finally:
                task.cancel()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for task in self._tasks:
                group.create_task(self._run_periodically(task), name=f"maintenance: {task.name}")

    async def _run_periodically(self, task: MaintenanceTask) -> None:
        # Processes that start together must not load the server together.
        spread_s = min(task.period_s, _START_S)
        await asyncio.sleep(_until_tick(spread_s * self._random_fraction()))
        period = retry.fixed(1.25 * task.period_s, jitter=0.4)  # 0.75 to 1.25 of it
        failing = False
        while True:
            result = None
            try:
                result = await task.run()
                if result is not None:
                    self.done[task.name] += result.done
                failing = False
            except BackendUnavailable as error:
                if not failing:
                    _log.warning(
                        "maintenance failed: server unavailable task=%(task)s error=%(error)s; "
                        "will retry",
                        {"task": task.name, "error": error.detail},
                    )
                failing = True
            except Exception:  # noqa: BLE001 - a task may not end the process that runs it
                _log.exception("maintenance failed task=%(task)s; will retry", {"task": task.name})
            if result is not None and result.more:
                await asyncio.sleep(_CONTINUE_S)
            elif result is not None and result.guard_s is not None:
                await asyncio.sleep(_until_tick(result.guard_s, at_least=True))
            else:
                pause_s = retry.delay_s(period, 1, self._random_fraction())
                await _wait(task, pause_s, None if result is None else result.next_s)


async def _wait(task: MaintenanceTask, pause_s: float, next_s: float | None) -> None:
    """Wait for the task's next run: for the whole pause, or until it has something to do (L-11)."""
    left_s = _until_tick(pause_s)
    if task.soon is None:
        await asyncio.sleep(left_s)
        return
    loop = asyncio.get_running_loop()
    soonest_s = loop.time() + _SOONEST_S
    if next_s is not None:
        left_s = min(left_s, next_s)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(left_s):
            await task.soon.wait()
    if (early_s := soonest_s - loop.time()) > 0:
        await asyncio.sleep(min(early_s, pause_s))
    task.soon.clear()


def _until_tick(pause_s: float, *, at_least: bool = False) -> float:
    """How long to sleep for a pause: until the nearest tick of this process, or the next one after
    it. Ticks of other processes on this machine are at other times. Pauses that this would change
    by more than a half are left as they are."""
    ticks = pause_s * _TICKS_PER_S
    if ticks < (2 if at_least else 0.5):
        return pause_s
    now_s = asyncio.get_running_loop().time()
    shift = os.getpid() * 61 % 100 / 100
    tick = (math.ceil if at_least else round)(now_s * _TICKS_PER_S + ticks - shift)
    return max(0.0, (tick + shift) / _TICKS_PER_S - now_s)
