"""Starts whose answers came so late that their leases may have run out: renewed before they run.

A process that was frozen finds answers in its sockets that are older than a lease. Another worker
may have taken those jobs over, or ended them: their handlers begin only if the jobs are still ours
(J-33). One for each queue's loop; the runner adds to it what it must not begin.
"""

from collections.abc import Awaitable, Callable, Sequence

from jobwire.worker.backend import BackendState
from jobwire.worker.run import Run
from jobwire.worker.runner import Runner
from jobwire.worker.task_pool import TaskPool


class LateStarts:
    def __init__(
        self,
        renew: Callable[[Sequence[Run]], Awaitable[list[Run]]],
        ground: BackendState,
        tasks: TaskPool,
        runner: Runner,
    ) -> None:
        """`renew` returns the runs that are still ours, and raises where nobody knows."""
        self._renew = renew
        self._ground = ground
        self._tasks = tasks
        self._runner = runner
        self._runs: list[Run] = []

    def add(self, run: Run) -> None:
        """Renew it, and begin it then."""
        self._runs.append(run)
        if len(self._runs) == 1:
            self._tasks.start(self._begin_all(), "renewal of late starts")

    async def _begin_all(self) -> None:
        while self._runs:
            await self._ground.wait()
            count = len(self._runs)
            try:
                ours = await self._renew(self._runs[:count])
            except Exception:  # noqa: BLE001, S112 - the loop recovers, and it is asked again
                continue
            del self._runs[:count]
            self._tasks.start(self._runner.drive(self._runner.resume(ours)))
