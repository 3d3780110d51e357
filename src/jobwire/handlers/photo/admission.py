"""Which photo may be processed now: free workers, and a budget for decoded pixels.

First come, first served: a large photo at the head of the queue is not overtaken, so it cannot
wait forever.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from jobwire.handlers.photo.errors import PoolFull
from jobwire.handlers.photo.header import BadHeader, PhotoHeader, read_header
from jobwire.handlers.photo.options import BYTES_PER_PIXEL, MEGAPIXEL, PhotoOptions

_FIRST_BYTES: Final = 1 << 18
"""Most headers end within these."""


def memory_cost(source: Path, options: PhotoOptions) -> int:
    """Bytes that decoding will need, by the header; 0 for what validation will refuse."""
    try:
        header = _header(source, options.max_bytes)
    except (OSError, BadHeader):
        return 0
    if header.pixels > options.max_megapixels * MEGAPIXEL:
        return 0
    return header.pixels * BYTES_PER_PIXEL * (2 if header.is_buffered else 1)


def _header(source: Path, max_bytes: int) -> PhotoHeader:
    with source.open("rb") as file:
        start = file.read(min(max_bytes, _FIRST_BYTES))
        try:
            return read_header(start)
        except BadHeader:
            if len(start) < _FIRST_BYTES:
                raise
            return read_header(start + file.read(max_bytes - len(start)))


class PhotoAdmission:
    """Counts workers and bytes in use. Used on one event loop."""

    def __init__(self, *, workers: int, budget: int, max_waiting: int) -> None:
        self._workers = workers
        self._budget = budget
        self._max_waiting = max_waiting
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def is_full(self) -> bool:
        """Whether one more would be refused."""
        return len(self._waiting) >= self._max_waiting and not self._fits(0)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def admitted(self, cost: int) -> AsyncGenerator[None]:
        """Hold a worker and `cost` bytes of the budget; PoolFull where too many wait."""
        await self._enter(cost)
        try:
            yield
        finally:
            self._leave(cost)

    async def _enter(self, cost: int) -> None:
        if not self._waiting and self._fits(cost):
            self._take(cost)
            return
        if len(self._waiting) >= self._max_waiting:
            raise PoolFull("too many photos are waiting; try again later")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (cost, turn)
        self._waiting.append(place)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave(cost)  # admitted and cancelled in the same moment
            else:
                with suppress(ValueError):  # its turn had come, and was passed on
                    self._waiting.remove(place)
                self._wake()  # those behind may fit
            raise

    def _fits(self, cost: int) -> bool:
        return self._workers > 0 and cost <= self._budget

    def _take(self, cost: int) -> None:
        self._workers -= 1
        self._budget -= cost

    def _leave(self, cost: int) -> None:
        self._workers += 1
        self._budget += cost
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            cost, turn = self._waiting.popleft()
            if not turn.done():
                self._take(cost)
                turn.set_result(None)
