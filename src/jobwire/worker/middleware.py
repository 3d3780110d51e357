"""Middleware: users' code around every handler of an App (J-54).

    @app.middleware
    async def timed(ctx: Context, call_next: CallNext) -> object:
        began = time.monotonic()
        try:
            return await call_next()
        finally:
            durations.observe(time.monotonic() - began)

The first that is registered is the outermost. Middleware runs on the worker's event loop for
handlers of every kind: `call_next` of a `def` waits for its thread, that of a handler with
`process=True` for its process. It may change the result, raise `Fail` or `Retry`, or not call the
handler at all. Payloads are checked before it runs.

Applied by the worker; an App without middleware is left as it is.
"""

import asyncio
import queue
from collections.abc import Awaitable, Callable, Sequence, Set
from contextvars import Context as Variables
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import msgspec

from jobwire.job.engine import Use
from jobwire.job.errors import JobSuspended
from jobwire.job.messages import (
    RECORD_KIND,
    Children,
    JobInfo,
    Report,
    Restarted,
    Suspended,
)
from jobwire.worker import outcomes
from jobwire.worker.app import App, Around, Handler
from jobwire.worker.context import Context
from jobwire.worker.outcomes import ProcessResult, Returned, SuspendRequested
from jobwire.worker.replay import Replay
from jobwire.worker.reports import PendingChildren, ReportSink
from jobwire.worker.signature import HandlerKind
from jobwire.worker.steps import StepRecord

CallNext = Callable[[], Awaitable[object]]


class Middleware(Protocol):
    """Called for each run of a handler; returns the result of the job."""

    def __call__(self, ctx: Context[Any, Any], call_next: CallNext, /) -> Awaitable[object]: ...


class HandlerProcessFailed(Exception):
    """What `call_next` raises where a handler in a process did not return."""

    def __init__(self, result: ProcessResult) -> None:
        super().__init__(f"the handler ended with {type(result.ending).__name__}")
        self.result = result


def with_middleware(app: App, state: Callable[[], object]) -> App:
    """The same app with its middleware around each handler; `state` returns `ctx.state` of this
    process. Called in a running event loop."""
    chain = tuple(app.middlewares)
    if not chain:
        return app
    loop = asyncio.get_running_loop()
    return app.wrapped(lambda handler: _with_chain(handler, chain, loop, state))


def _with_chain(
    handler: Handler,
    chain: Sequence[Middleware],
    loop: asyncio.AbstractEventLoop,
    state: Callable[[], object],
) -> Handler:
    if handler.kind is HandlerKind.PROCESS:
        return replace(handler, around=_around_process(handler, chain, loop, state))
    arguments, function = handler.signature.arguments, handler.function

    async def run(ctx: Context[Any, Any]) -> object:
        return await _chained(chain, ctx, lambda: _call(function, arguments(ctx), ctx))()

    def run_in_thread(ctx: Context[Any, Any]) -> object:
        return _in_thread(chain, ctx, lambda: function(*arguments(ctx)), loop)

    return handler.with_function(run if handler.kind is HandlerKind.ASYNC else run_in_thread)


async def _call(
    function: Callable[..., Any], arguments: Sequence[object], ctx: Context[Any, Any]
) -> object:
    """Call a coroutine; what middleware sees of a suspended one is the same for all kinds."""
    try:
        return await function(*arguments)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not ctx.sink.steps.suspended or ctx.sink.stopped or task is None:
            raise
        task.uncancel()
        raise JobSuspended from None


def _chained(chain: Sequence[Middleware], ctx: Context[Any, Any], last: CallNext) -> CallNext:
    for middleware in reversed(chain):
        last = partial(middleware, ctx, last)
    return last


def _in_thread(
    chain: Sequence[Middleware],
    ctx: Context[Any, Any],
    call: Callable[[], object],
    loop: asyncio.AbstractEventLoop,
) -> object:
    """In a handler's thread: run the chain on the loop, and the handler here when the chain calls
    it, with the context variables of that call."""
    calls: queue.SimpleQueue[tuple[Variables, asyncio.Future[object]] | None] = queue.SimpleQueue()

    def call_here() -> Awaitable[object]:
        answer: asyncio.Future[object] = loop.create_future()
        calls.put((copy_context(), answer))
        return answer

    async def run_chain() -> object:
        on_loop = Context(ctx.job, ctx.payload, LoopSink(ctx.sink), ctx.state)
        try:
            return await _chained(chain, on_loop, call_here)()
        finally:
            ctx.partial = on_loop.partial if ctx.partial is None else ctx.partial

    chained = asyncio.run_coroutine_threadsafe(run_chain(), loop)
    chained.add_done_callback(lambda _: calls.put(None))
    while (asked := calls.get()) is not None:
        variables, answer = asked
        try:
            settle = partial(_set_result, answer, variables.run(call))
        except BaseException as error:  # noqa: BLE001 - raised in the middleware
            settle = partial(_set_exception, answer, error)
        loop.call_soon_threadsafe(settle)
    return chained.result()


def _set_result(answer: "asyncio.Future[object]", value: object) -> None:
    if not answer.done():
        answer.set_result(value)


def _set_exception(answer: "asyncio.Future[object]", error: BaseException) -> None:
    if answer.done():
        return
    if isinstance(error, StopIteration):  # a future refuses it
        wrapped = RuntimeError("the handler raised StopIteration")
        wrapped.__cause__ = error
        error = wrapped
    answer.set_exception(error)


class LoopSink:
    """The sink of middleware around a handler in a thread: on the event loop, where adding to the
    handler's own sink could block."""

    def __init__(self, sink: ReportSink) -> None:
        self._sink = sink
        self.uses: Set[Use] = sink.uses
        self.reserved_kinds: Set[str] = sink.reserved_kinds
        self.any_progress = sink.any_progress
        self.max_result_bytes = sink.max_result_bytes
        self.branches = sink.branches
        self.threads = sink.threads

    @property
    def stopped(self) -> bool:
        return self._sink.stopped

    def add(self, report: Report) -> Awaitable[None]:
        async def add() -> None:
            await asyncio.to_thread(self._sink.add, report)

        return asyncio.ensure_future(add())

    @property
    def replay(self) -> Replay | None:
        return self._sink.replay

    def push(self, report: Report) -> object:
        return self._sink.push(report)

    def children(self) -> PendingChildren:
        async def read() -> Children:
            return (await asyncio.to_thread(self._sink.children)).result()

        return PendingChildren(read())

    @property
    def steps(self) -> StepRecord:
        return self._sink.steps

    async def record(self, field: str, value: str, kind: str = RECORD_KIND) -> None:
        await asyncio.to_thread(self._sink.record, field, value, kind)

    def suspend(self, outcome: Suspended | Restarted) -> Awaitable[None]:
        return self._sink.suspend(outcome)

    def restart_timeout(self) -> None:
        self._sink.restart_timeout()


def _around_process(
    handler: Handler,
    chain: Sequence[Middleware],
    loop: asyncio.AbstractEventLoop,
    state: Callable[[], object],
) -> Around:
    inner, check = handler.around, handler.signature.check

    def around(
        job: JobInfo, sink: ReportSink, run: Callable[[str], ProcessResult]
    ) -> ProcessResult:
        results: list[tuple[ProcessResult, object]] = []
        suspended: list[ProcessResult] = []

        def call() -> object:
            result = run("") if inner is None else inner(job, sink, run)
            if isinstance(result.ending, SuspendRequested):
                suspended.append(result)
                raise JobSuspended
            if not isinstance(result.ending, Returned):
                raise HandlerProcessFailed(result)
            value: object = msgspec.json.decode(result.ending.result_json)
            results.append((result, value))
            return value

        try:
            ctx = Context(job, check(job.payload), sink, state())
            value = _in_thread(chain, ctx, call, loop)
        except HandlerProcessFailed as failed:
            return failed.result
        except BaseException as error:  # noqa: BLE001 - it becomes an Ending
            if suspended:
                return suspended[0]
            ending = outcomes.raised(error)
        else:
            if suspended:
                return suspended[0]
            for result, returned in results:
                if value is returned:
                    return result
            ending = outcomes.returned(value, sink.max_result_bytes)
        return ProcessResult(ending, "", sink.stopped)

    return around
