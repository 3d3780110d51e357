"""A budget over the pictures that one process has in memory (P-36).

A driver of a task has one `InHand`: it reserves bytes, then holds one picture. A reservation is
made at once for everything that is needed; one that has to wait gives back what it has first, so
drivers never wait for each other. Those that wait are served in their order.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Final, Self

MIB: Final = 1024 * 1024
SMALL: Final = MIB
"""Reserved before the size of a picture is known; most pictures need no more."""


class ByteBudget:
    """`total` bytes for all drivers, which may run in several threads and loops."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = total
        self._lock = threading.Lock()
        self._waiting: deque[_Waiter] = deque()

    def in_hand(self) -> InHand:
        """Nothing yet; for one driver."""
        return InHand(self)

    def try_take(self, size: int) -> bool:
        """Take bytes, unless they are not free or others wait."""
        with self._lock:
            fits = not self._waiting and size <= self._free
            self._free -= size if fits else 0
        return fits

    async def take(self, size: int) -> None:
        """Take bytes, after those who wait already."""
        with self._lock:
            if not self._waiting and size <= self._free:
                self._free -= size
                return
            waiter = _Waiter(size)
            self._waiting.append(waiter)
        try:
            await waiter.granted
        except asyncio.CancelledError:
            with self._lock:
                waits = waiter in self._waiting
                if waits:
                    self._waiting.remove(waiter)
            self.give_back(0 if waits else size)
            raise

    def give_back(self, size: int) -> None:
        """Return bytes; whoever waits and fits now goes on."""
        with self._lock:
            self._free += size
            while self._waiting and self._waiting[0].size <= self._free:
                waiter = self._waiting.popleft()
                if waiter.grant():
                    self._free -= waiter.size


class _Waiter:
    """One that waits for bytes, in its own event loop."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._loop = asyncio.get_running_loop()
        self.granted: asyncio.Future[None] = self._loop.create_future()

    def grant(self) -> bool:
        """Let it go on; False if its loop has ended."""

        def resolve() -> None:
            if not self.granted.done():
                self.granted.set_result(None)

        try:
            self._loop.call_soon_threadsafe(resolve)
        except RuntimeError:
            return False
        return True


class InHand:
    """What one driver has of the budget: reserved bytes, and at most one picture in them."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._reserved = 0
        self._key = ""
        self._picture: bytes | memoryview | None = None

    async def reserve(self, size: int) -> None:
        """Have at least so many bytes; waits until they are free. Drops what was held."""
        wanted = min(size, self._budget.total)
        if wanted <= self._reserved:
            return
        self.drop()
        await self._budget.take(wanted)
        self._reserved = wanted

    def grow(self, size: int) -> bool:
        """Have at least so many bytes without waiting; False if they are not free."""
        more = min(size, self._budget.total) - self._reserved
        if more > 0 and not self._budget.try_take(more):
            return False
        self._reserved += max(more, 0)
        return True

    def shrink(self, size: int) -> None:
        """Give back all but so many bytes."""
        surplus = max(self._reserved - size, 0)
        self._reserved -= surplus
        self._budget.give_back(surplus)

    def keep(self, key: str, picture: bytes | memoryview) -> None:
        """Hold a picture under its key, in the bytes that are reserved."""
        self._key, self._picture = key, picture

    def kept(self, key: str) -> bytes | memoryview | None:
        """The picture that is held, if it is this one."""
        return self._picture if key == self._key else None

    def drop(self) -> None:
        """Hold nothing."""
        self._key, self._picture = "", None
        self.shrink(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()
