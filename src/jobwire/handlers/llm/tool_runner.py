"""Runs one of the user's functions in a thread of its own, with a time limit.

Called by `tool.py`. A thread cannot be stopped: past its limit the function goes on, alone, and
what it returns is dropped. It never holds up the end of the process.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

_MOST: Final = 64
_running = threading.Semaphore(_MOST)


class TooMany(Exception):
    """As many functions as may are running, most of them past their limit."""


async def run(
    function: Callable[..., object], arguments: Mapping[str, object], limit_s: float
) -> object:
    """What it returns; its exception; TimeoutError after `limit_s`; TooMany if it did not start."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[object] = loop.create_future()
    room = _running
    if not room.acquire(blocking=False):
        raise TooMany

    def settle(value: object, error: BaseException | None) -> None:
        if not outcome.done():  # somebody still waits for it
            outcome.set_exception(error) if error is not None else outcome.set_result(value)

    def work() -> None:
        value, error = None, None
        try:
            value = function(**arguments)
        except BaseException as raised:  # noqa: BLE001 - whatever it is, it is the caller's to judge
            error = raised
        finally:
            room.release()
        with suppress(RuntimeError):  # the loop has ended without us
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=work, name=f"tool-{function.__name__}", daemon=True).start()
    async with asyncio.timeout(limit_s):
        return await outcome
