"""The threads of a loop under test (`asyncio.to_thread`): its end does not wait forever for them.

A loop that is closed waits for each of its threads. One that reads a stream without an end, because
the test has failed before, would block the whole suite beyond every time limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_GRACE_S: Final = 30.0


class Threads(ThreadPoolExecutor):
    """A daemon thread for each call, so that not even the interpreter's end waits for one."""

    def __init__(self, grace_s: float = _GRACE_S) -> None:
        super().__init__()
        self._grace_s = grace_s
        self._started: list[threading.Thread] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - raised where the result is awaited
                answer.set_exception(error)

        answer.set_running_or_notify_cancel()
        self._started = [thread for thread in self._started if thread.is_alive()]
        self._started.append(threading.Thread(target=run, name="test-thread", daemon=True))
        self._started[-1].start()
        return answer

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        deadline_s = time.monotonic() + (self._grace_s if wait else 0.0)
        for thread in self._started:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        if wait and (left := [thread for thread in self._started if thread.is_alive()]):
            stands = "\n".join(map(_stand, left))
            raise AssertionError(f"the test left {len(left)} thread(s) behind, at\n{stands}")


def call_on_loop(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Call it on a loop of another thread, unless that has ended by itself, which it may do at any
    moment: whether the thread lives says nothing."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)


def _stand(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)  # pyright: ignore[reportPrivateUsage]  # documented, whatever its name
    return "".join(traceback.format_stack(frame)) if frame else thread.name
