"""A worker: leases jobs of one or more queues and runs an App's handlers.

Built by `programs` (or by a test) with engines that are ready to register. It installs no signal
handlers, opens no connection and knows no wire: its caller does.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence, Set
from functools import partial
from typing import Final

from jobwire.job.engine import Engine
from jobwire.worker.app import App, Handler, Routes
from jobwire.worker.lease_renewal import LeaseRenewalThread
from jobwire.worker.limits import HandlerLimits
from jobwire.worker.metrics import WorkerMetrics
from jobwire.worker.middleware import with_middleware
from jobwire.worker.queue_loop import QueueLoop
from jobwire.worker.runner import Runner
from jobwire.worker.shutdown import Shutdown, drain
from jobwire.worker.slots import Slots, check_slots
from jobwire.worker.task_pool import TaskPool
from jobwire.worker.watchdog import Watchdog

_log: Final = logging.getLogger("jobwire.worker")
_FLUSH_TIMEOUT_S: Final = 2.0


async def _once(start: Callable[[], Awaitable[None]]) -> None:
    await start()


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
        background: Sequence[Callable[[], Coroutine[object, None, None]]] = (),
        on_ready: Callable[[], None] | None = None,
        retry_start: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]] = _once,
    ) -> None:
        """`grace_s` is how long a handler may take to stop when asked; an engine call that takes
        `stall_s` too long is cancelled; an event loop that is blocked for `max_block_s` ends the
        process. `background` coroutines, like an engine's maintenance, start after registration and
        end after the last job. `retry_start` repeats a registration that fails."""
        self._tasks = TaskPool()
        self._runner = runner = Runner(self._tasks)
        app = with_middleware(app, lambda: runner.state)
        routes = [_checked_routes(app, engine) for engine in engines]
        self._app = app
        self._engines = engines
        self._routes = routes
        self._drain_s = drain_s
        self._grace_s = grace_s
        self._max_block_s = max_block_s
        self._background = background
        self._on_ready = on_ready
        self._retry_start = retry_start
        self._watchdog = Watchdog(stall_s)
        self._shutdown = Shutdown()
        self.ready = asyncio.Event()
        """It is registered and takes jobs."""
        self.left_behind = 0
        """Handlers that did not stop. Only the end of the process ends them."""
        self.metrics = WorkerMetrics()
        self._loop = asyncio.get_running_loop()
        self._paused = False
        self._slot_count = slots
        self._slots = Slots(slots)
        limits = HandlerLimits()
        shared = (self._runner, self._tasks, self._watchdog, self._grace_s, self.metrics)
        self._queue_loops = [
            QueueLoop(engine, served, self._slots, limits, *shared)
            for engine, served in zip(engines, routes, strict=True)
        ]

    def stop(self) -> None:
        """Drain; the second call releases everything now. Safe to call from a signal handler."""
        self._shutdown.request()

    @property
    def stalled_s(self) -> float:
        """For how long the event loop has not run; 0 before it takes jobs. For any thread."""
        return time.monotonic() - self._watchdog.beat_s if self.ready.is_set() else 0.0

    def not_ready(self) -> str:
        """Why it takes no jobs now; empty if it does. For any thread."""
        if not self.ready.is_set():
            return "it is not registered yet"
        if self._shutdown.requested.is_set():
            return "it is stopping"
        away = [each.engine.name for each in self._queue_loops if not each.available]
        return f"the server does not answer: {', '.join(away)}" if away else ""

    @property
    def slots(self) -> int:
        """How many jobs it runs at a time. May be set at any time and from any thread: with fewer,
        running jobs are not stopped."""
        return self._slot_count

    @slots.setter
    def slots(self, count: int) -> None:
        check_slots(count)
        self._slot_count = count
        self._loop.call_soon_threadsafe(self._resize)

    def _resize(self) -> None:
        self._slots.resize(self._slot_count)
        for engine in self._engines:
            engine.set_slots(self._slot_count)

    @property
    def paused(self) -> bool:
        """Whether it takes no jobs."""
        return self._paused

    def pause(self) -> None:
        """Take no jobs until `resume`; running ones go on, and other workers take the others. From
        any thread."""
        self._paused = True
        self._loop.call_soon_threadsafe(self._apply_pause)

    def resume(self) -> None:
        """Take jobs again. From any thread."""
        self._paused = False
        self._loop.call_soon_threadsafe(self._apply_pause)

    def _apply_pause(self) -> None:
        if self._paused:
            _log.info(
                "paused running=%(running)s; no new jobs",
                {"running": sum(len(q.runs) for q in self._queue_loops)},
            )
        else:
            _log.info("resumed; takes jobs again")
        for queue_loop in self._queue_loops:
            queue_loop.pause() if self._paused else queue_loop.resume()

    async def wait_idle(self) -> None:
        """Wait until a paused worker has ended its last job."""
        await asyncio.sleep(0)  # `pause` has taken effect
        for queue_loop in self._queue_loops:
            await queue_loop.idle.wait()

    async def run(self) -> None:
        """Serve until stopped, inside the App's lifespan. If cancelled, it releases everything
        before it returns."""
        with self._app.run_by(self):
            await self._run_in_lifespan()

    async def _run_in_lifespan(self) -> None:
        lifespan = self._app.lifespan
        if lifespan is None:
            return await self._run()
        async with contextlib.AsyncExitStack() as stack:
            if await self._enter(stack, lifespan()):
                self._runner.lifespan = lifespan
                await self._run()
            return None

    async def _enter(
        self,
        stack: contextlib.AsyncExitStack,
        lifespan: contextlib.AbstractAsyncContextManager[object],
    ) -> bool:
        """Enter the lifespan; False if the worker is stopped meanwhile."""
        limit = asyncio.timeout(None)

        async def stop_waiting() -> None:
            await self._shutdown.requested.wait()
            limit.reschedule(0)

        try:
            async with limit:
                stopping = self._tasks.start(stop_waiting(), "lifespan")
                try:
                    self._runner.state = await stack.enter_async_context(lifespan)
                finally:
                    stopping.cancel()
        except TimeoutError:
            if not limit.expired():
                raise
            return False
        return True

    async def _run(self) -> None:
        registered: list[Engine] = []
        renewal: LeaseRenewalThread | None = None
        try:
            for engine, routes in zip(self._engines, self._routes, strict=True):
                await self._retry_start(partial(self._register, engine, routes, registered))
            if len(registered) < len(self._engines):
                return
            renewal = LeaseRenewalThread(self._queue_loops, self._watchdog, self._max_block_s)
            await self._serve()
        finally:
            await self._close(registered, renewal)

    async def _register(
        self, engine: Engine, routes: Mapping[str, Routes], registered: list[Engine]
    ) -> None:
        """Register, unless the worker was stopped while it could not."""
        if self._shutdown.requested.is_set():
            return
        found = {each.name: each for own in routes.values() for each in own.definitions}
        await engine.register(
            list(found.values()), self._slot_count, self._app.missing_requirements
        )
        registered.append(engine)

    async def _serve(self) -> None:
        self._tasks.start(self._watchdog.watch(), "watchdog")
        for queue_loop in self._queue_loops:
            name = queue_loop.engine.name
            self._tasks.start(queue_loop.recover_own_orphans(), f"{name}: orphans")
            self._tasks.start(queue_loop.serve(), f"{name}: serve")
            self._tasks.start(queue_loop.listen(), f"{name}: cancels")
        for work in self._background:
            self._tasks.start(work(), "background")
        self.ready.set()
        if self._on_ready is not None:
            self._on_ready()
        try:
            await self._shutdown.requested.wait()
        except asyncio.CancelledError:
            self._shutdown.request()
            self._shutdown.request()
            await self._drain()
            raise
        await self._drain()

    async def _drain(self) -> None:
        leased = await drain(
            self._queue_loops, self._shutdown, drain_s=self._drain_s, grace_s=self._grace_s
        )
        if leased:
            _log.error(
                "jobs neither settled nor released jobs=%(jobs)s; their leases expire",
                {"jobs": leased},
            )

    async def _close(
        self, registered: Sequence[Engine], renewal: LeaseRenewalThread | None
    ) -> None:
        await self._tasks.end(_FLUSH_TIMEOUT_S)
        self.left_behind = self._runner.running
        # First, so that no heartbeat registers the worker again after `deregister`.
        if renewal is not None:
            await renewal.close()
        # All at once: without a server each takes its whole timeout.
        await asyncio.gather(*(_deregister(engine) for engine in registered))
        self._runner.close()
        if self.left_behind:
            _log.error(
                "handlers did not stop handlers=%(handlers)s; they end with the process",
                {"handlers": self.left_behind},
            )


async def _deregister(engine: Engine) -> None:
    try:
        async with asyncio.timeout(_FLUSH_TIMEOUT_S):
            await engine.deregister()
    except Exception as error:  # noqa: BLE001 - the registration expires
        _log.warning(
            "deregistration failed engine=%(engine)s error=%(error)s; the registration expires",
            {"engine": engine.name, "error": error},
        )


def engine_routes(app: App, engine: Engine) -> dict[str, Routes]:
    """The handlers of each queue of an engine."""
    if engine.traits.shares_handlers:
        return app.shared_routes(engine.wire, engine.queues)
    return {queue: app.routes(engine.wire, queue) for queue in engine.queues}


def _checked_routes(app: App, engine: Engine) -> dict[str, Routes]:
    """The handlers of the engine's queues; ValueError if one of them cannot run them."""
    found = engine_routes(app, engine)
    tasks = {handler.task for handler in (*app.handlers.values(), *app.queue_handlers)}
    for name, routes in found.items():
        if not routes.all:
            raise ValueError("the app has no handlers: register one with @app.handler('name')")
        queue = f"the queue {name!r} ({engine.wire})"
        if routes.catch_all is not None and not engine.traits.catch_all:
            raise ValueError(f"{queue} takes no handler for all tasks: name each task")
        for handler in routes.all:
            if missing := handler.uses - engine.traits.uses:
                raise ValueError(
                    f"handler {handler.task!r} uses {', '.join(sorted(missing))}, which {queue} "
                    "does not have"
                )
            _check_on_failure(handler, tasks, engine, queue)
    return found


def _check_on_failure(handler: Handler, tasks: Set[str], engine: Engine, queue: str) -> None:
    if not handler.on_failure:
        return
    if not engine.traits.on_failure:
        raise ValueError(f"handler {handler.task!r} has on_failure=, which {queue} does not have")
    if handler.on_failure not in tasks:
        raise ValueError(
            f"handler {handler.task!r}: on_failure={handler.on_failure!r} is not a task of this "
            "App: register a handler of it"
        )
