"""Runs a function of the user in its own thread, with a time limit.

Called by `tool.py`. A thread cannot be stopped: after the limit the function continues and its
result is dropped. The thread is a daemon, so it does not delay the exit of the process.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final, NamedTuple

_MAX_RUNNING: Final = 64
_slots = threading.Semaphore(_MAX_RUNNING)


class TooMany(Exception):
    """The limit of running functions is reached, mostly by those past their time limit."""


class ToolReturn(NamedTuple):
    """How a function ended. An exception is a value here: SystemExit, raised into the event loop,
    would end the worker, and a CancelledError would look like a cancellation of the job."""

    value: object
    error: BaseException | None


async def run(
    function: Callable[..., object], arguments: Mapping[str, object], limit_s: float
) -> ToolReturn:
    """The function's result or exception; TimeoutError after `limit_s`; TooMany if not started."""
    slots = _slots
    if not slots.acquire(blocking=False):
        raise TooMany
    outcome: Future[ToolReturn] = Future()
    outcome.set_running_or_notify_cancel()  # a canceled caller does not cancel the thread's result

    def work() -> None:
        value, error = None, None
        try:
            value = function(**arguments)
        except BaseException as raised:  # noqa: BLE001 - passed on to the caller
            error = raised
        finally:
            slots.release()
        outcome.set_result(ToolReturn(value, error))

    threading.Thread(target=work, name=f"tool-{function.__name__}", daemon=True).start()
    async with asyncio.timeout(limit_s):
        return await asyncio.wrap_future(outcome)
