"""A worker: holds jobs of one or more queues and runs an App's handlers.

Built by `wiring` (or by a test) with engines that are ready to be entered. It installs no signal
handlers, builds no connection and knows no wire: whoever runs it does.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Final

from jobwire.job.engine import Engine
from jobwire.worker.app import App
from jobwire.worker.lease_renewal import LeaseRenewalThread
from jobwire.worker.metrics import WorkerMetrics
from jobwire.worker.queue_loop import QueueLoop
from jobwire.worker.runner import Runner
from jobwire.worker.shutdown import Shutdown, drain
from jobwire.worker.slots import Slots
from jobwire.worker.task_pool import TaskPool
from jobwire.worker.watchdog import Watchdog

_log: Final = logging.getLogger("jobwire.worker")
_LAST_WORDS_S: Final = 2.0


class Worker:
    """Made in a running event loop; `await run()` once."""

    def __init__(
        self,
        app: App,
        engines: Sequence[Engine],
        *,
        slots: int = 10,
        drain_s: float = 25.0,
        grace_s: float = 5.0,
        stall_s: float = 20.0,
        max_block_s: float = float("inf"),
        beside: Sequence[Callable[[], Coroutine[object, None, None]]] = (),
        on_ready: Callable[[], None] | None = None,
    ) -> None:
        """`grace_s` is how long a handler may take to end once it was told to; `stall_s` is after
        how long a silent engine is taken for dead; an event loop that is blocked for `max_block_s`
        ends the process. What runs `beside` the jobs, like an engine's
        duties, is begun when the queues are entered, and ended after the last job."""
        if not app.handlers:
            raise ValueError("the app has no handlers: register one with @app.handler('name')")
        self._app = app
        self._engines = engines
        self._total = slots
        self._drain_s = drain_s
        self._grace_s = grace_s
        self._max_block_s = max_block_s
        self._beside = beside
        self._on_ready = on_ready
        self._tasks = TaskPool()
        self._runner = Runner(self._tasks)
        self._watchdog = Watchdog(stall_s)
        self._shutdown = Shutdown()
        self.ready = asyncio.Event()
        """It has entered its queues and takes jobs."""
        self.left_behind = 0
        """Handlers that would not end. Only the end of the process ends them."""
        self.tally = WorkerMetrics()
        """What its jobs did; for metrics."""
        all_slots = Slots(slots)
        around = (self._runner, self._tasks, self._watchdog, self._grace_s, self.tally)
        self._sources = [QueueLoop(engine, app, all_slots, *around) for engine in engines]

    def stop(self) -> None:
        """Drain; the second time: give everything back now. Safe to call from a signal handler."""
        self._shutdown.ask()

    async def run(self) -> None:
        """Serve until stopped. Cancelled, it gives everything back before it goes."""
        entered: list[Engine] = []
        keepers: list[LeaseRenewalThread] = []
        try:
            for engine in self._engines:
                await engine.register(
                    self._app.task_definitions, self._total, self._app.missing_requirements
                )
                entered.append(engine)
            keepers += [
                LeaseRenewalThread(source, self._watchdog, self._max_block_s)
                for source in self._sources
            ]
            await self._serve(keepers)
        finally:
            await self._leave(entered, keepers)

    async def _serve(self, keepers: Sequence[LeaseRenewalThread]) -> None:
        self._tasks.start(self._watchdog.watch(), "watchdog")
        for source, keeper in zip(self._sources, keepers, strict=True):
            looking = source.recover_own_orphans(keeper.lease_s)
            self._tasks.start(looking, f"{source.engine.name}: look")
            self._tasks.start(source.serve(), f"{source.engine.name}: serve")
            self._tasks.start(source.listen(), f"{source.engine.name}: cancels")
        for work in self._beside:
            self._tasks.start(work(), "beside the jobs")
        self.ready.set()
        if self._on_ready is not None:
            self._on_ready()
        try:
            await self._shutdown.asked.wait()
        except asyncio.CancelledError:
            self._shutdown.ask()
            self._shutdown.ask()
            await self._drain()
            raise
        await self._drain()

    async def _drain(self) -> None:
        held = await drain(
            self._sources, self._shutdown, drain_s=self._drain_s, grace_s=self._grace_s
        )
        if held:
            _log.error("%d job(s) could not be handed over; their leases will run out", held)

    async def _leave(
        self, entered: Sequence[Engine], keepers: Sequence[LeaseRenewalThread]
    ) -> None:
        await self._tasks.end(_LAST_WORDS_S)
        self.left_behind = self._runner.running
        # First, so that no heartbeat registers the worker again once it has left.
        for keeper in keepers:
            await keeper.close()
        for engine in entered:
            try:
                async with asyncio.timeout(_LAST_WORDS_S):
                    await engine.deregister()
            except Exception as error:  # noqa: BLE001 - others will see that we are gone
                _log.warning("%s: left without a word: %s", engine.name, error)
        self._runner.close()
        if self.left_behind:
            _log.error("%d handler(s) would not end", self.left_behind)
