"""How a worker ends: it takes no more, lets its jobs end, then gives the rest back.

`Shutdown` is the wish, `drain` the doing. The leases are kept all the while: the worker ends its
keepers after this, not before.
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Sequence
from typing import Final

from jobwire.worker.queue_loop import QueueLoop

_log: Final = logging.getLogger("jobwire.worker")
_LAST_WORDS_S: Final = 5.0


class Shutdown:
    """Asked once: drain. Asked again: give everything back now."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.now = asyncio.Event()

    def ask(self) -> None:
        """What a signal calls."""
        if self.asked.is_set():
            self.now.set()
        self.asked.set()


async def drain(
    sources: Sequence[QueueLoop], shutdown: Shutdown, *, drain_s: float, grace_s: float
) -> int:
    """Let jobs end for up to `drain_s`, then release them; how many could not be handed over."""
    held = sum(len(source.runs) for source in sources)
    _log.info("stopping: no more jobs; %d may go on for %g s", held, drain_s)
    await _together(source.stop_taking() for source in sources)
    if not await _idle(sources, drain_s, shutdown.now):
        left = sum(len(source.runs) for source in sources)
        _log.info("stopping: giving back %d job(s)", left)
        for source in sources:
            source.release_all()
        # Handlers that listen get their grace; then their outcomes have to be written.
        await _idle(sources, grace_s + _LAST_WORDS_S)
    return sum(len(source.runs) for source in sources)


async def _idle(
    sources: Sequence[QueueLoop], patience_s: float, sooner: asyncio.Event | None = None
) -> bool:
    """Wait until nothing is held; False where the patience, or somebody's, ends before."""
    idle = asyncio.ensure_future(_together(source.idle.wait() for source in sources))
    ends = [idle] if sooner is None else [idle, asyncio.ensure_future(sooner.wait())]
    try:
        await asyncio.wait(ends, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        return idle.done()
    finally:
        for end in ends:
            end.cancel()


async def _together(waits: Iterable[Awaitable[object]]) -> None:
    await asyncio.gather(*waits)
