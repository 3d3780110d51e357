"""Runs handlers of every kind, and reports how each ended.

A queue loop hands over runs (`begin`, then `drive` for the coroutines among them). The value or
exception of the user's code becomes an Ending; no exception of it leaves this module.

**Coroutines** begin in the calling task. Those that finish without waiting never get a task of
their own; the first that waits keeps that task, and the others go on in a new one. So
`asyncio.current_task()` is the same task for all of a handler's life, and is cancelled for that
handler only. A handler that changes the task (cancels it, or sets a context variable) is the last
one in it.
"""

import asyncio
import contextlib
import inspect
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextvars import copy_context
from functools import partial
from types import CoroutineType, coroutine
from typing import Any, Final, cast

from jobwire.log import bind_only
from jobwire.worker import outcomes
from jobwire.worker.branches import end_tasks
from jobwire.worker.context import Context, SyncContext
from jobwire.worker.outcomes import ProcessResult
from jobwire.worker.process_pool import HandlerProcess, ProcessPool
from jobwire.worker.reports import ReportSink, ThreadSink
from jobwire.worker.run import Phase, Run
from jobwire.worker.signature import HandlerKind
from jobwire.worker.task_pool import TaskPool
from jobwire.worker.threads import Threads

# For each job: reading a member from its enum is slow.
_ASYNC: Final = HandlerKind.ASYNC
_ENDED: Final = Phase.ENDED
_RUNNING: Final = Phase.RUNNING
_BRANCH_GRACE_S: Final = 1.0
"""How long tasks that a handler has left may take to end."""


class Runner:
    """One for all queues of a worker."""

    def __init__(self, tasks: TaskPool) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks = tasks
        self.threads = Threads()
        self._processes = ProcessPool()
        self.state: object = None
        """`ctx.state` in this process."""
        self.lifespan: Callable[[], object] | None = None
        """Entered by each child process for its own `ctx.state`."""
        self.running = 0
        """Handlers whose code has not ended."""

    def begin(self, runs: Iterable[Run]) -> "deque[Run]":
        """Start threads and processes; returns the coroutines, which `drive` must get at once. Runs
        that waited for the renewal of their leases are begun a second time."""
        ready: deque[Run] = deque()
        now_s = time.monotonic()
        for run in runs:
            handler = run.handler
            if not run.begun:
                run.begun = True
                self.running += 1
            run.timeout_from_s = now_s
            if handler.kind is _ASYNC:
                ready.append(run)
            else:
                self._begin_thread(run)
        return ready

    def ended(self, run: Run) -> None:
        """The run's code has ended."""
        if run.begun:
            self.running -= 1

    def close(self) -> None:
        """End idle threads and processes; busy ones end with this process."""
        self.threads.close()
        self._processes.close()

    # ── coroutines ───────────────────────────────────────────────────────────────────────────────

    async def drive(self, runs: "deque[Run]") -> None:
        """Run coroutines one after the other as long as none of them waits."""
        task = cast("asyncio.Task[None]", asyncio.current_task())
        while runs:
            run = runs.popleft()
            if run.phase is _ENDED:
                continue  # stopped before it began
            if run.lease_ran_out:
                run.owner.renew_first(run)
                continue
            run.phase = _RUNNING
            run.task = task
            bind_only({"job_id": run.leased.job.id})
            if "durable" in run.handler.uses:
                run.begin_branches()
            clean = copy_context()
            try:
                work = _call(run, run, self.state)
                waiting_for = work.send(None)
            except StopIteration as end:
                run.code_ended(outcomes.returned(end.value, run.max_result_bytes))
            except BaseException as error:  # noqa: BLE001 - it becomes an Ending
                run.code_ended(outcomes.raised(error))
            else:
                if runs:
                    self._tasks.start(self.drive(runs))
                await self._finish(run, task, work, waiting_for)
                return
            if runs and (task.cancelling() or copy_context() != clean):
                self._tasks.start(self.drive(runs))
                return

    async def _finish(
        self, run: Run, task: "asyncio.Task[None]", work: "_Work", waiting_for: object
    ) -> None:
        """The handler waits: from here on this task is its own."""
        run.interrupt = task.cancel
        run.limit(run.handler.timeout_of(run.leased))
        try:
            value = await _resumed(work, waiting_for)
        except BaseException as error:  # noqa: BLE001 - it becomes an Ending
            ending = outcomes.raised(error)
        else:
            ending = outcomes.returned(value, run.max_result_bytes)
        if run.tasks:
            # The job goes on elsewhere when it is settled: nothing of this run may work then.
            with contextlib.suppress(asyncio.CancelledError):
                await end_tasks(run.tasks, _BRANCH_GRACE_S)
        run.code_ended(ending)

    # ── threads, and processes, each served by a thread ──────────────────────────────────────────

    def _begin_thread(self, run: Run) -> None:
        if run.lease_ran_out:
            run.owner.renew_first(run)
            return
        run.phase = Phase.RUNNING
        run.sink = ThreadSink(self._loop, run)
        run.limit(run.handler.timeout_of(run.leased))
        if run.handler.kind is HandlerKind.PROCESS:
            run.sink.replay = None  # the child process has its own
            process = self._processes.acquire()
            run.interrupt, run.kill = process.interrupt, process.kill
            work = partial(self._in_process, run, process)
        else:
            work = partial(self._in_thread, run)
        try:
            self.threads.start(work)
        except RuntimeError as error:  # the system has no more threads
            run.code_ended(outcomes.raised(error))

    def _in_thread(self, run: Run) -> None:
        assert run.sink is not None
        bind_only({"job_id": run.leased.job.id})
        try:
            if run.sink.stopped:
                raise asyncio.CancelledError
            value = _checked(_call_handler(run, run.sink, self.state, SyncContext))
            ending = outcomes.returned(value, run.max_result_bytes)
        except BaseException as error:  # noqa: BLE001 - it becomes an Ending
            ending = outcomes.raised(error)
        if run.replay is not None:
            run.replay.end()
        self._call_on_loop(lambda: run.code_ended(ending))

    def _in_process(self, run: Run, process: HandlerProcess) -> None:
        sink, handler, job = run.sink, run.handler, run.leased.job
        assert sink is not None
        bind_only({"job_id": job.id})

        def run_in_process(trace: str = "") -> ProcessResult:
            return process.run(handler.function, job, sink, trace, self.lifespan)

        around = handler.around
        try:
            result = run_in_process() if around is None else around(job, sink, run_in_process)
        except BaseException as error:  # noqa: BLE001 - it becomes an Ending
            process.close()
            result = ProcessResult(outcomes.raised(error), "", sink.stopped)

        def ended() -> None:
            run.code_ended(result.ending, result.partial_json)
            self._processes.release(process)

        self._call_on_loop(ended)

    def _call_on_loop(self, callback: Callable[[], None]) -> None:
        # The loop is closed if the worker has ended without this thread.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)


_Work = Coroutine[object, None, object]


def _call_handler(
    run: Run, sink: ReportSink, state: object, kind: type[Context[Any, Any]] = Context
) -> object:
    """Check the payload and call the handler."""
    handler, job = run.handler, run.leased.job
    signature = handler.signature
    payload = job.payload if signature.payload_type is None else signature.check(job.payload)
    context = run.context = kind(job, payload, sink, state)
    if signature.payload_at is None:
        return handler.function(context)
    return handler.function(*signature.arguments(context))


def _call(run: Run, sink: ReportSink, state: object) -> _Work:
    work = _call_handler(run, sink, state)
    return cast(_Work, work) if type(work) is CoroutineType else _wrapped(work)


async def _wrapped(work: object) -> object:
    """For an awaitable that is not a coroutine of Python, which `send` cannot drive."""
    return await cast("Any", work)


def _checked(value: object) -> object:
    """A `def` that returns a coroutine is an `async def` behind a decorator."""
    if not inspect.isawaitable(value):
        return value
    if inspect.iscoroutine(value):
        value.close()
    raise TypeError("the handler returned an awaitable: register it as `async def`")


@coroutine
def _resumed(work: _Work, waiting_for: object) -> Generator[object, None, object]:
    """Await a coroutine that has begun and waits for `waiting_for`."""
    while True:
        try:
            yield waiting_for
        except BaseException as error:  # noqa: BLE001 - thrown into the coroutine
            try:
                waiting_for = work.throw(error)
            except StopIteration as end:
                return end.value
        else:
            return (yield from cast("Generator[object, None, object]", work))
