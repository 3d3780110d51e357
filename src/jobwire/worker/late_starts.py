"""Starts whose answers came so late that their leases may have run out: renewed before they run.

A process that was suspended finds answers in its sockets that are older than a lease. Another
worker may have reclaimed or ended those jobs: their handlers begin only if the lease is still ours
(J-33). One per queue loop; the runner adds the runs that it must not begin yet.
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
        backend: BackendState,
        tasks: TaskPool,
        runner: Runner,
    ) -> None:
        """`renew` returns the runs that are still ours, and raises if the server does not
        answer."""
        self._renew = renew
        self._backend = backend
        self._tasks = tasks
        self._runner = runner
        self._runs: list[Run] = []
        self._is_renewing = False

    def add(self, run: Run) -> None:
        """Renew its lease, then begin it."""
        self._runs.append(run)
        if not self._is_renewing:
            self._is_renewing = True
            self._tasks.start(self._begin_all(), "renewal of late starts")

    async def _begin_all(self) -> None:
        while self._runs:
            await self._backend.wait()
            count = len(self._runs)
            try:
                ours = await self._renew(self._runs[:count])
            except Exception:  # noqa: BLE001, S112 - the queue loop recovers; then retried
                continue
            del self._runs[:count]
            # Adds those that are late again: one task renews all, so that none is begun twice.
            self._tasks.start(self._runner.drive(self._runner.begin(ours)))
        self._is_renewing = False
