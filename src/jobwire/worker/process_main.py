"""A child process for `process=True`: `python -m jobwire.worker.process_main FD`.

It takes jobs from its pipe, one at a time, and runs their handlers: an `async def` in an event
loop of its own, a `def` in its main thread. It never connects to a server: reports go over the
pipe to the worker, which sends them.

It does not outlive the worker: `spawn` kills it when the worker dies, and a thread ends it when the
pipe closes.
"""

import asyncio
import contextlib
import importlib
import os
import queue
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Final, cast

from jobwire import log
from jobwire.worker import outcomes, signature
from jobwire.worker.branches import Branches
from jobwire.worker.context import Context, SyncContext
from jobwire.worker.outcomes import Ending
from jobwire.worker.pipe import (
    ChildrenMessage,
    ChildrenRequest,
    Ended,
    Interrupt,
    LogConfig,
    Pipe,
    RecordAck,
    RecordMessage,
    ReportAck,
    ReportMessage,
    RestartTimeout,
    Start,
    Taken,
    ToChild,
)
from jobwire.worker.reports import PipeSink
from jobwire.worker.threads import Threads

_LEAVE_S: Final = 1.5
"""How long an idle process may take to leave its lifespan; the worker waits a little longer."""


class ProcessLifespan:
    """The App's lifespan in this process, and the event loop that it lives in with all jobs."""

    def __init__(self, lifespan: Callable[..., object]) -> None:
        """Enter it; raises what it raises."""
        self._runner = asyncio.Runner()
        self._manager = cast("contextlib.AbstractAsyncContextManager[object]", lifespan())
        try:
            self.state = self._runner.run(_enter(self._manager))
        except BaseException:
            self._runner.close()
            raise

    def run(self, work: "Coroutine[Any, Any, object]") -> object:
        """Run a job's coroutine; tasks that it leaves behind are cancelled, as by asyncio.run."""
        loop = self._runner.get_loop()
        before = asyncio.all_tasks(loop)
        try:
            return self._runner.run(work)
        finally:
            if left := asyncio.all_tasks(loop) - before:
                self._runner.run(_cancel(left))

    def leave(self) -> None:
        """Leave it and close the loop."""
        try:
            self._runner.run(_leave(self._manager))
        finally:
            self._runner.close()


async def _enter(manager: "contextlib.AbstractAsyncContextManager[object]") -> object:
    return await manager.__aenter__()


async def _leave(manager: "contextlib.AbstractAsyncContextManager[object]") -> None:
    await manager.__aexit__(None, None, None)


async def _cancel(tasks: "set[asyncio.Task[Any]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class JobReceiver:
    """The jobs of this process, one after the other."""

    def __init__(self, pipe: "Pipe[ToChild]") -> None:
        self._pipe = pipe
        self._starts: queue.SimpleQueue[tuple[Start, PipeSink] | None] = queue.SimpleQueue()
        self._sink: PipeSink | None = None
        self._programs: dict[str, dict[str, object]] = {}
        self._lifespan: ProcessLifespan | None = None
        self._threads = Threads()
        self._is_running = False
        self._left = threading.Event()

    def listen(self) -> None:
        """In a thread: dispatch messages; end the process when the pipe closes, after it has left
        its lifespan if it is idle."""
        with contextlib.suppress(Exception):
            while (message := self._pipe.receive()) is not None:
                match message:
                    case LogConfig():
                        log.setup(message.service, message.settings)
                    case Start():
                        self._sink = PipeSink(
                            lambda report: self._pipe.send(ReportMessage(report)),
                            lambda: self._pipe.send(RestartTimeout()),
                            lambda: self._pipe.send(ChildrenRequest()),
                            lambda field, value, kind: self._pipe.send(
                                RecordMessage(field, value, kind)
                            ),
                            self._threads,
                            message,
                        )
                        self._pipe.send(Taken())
                        self._starts.put((message, self._sink))
                    case ReportAck(ok=ok) if self._sink is not None:
                        self._sink.acknowledge(ok)
                    case ChildrenMessage() if self._sink is not None:
                        self._sink.children_answered(message.answer())
                    case RecordAck(error=error, code=code) if self._sink is not None:
                        self._sink.record_answered(error, code)
                    case Interrupt() if self._sink is not None:
                        self._sink.stop()
                    case _:
                        pass
        if self._lifespan is not None and not self._is_running:
            self._starts.put(None)
            self._left.wait(_LEAVE_S)
        os._exit(0)

    def serve(self) -> None:
        """In the main thread: run the jobs."""
        while (received := self._starts.get()) is not None:
            start, sink = received
            self._is_running = True
            log.bind_only({"job_id": start.job_id})
            context: list[Context[Any]] = []
            ending = self._run(start, sink, context)
            if sink.replay is not None:
                with contextlib.suppress(asyncio.CancelledError):  # the job is over
                    sink.replay.end()
            if sink.suspension is not None:
                ending = outcomes.suspended(sink.suspension)
            partial = outcomes.partial_json(context[0].partial) if context else ""
            self._is_running = False
            self._pipe.send(Ended(ending, partial, sink.steps.names))
        if self._lifespan is not None:
            self._lifespan.leave()
        self._left.set()

    def _run(self, start: Start, sink: PipeSink, made: "list[Context[Any]]") -> Ending:
        try:
            function = self._function(start.module, start.path, start.function)
            parameters = signature.read(function)
            job = start.job()
            payload = parameters.check(job.payload)
            if start.lifespan is not None and self._lifespan is None:
                self._lifespan = ProcessLifespan(self._function(*start.lifespan))
            lifespan = self._lifespan
            kind: type[Context[Any, Any]] = Context if parameters.is_async else SyncContext
            made.append(kind(job, cast("Any", payload), sink, lifespan and lifespan.state))
            with _trace_of(start):
                result = function(*parameters.arguments(made[0]))
                if parameters.is_async:
                    work = cast("Coroutine[Any, Any, object]", result)
                    run = asyncio.run if lifespan is None else lifespan.run
                    result = run(_interruptible(work, sink, start.job_id))
            return outcomes.returned(result, sink.max_result_bytes)
        except BaseException as error:  # noqa: BLE001 - it becomes an Ending
            return outcomes.raised(error)

    def _function(self, module: str, path: str, function: str) -> Callable[..., object]:
        if path:
            if path not in self._programs:
                # Under another name, so that `if __name__ == "__main__"` is false.
                found = runpy.run_path(path, run_name="__jobwire_child__")
                self._programs[path] = found
            names = self._programs[path]
        else:
            names = vars(importlib.import_module(module))
        first, *rest = function.split(".")
        found = names[first]
        for name in rest:
            found = getattr(found, name)
        return cast("Callable[..., object]", found)


def _trace_of(start: Start) -> contextlib.AbstractContextManager[None]:
    if not start.trace:
        return contextlib.nullcontext()
    from jobwire.worker.tracing import current_span

    return current_span(start.trace)


async def _interruptible(
    work: "Coroutine[Any, Any, object]", sink: PipeSink, job_id: str
) -> object:
    # The context of a lifespan's loop is that of the first job.
    log.bind_only({"job_id": job_id})
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    sink.interrupt = lambda: loop.call_soon_threadsafe(task.cancel)
    if "durable" in sink.uses:
        before = asyncio.all_tasks()
        sink.branches = Branches(loop, lambda: asyncio.all_tasks() <= before, sink.suspend_with)
    try:
        if sink.stopped:  # the interrupt came before this line
            task.cancel()
        return await work
    finally:
        sink.interrupt = None


def _ignore(_signal: int, _frame: FrameType | None) -> None:
    """A handler and not SIG_IGN: programs that a job starts must not inherit it."""


def main() -> None:
    # A signal to the whole process group is meant for the worker, which lets its jobs end first.
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, _ignore)
    jobs = JobReceiver(Pipe(socket.socket(fileno=int(sys.argv[1])), ToChild))
    threading.Thread(target=jobs.listen, name="jobwire-pipe", daemon=True).start()
    jobs.serve()


if __name__ == "__main__":
    main()
