"""A child process for `process=True`: `python -m jobwire.worker.process_main FD PARENT`.

It takes jobs from its pipe, one at a time, and runs their handlers: an `async def` in an event
loop of its own, a `def` in its main thread. It never talks to a server: what its handlers say goes
back over the pipe, and the worker says it.

It does not outlive the worker. Where the kernel can, it is asked to kill us when the worker dies;
everywhere, a thread ends us when the pipe does.
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
from collections.abc import Awaitable, Callable, Coroutine
from types import FrameType
from typing import Any, Final, cast

from jobwire import log
from jobwire.job.messages import Report
from jobwire.worker import outcomes, signature
from jobwire.worker.context import REPORT_ADDED, Context
from jobwire.worker.outcomes import Ending
from jobwire.worker.pipe import (
    Ended,
    Interrupt,
    LogConfig,
    Pipe,
    ReportAck,
    ReportMessage,
    RestartTimeout,
    Start,
    ToChild,
)

_PR_SET_PDEATHSIG: Final = 1


class PipeReportSink:
    """The outlet of the job in work: one report at a time, each taken before the next."""

    def __init__(self, pipe: "Pipe[ToChild]") -> None:
        self._pipe = pipe
        self._one = threading.Lock()
        self._answers: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.stopped = False
        self.interrupt: Callable[[], object] | None = None

    def add(self, report: Report) -> Awaitable[None]:
        with self._one:
            self._pipe.send(ReportMessage.of(report))
            if not self._answers.get():
                raise asyncio.CancelledError("this job is over")
        return REPORT_ADDED

    def restart_timeout(self) -> None:
        self._pipe.send(RestartTimeout())

    def acknowledge(self, ok: bool) -> None:
        self._answers.put(ok)

    def stop(self) -> None:
        """Called by the thread that listens."""
        self.stopped = True
        if self.interrupt is not None:
            self.interrupt()


class JobReceiver:
    """The jobs of this child, one after the other."""

    def __init__(self, pipe: "Pipe[ToChild]") -> None:
        self._pipe = pipe
        self._orders: queue.SimpleQueue[tuple[Start, PipeReportSink]] = queue.SimpleQueue()
        self._mouth: PipeReportSink | None = None
        self._programs: dict[str, dict[str, object]] = {}

    def listen(self) -> None:
        """In a thread: sort what comes; end the process when nothing can come any more."""
        with contextlib.suppress(Exception):
            while (message := self._pipe.receive()) is not None:
                match message:
                    case LogConfig():
                        log.setup(message.service, message.settings())
                    case Start():
                        self._mouth = PipeReportSink(self._pipe)
                        self._orders.put((message, self._mouth))
                    case ReportAck(ok=ok) if self._mouth is not None:
                        self._mouth.acknowledge(ok)
                    case Interrupt() if self._mouth is not None:
                        self._mouth.stop()
                    case _:
                        pass
        os._exit(0)

    def serve(self) -> None:
        """In the main thread: run them."""
        while True:
            order, mouth = self._orders.get()
            log.bind(job_id=order.job_id)
            context: list[Context[Any]] = []
            ending = self._run(order, mouth, context)
            partial = outcomes.partial_json(context[0].partial) if context else ""
            self._pipe.send(Ended(ending, partial))

    def _run(self, order: Start, mouth: PipeReportSink, made: "list[Context[Any]]") -> Ending:
        try:
            function = self._function(order)
            asks = signature.read(function)
            job = order.job()
            made.append(Context(job, asks.check(job.payload), mouth))
            with _trace_of(order):
                result = function(*asks.arguments(made[0]))
                if asks.is_async:
                    work = cast("Coroutine[Any, Any, object]", result)
                    result = asyncio.run(_interruptible(work, mouth))
            return outcomes.returned(result)
        except BaseException as error:  # noqa: BLE001 - all of the user's exceptions are ours
            return outcomes.raised(error)

    def _function(self, order: Start) -> Callable[..., object]:
        if order.path:
            if order.path not in self._programs:
                # Under another name, so that `if __name__ == "__main__"` holds back.
                found = runpy.run_path(order.path, run_name="__jobwire_child__")
                self._programs[order.path] = found
            names = self._programs[order.path]
        else:
            names = vars(importlib.import_module(order.module))
        first, *rest = order.function.split(".")
        found = names[first]
        for name in rest:
            found = getattr(found, name)
        return cast("Callable[..., object]", found)


def _trace_of(order: Start) -> contextlib.AbstractContextManager[None]:
    if not order.trace:
        return contextlib.nullcontext()
    from jobwire.worker.tracing import going_on_with

    return going_on_with(order.trace)


async def _interruptible(work: "Coroutine[Any, Any, object]", mouth: PipeReportSink) -> object:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    mouth.interrupt = lambda: loop.call_soon_threadsafe(task.cancel)
    try:
        if mouth.stopped:  # before we were there to be told
            task.cancel()
        return await work
    finally:
        mouth.interrupt = None


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)
    # Whoever ends a worker's whole group means the worker; that lets its jobs end first.
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, _not_for_us)


def _not_for_us(_signal: int, _frame: FrameType | None) -> None:
    """A handler and not SIG_IGN: programs that a job starts must not inherit it."""


def main() -> None:
    fd, parent = map(int, sys.argv[1:])
    _die_with(parent)
    jobs = JobReceiver(Pipe(socket.socket(fileno=fd), ToChild))
    threading.Thread(target=jobs.listen, name="jobwire-pipe", daemon=True).start()
    jobs.serve()


if __name__ == "__main__":
    main()
