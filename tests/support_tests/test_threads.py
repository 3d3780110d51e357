"""A thread that never ends fails its test with the thread's stack, and blocks no other test."""

from __future__ import annotations

import asyncio
import threading

import pytest
import uvloop

from tests.support.threads import Threads


def blocks_forever(until: threading.Event) -> None:
    until.wait(60)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_loop_does_not_wait_forever_for_its_thread(
    new_loop: type[asyncio.AbstractEventLoop],
) -> None:
    until = threading.Event()

    async def leave_one_behind() -> None:
        asyncio.get_running_loop().set_default_executor(Threads(grace_s=0.1))
        assert await asyncio.to_thread(lambda: 42) == 42
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await asyncio.to_thread(blocks_forever, until)

    try:
        with (
            pytest.raises(AssertionError, match=r"(?s)left 1 thread.*in blocks_forever"),
            asyncio.Runner(loop_factory=new_loop) as runner,
        ):
            runner.run(leave_one_behind())
    finally:
        until.set()


async def test_every_async_test_has_such_threads() -> None:
    assert await asyncio.to_thread(lambda: threading.current_thread().daemon)
