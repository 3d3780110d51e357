"""Runs handlers of every kind, and reports how each ended.

A loop hands over runs (`begin`, then `drive` for the coroutines among them). What the user's code
did, a value or any exception, becomes an Ending; nothing of it ever gets past here.

**Coroutines** are begun in the task that is at hand. Most that finish without waiting never get a
task of their own; the first that waits keeps that task as its own, and the others go on in a new
one. So `asyncio.current_task()` is the same task for all of a handler's life, and is cancelled for
that handler only. A handler that leaves the task marked (cancelled it, or set a context variable)
is the last one in it.
"""

import asyncio
import contextlib
import inspect
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextvars import copy_context
from types import CoroutineType, coroutine
from typing import Any, cast

from jobwire.log import bind_only
from jobwire.worker import outcomes
from jobwire.worker.context import Context, ReportSink
from jobwire.worker.outcomes import ProcessResult
from jobwire.worker.process_pool import HandlerProcess, ProcessPool
from jobwire.worker.report_buffer import ThreadReportBuffer
from jobwire.worker.run import Phase, Run
from jobwire.worker.signature import HandlerKind
from jobwire.worker.task_pool import TaskPool
from jobwire.worker.threads import Threads


class Limit:
    """How often one handler may run at a time, and who waits for its turn."""

    __slots__ = ("parked", "room")

    def __init__(self, room: int) -> None:
        self.room = room
        self.parked: deque[Run] = deque()


class Runner:
    """One for all queues of a worker, since a handler's limit holds for all of them together."""

    def __init__(self, tasks: TaskPool) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks = tasks
        self._threads = Threads()
        self._children = ProcessPool()
        self._limits: dict[str, Limit] = {}
        self.running = 0
        """Handlers whose code has not ended."""

    def begin(self, runs: Iterable[Run]) -> "deque[Run]":
        """Start those that run elsewhere; the rest is to be given to `drive` at once."""
        ready: deque[Run] = deque()
        now_s = time.monotonic()
        for run in runs:
            handler = run.handler
            if handler.concurrency is not None and not self._admit(run, handler.concurrency):
                continue
            run.begun = True
            run.timeout_from_s = now_s
            self.running += 1
            if handler.kind is HandlerKind.ASYNC:
                ready.append(run)
            else:
                self._begin_thread(run)
        return ready

    def resume(self, runs: Iterable[Run]) -> "deque[Run]":
        """The same for runs that had begun and waited for the renewal of their leases."""
        ready: deque[Run] = deque()
        now_s = time.monotonic()
        for run in runs:
            run.timeout_from_s = now_s
            if run.handler.kind is HandlerKind.ASYNC:
                ready.append(run)
            else:
                self._begin_thread(run)
        return ready

    def ended(self, run: Run) -> None:
        """Its code has ended: the next that waited for it may begin."""
        if run.begun:
            self.running -= 1
        if run.handler.concurrency is None:
            return
        limit = self._limits.get(run.handler.task)
        if limit is None or not run.begun:
            if limit is not None and run in limit.parked:  # stopped before its turn came
                limit.parked.remove(run)
            return
        limit.room += 1
        while limit.parked and limit.room:
            if ready := self.begin([limit.parked.popleft()]):
                self._tasks.start(self.drive(ready))

    def close(self) -> None:
        """End what idles; what still runs ends with the process."""
        self._threads.close()
        self._children.close()

    def _admit(self, run: Run, concurrency: int) -> bool:
        limit = self._limits.get(run.handler.task)
        if limit is None:
            limit = self._limits[run.handler.task] = Limit(concurrency)
        if not limit.room:
            limit.parked.append(run)
            return False
        limit.room -= 1
        return True

    # ── coroutines ───────────────────────────────────────────────────────────────────────────────

    async def drive(self, runs: "deque[Run]") -> None:
        """Run coroutines one after the other as long as none of them waits."""
        task = cast("asyncio.Task[None]", asyncio.current_task())
        while runs:
            run = runs.popleft()
            if run.phase is Phase.ENDED:
                continue  # stopped before its turn came
            if run.lease_ran_out:
                run.owner.renew_first(run)
                continue
            run.phase = Phase.RUNNING
            bind_only({"job_id": run.leased.job.id})
            clean = copy_context()
            try:
                work = _call(run, run)
                waits_for = work.send(None)
            except StopIteration as end:
                run.code_ended(outcomes.returned(end.value))
            except BaseException as error:  # noqa: BLE001 - all of the user's exceptions are ours
                run.code_ended(outcomes.raised(error))
            else:
                if runs:
                    self._tasks.start(self.drive(runs))
                await self._finish(run, task, work, waits_for)
                return
            if runs and (task.cancelling() or copy_context() != clean):
                self._tasks.start(self.drive(runs))
                return

    async def _finish(
        self, run: Run, task: "asyncio.Task[None]", work: "_Work", waits_for: object
    ) -> None:
        """The handler waits for something: from here on this task is its own."""
        run.interrupt = task.cancel
        run.limit(run.handler.timeout_of(run.leased))
        try:
            value = await _resumed(work, waits_for)
        except BaseException as error:  # noqa: BLE001 - all of the user's exceptions are ours
            run.code_ended(outcomes.raised(error))
        else:
            run.code_ended(outcomes.returned(value))

    # ── threads, and processes, which a thread waits for ─────────────────────────────────────────

    def _begin_thread(self, run: Run) -> None:
        if run.lease_ran_out:
            run.owner.renew_first(run)
            return
        run.phase = Phase.RUNNING
        run.sink = ThreadReportBuffer(self._loop, run.add_from_thread, run.restart_timeout)
        run.limit(run.handler.timeout_of(run.leased))
        if run.handler.kind is HandlerKind.PROCESS:
            child = self._children.acquire()
            run.interrupt, run.kill = child.interrupt, child.kill
            self._threads.start(lambda: self._in_process(run, child))
        else:
            self._threads.start(lambda: self._in_thread(run))

    def _in_thread(self, run: Run) -> None:
        assert run.sink is not None
        bind_only({"job_id": run.leased.job.id})
        try:
            if run.sink.stopped:
                raise asyncio.CancelledError
            ending = outcomes.returned(_checked(_call_plainly(run, run.sink)))
        except BaseException as error:  # noqa: BLE001 - all of the user's exceptions are ours
            ending = outcomes.raised(error)
        self._tell_loop(lambda: run.code_ended(ending))

    def _in_process(self, run: Run, child: HandlerProcess) -> None:
        mouth, handler, job = run.sink, run.handler, run.leased.job
        assert mouth is not None

        def elsewhere(trace: str = "") -> ProcessResult:
            return child.run(handler.function, job, mouth, trace)

        ran = elsewhere() if handler.around is None else handler.around(job, elsewhere)

        def ended() -> None:
            run.code_ended(ran.ending, ran.partial_json)
            self._children.give_back(child)

        self._tell_loop(ended)

    def _tell_loop(self, news: Callable[[], None]) -> None:
        # A closed loop: the worker has ended without this thread.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(news)


_Work = Coroutine[object, None, object]


def _call_plainly(run: Run, outlet: ReportSink) -> object:
    """Check the payload and call the handler."""
    handler, job = run.handler, run.leased.job
    asks = handler.signature
    payload = job.payload if asks.payload_type is None else asks.check(job.payload)
    context = run.context = Context(job, payload, outlet)
    if asks.payload_at is None:
        return handler.function(context)
    return handler.function(*asks.arguments(context))


def _call(run: Run, outlet: ReportSink) -> _Work:
    work = _call_plainly(run, outlet)
    return cast(_Work, work) if type(work) is CoroutineType else _wrapped(work)


async def _wrapped(work: object) -> object:
    """For an awaitable of another make, which cannot be driven by hand."""
    return await cast("Any", work)


def _checked(value: object) -> object:
    """A `def` that hands back a coroutine is an `async def` behind a decorator."""
    if not inspect.isawaitable(value):
        return value
    if inspect.iscoroutine(value):
        value.close()
    raise TypeError("the handler returned an awaitable: register it as `async def`")


@coroutine
def _resumed(work: _Work, waits_for: object) -> Generator[object, None, object]:
    """Await a coroutine that has begun already and waits for `waits_for`."""
    while True:
        try:
            yield waits_for
        except BaseException as error:  # noqa: BLE001 - passed on to where it belongs
            try:
                waits_for = work.throw(error)
            except StopIteration as end:
                return end.value
        else:
            return (yield from cast("Generator[object, None, object]", work))
