"""Wait for a condition instead of sleeping; the error names the condition."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, cast

T = TypeVar("T")

# Generous: a busy machine is several times slower, and a test that passes never waits this long.
DEADLINE_S: Final = 60.0
# The interval grows, so that long waits use little CPU.
_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 0.05
_LONGER: Final = 1.25


async def wait_until(
    condition: Callable[[], T | Awaitable[T]], what: str = "", *, timeout_s: float = DEADLINE_S
) -> T:
    """Call the condition until its value is true and return the value; it may be async.

    The last call begins after the time is over: this process may have stood still.
    """
    deadline, pause_s = time.monotonic() + timeout_s, _PAUSE_S
    while True:
        is_last = time.monotonic() > deadline
        result = condition()
        answer = cast("T", await result if inspect.isawaitable(result) else result)
        if answer:
            return answer
        if is_last:
            raise AssertionError(_complaint(condition, what, answer, timeout_s))
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * _LONGER, _LONGEST_PAUSE_S)


def wait_until_sync(
    condition: Callable[[], T], what: str = "", *, timeout_s: float = DEADLINE_S
) -> T:
    """The same without a loop."""
    deadline, pause_s = time.monotonic() + timeout_s, _PAUSE_S
    while True:
        is_last = time.monotonic() > deadline
        answer = condition()
        if answer:
            return answer
        if is_last:
            raise AssertionError(_complaint(condition, what, answer, timeout_s))
        time.sleep(pause_s)
        pause_s = min(pause_s * _LONGER, _LONGEST_PAUSE_S)


def _complaint(condition: Callable[[], object], what: str, answer: object, timeout_s: float) -> str:
    if not what:
        code = getattr(condition, "__code__", None)
        what = f"{code.co_filename}:{code.co_firstlineno}" if code else repr(condition)
    return f"waited {timeout_s:g} s for {what}; the last answer was {answer!r}"
