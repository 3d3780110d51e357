"""The last word on a test that never ends: say where it stands, and end its process.

A test's limit (pytest-timeout) is an exception that a signal raises wherever the test is. An event
loop that is just running a callback takes it for that callback's failure and goes on: uvloop
always, asyncio now and then. A `with` that waits on the way out, or native code that never returns,
is not reached by it either, and the suite would wait for ever. This cannot be overheard; the
parallel run names the test whose process went, and starts another.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import threading
from collections.abc import Generator, Iterator
from typing import Final, TextIO

import pytest

# How long after its limit a test may take to fail by it; then it is described, then ended.
_GRACE_S: Final = 25.0
_LAST_S: Final = 5.0
_TERMINAL: Final = pytest.StashKey[TextIO]()


def pytest_configure(config: pytest.Config) -> None:
    # Output is caught while a test runs; this copy still leads outside.
    config.stash[_TERMINAL] = os.fdopen(os.dup(2), "w")


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_TERMINAL].close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    mark = item.get_closest_marker("timeout")
    limit_s = float(mark.args[0] if mark else item.config.getini("timeout")) + _GRACE_S
    terminal = item.config.stash[_TERMINAL]
    describing = threading.Timer(limit_s, _describe, [item.nodeid, terminal])
    describing.daemon = True
    describing.start()
    # Needs no Python to run, so native code that holds everything up does not hold this up.
    faulthandler.dump_traceback_later(limit_s + _LAST_S, file=terminal, exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        describing.cancel()


def _describe(test: str, terminal: TextIO) -> None:
    every_loops: set[asyncio.Task[object]] = set(asyncio.tasks._all_tasks)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType]  # the public way wants to be told the loop
    print(f"\n{test} is stuck; its tasks are:", file=terminal)
    for task in every_loops:
        print(task.get_name(), *_stand(task.get_coro()), sep="\n    ", file=terminal)
    terminal.flush()


def _stand(awaited: object) -> Iterator[str]:
    """Where a coroutine waits, from the outside in; a task's own stack has the first step only."""
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        yield f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
        awaited = getattr(awaited, "cr_await", None)
