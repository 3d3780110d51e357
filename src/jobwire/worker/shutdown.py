"""How a worker stops: it takes no more jobs, lets running ones finish, then releases the rest.

`Shutdown` holds the request, `drain` carries it out. Leases are renewed meanwhile: the worker ends
lease renewal after the drain.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from jobwire.worker.queue_loop import QueueLoop

_log: Final = logging.getLogger("jobwire.worker")
_FLUSH_TIMEOUT_S: Final = 5.0


class Shutdown:
    """Requested once: drain. Requested again: release everything now."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.now = asyncio.Event()

    def request(self) -> None:
        """Called by a signal handler."""
        if self.requested.is_set():
            self.now.set()
        self.requested.set()


async def drain(
    queue_loops: Sequence[QueueLoop], shutdown: Shutdown, *, drain_s: float, grace_s: float
) -> int:
    """Let jobs finish for up to `drain_s`, then release them; returns how many are still leased."""
    leased = sum(len(each.runs) for each in queue_loops)
    _log.info(
        "stopping jobs=%(jobs)s within_s=%(within_s)s; running jobs may finish",
        {"jobs": leased, "within_s": drain_s},
    )
    await asyncio.gather(*(each.stop_taking() for each in queue_loops))
    if not await _wait_idle(queue_loops, drain_s, shutdown.now):
        left = sum(len(each.runs) for each in queue_loops)
        _log.info("stopping jobs=%(jobs)s; jobs are released", {"jobs": left})
        for each in queue_loops:
            each.release_all()
        # Handlers get their grace time; then their outcomes must be written.
        await _wait_idle(queue_loops, grace_s + _FLUSH_TIMEOUT_S)
    return sum(len(each.runs) for each in queue_loops)


async def _wait_idle(
    queue_loops: Sequence[QueueLoop], timeout_s: float, interrupt: asyncio.Event | None = None
) -> bool:
    """Wait until nothing is leased; False after the timeout or at the interrupt."""
    idle = asyncio.ensure_future(_all_idle(queue_loops))
    ends = [idle] if interrupt is None else [idle, asyncio.ensure_future(interrupt.wait())]
    try:
        await asyncio.wait(ends, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return idle.done()
    finally:
        for end in ends:
            end.cancel()


async def _all_idle(queue_loops: Sequence[QueueLoop]) -> None:
    for each in queue_loops:
        await each.idle.wait()
