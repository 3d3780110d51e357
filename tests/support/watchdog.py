"""The last resort for a test that never ends: print its stacks, cancel it, and end its process.

A test's limit (pytest-timeout) is an exception that a signal raises wherever the test is. An event
loop that is running a callback treats it as that callback's failure and continues: uvloop always,
asyncio sometimes. Tasks of every loop are therefore cancelled from inside, and the test then fails
like any other. A `with` that waits in its exit, or native code that never returns, is not reached
by that either, and the suite would wait forever. So the process is ended. The parallel run then
names the test whose process died, and starts another process.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import threading
from collections.abc import Generator, Iterator
from typing import Any, Final, TextIO

import pytest

# How long after its limit a test may take to fail by it; then it is described and cancelled, this
# often (a cancel can get lost: python 3.11's `wait_for` may drop one), and then it is ended.
_GRACE_S: Final = 10.0
_AGAIN_S: Final = 5.0
_TIMES: Final = 4
_TERMINAL: Final = pytest.StashKey[TextIO]()


def pytest_configure(config: pytest.Config) -> None:
    # Output is captured while a test runs; this copy is not.
    config.stash[_TERMINAL] = os.fdopen(os.dup(2), "w")


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_TERMINAL].close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    limit_s = _limit_s(item) + _GRACE_S
    terminal, over = item.config.stash[_TERMINAL], threading.Event()
    helping = threading.Thread(
        target=_help, args=(item.nodeid, limit_s, over, terminal), name="stuck", daemon=True
    )
    helping.start()
    # Runs without Python, so native code that holds the GIL does not block it.
    last_s = limit_s + _AGAIN_S * (_TIMES + 1)
    faulthandler.dump_traceback_later(last_s, file=terminal, exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        over.set()
        helping.join(_AGAIN_S)


def _limit_s(item: pytest.Item) -> float:
    """The limit of pytest-timeout: of the test, else of the command line, else of the project."""
    mark = item.get_closest_marker("timeout")
    if mark:
        return float(mark.args[0])
    given: float | None = item.config.getoption("timeout")
    return float(item.config.getini("timeout") if given is None else given)


def _help(test: str, limit_s: float, over: threading.Event, terminal: TextIO) -> None:
    if over.wait(limit_s):
        return
    print(f"\n{test} is stuck; its tasks are:", file=terminal)
    for task in _tasks():
        print(task.get_name(), *_stand(task.get_coro()), sep="\n    ", file=terminal)
    terminal.flush()
    for _ in range(_TIMES):
        for loop in {task.get_loop() for task in _tasks()}:
            if loop.is_running():
                loop.call_soon_threadsafe(_cancel_all, loop)
        if over.wait(_AGAIN_S):
            return


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel("the test is over its limit and did not fail by it")


def _tasks() -> list[asyncio.Task[Any]]:
    """The tasks of every loop in every thread; `asyncio.all_tasks` needs the loop."""
    found = [each for each in gc.get_objects() if issubclass(type(each), asyncio.Task)]
    return [task for task in found if not task.done()]


def _stand(awaited: object) -> Iterator[str]:
    """The stack of a waiting coroutine, outermost first; a task's own stack has the first step
    only."""
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        yield f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
        awaited = getattr(awaited, "cr_await", None)
