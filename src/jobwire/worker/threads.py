"""Threads for handlers that block.

Not the standard library's pool: the interpreter waits for its threads at exit, so a handler that
never returns would keep a stopping worker alive. These threads die with the process. They are
reused, so there are about as many as ever ran at the same time.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

Work = Callable[[], None]


class Threads:
    """A pool without a limit of its own: each caller holds a slot."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._idle = 0
        self._count = 0
        self._lock = threading.Lock()

    def start(self, work: Work) -> None:
        """Run `work`, which must not raise, in its own thread at once; RuntimeError if there can be
        no more threads."""
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                name = f"jobwire-handler-{self._count + 1}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
                self._count += 1
        self._work.put(work)

    async def call(
        self, function: Callable[[], Any]
    ) -> "tuple[Any, asyncio.CancelledError | None]":
        """Call the function in a thread, with the context variables of the caller. It cannot be
        stopped: a cancellation is returned beside its result, instead of the result of code that
        goes on."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        variables = copy_context()

        def work() -> None:
            try:
                value = variables.run(function)
            except BaseException as error:  # noqa: BLE001 - raised in the caller
                settle, value = answer.set_exception, _for_a_future(error)
            else:
                settle = answer.set_result
            with contextlib.suppress(RuntimeError):  # the loop has ended without this thread
                loop.call_soon_threadsafe(settle, value)

        self.start(work)
        cancelled: asyncio.CancelledError | None = None
        while not answer.done():
            try:
                await asyncio.wait([answer])
            except asyncio.CancelledError as error:
                cancelled = error
        try:
            return answer.result(), cancelled
        except Exception:
            if cancelled is not None:
                raise cancelled from None
            raise

    def close(self) -> None:
        """End idle threads now, and busy ones after their work."""
        with self._lock:
            for _ in range(self._count):
                self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            with self._lock:
                self._idle += 1


def _for_a_future(error: BaseException) -> BaseException:
    """A future refuses StopIteration."""
    if not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError("the function raised StopIteration")
    wrapped.__cause__ = error
    return wrapped
