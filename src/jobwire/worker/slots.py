"""The slots of a worker, shared fairly by its queues: how many jobs it runs at a time.

Each queue loop has a Share. It reserves one slot while it waits for work, so that arriving work has
one; then it acquires more without waiting. If several queues want more slots than there are, each
gets at most an equal part. A slot is free again when the handler's code has ended.
"""

import asyncio
from collections import deque
from collections.abc import Callable


class Slots:
    """All of one worker's slots."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = total
        self._shares: list[Share] = []
        self._waiting: deque[tuple[Share, asyncio.Future[None]]] = deque()

    def share(self, nudge: Callable[[], None]) -> "Share":
        """A share for one queue; `nudge` is called when slots are free and it wants more."""
        if len(self._shares) == self.total:
            raise ValueError(
                f"{self.total} slot(s) for {self.total + 1} queues: "
                "each queue needs at least one; set more slots or serve fewer queues"
            )
        self._shares.append(Share(self, nudge))
        return self._shares[-1]

    @property
    def contested(self) -> bool:
        """Whether another queue may need a released slot."""
        return bool(self._waiting) or self.free < 0 or len(self._shares) > 1

    def fair_part(self, share: "Share") -> int:
        """How many slots the share may hold, given how many others want some."""
        others = sum(1 for other in self._shares if other is not share and other.wants_more)
        return self.total if not others else max(1, self.total // (others + 1))

    def wait_for_slot(self, share: "Share") -> asyncio.Future[None]:
        """A future for the next free slot."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((share, waiter))
        return waiter

    def release(self, count: int, by: "Share") -> None:
        """`count` slots are free: first for waiting shares, then for those that want more."""
        if self.free < 0:  # after force_acquire
            repaid = min(count, -self.free)
            self.free += repaid
            count -= repaid
        while count and self._waiting:
            share, waiter = self._waiting.popleft()
            if not waiter.done():
                count -= 1
                share.held += 1
                waiter.set_result(None)
        self.free += count
        if count and len(self._shares) > 1:
            for share in self._shares:
                if share.wants_more and share is not by:
                    share.nudge()


class Share:
    """One queue's share of the slots."""

    def __init__(self, slots: Slots, nudge: Callable[[], None]) -> None:
        self._slots = slots
        self.nudge = nudge
        self.held = 0
        self.wants_more = False
        """Its queue may have more jobs than it has slots."""

    @property
    def contested(self) -> bool:
        """Whether another queue may need the slots that this one does not use."""
        return self._slots.contested

    async def acquire(self) -> None:
        """Acquire one slot; waits if none is free."""
        slots = self._slots
        if slots.free > 0:
            slots.free -= 1
            self.held += 1
            return
        waiter = slots.wait_for_slot(self)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release()
            raise

    def try_acquire(self, limit: int) -> int:
        """Acquire up to `limit` slots without waiting; returns how many."""
        slots = self._slots
        count = min(limit, slots.free, slots.fair_part(self) - self.held)
        if count <= 0:
            return 0
        slots.free -= count
        self.held += count
        return count

    def force_acquire(self) -> None:
        """Acquire a slot even if none is free, for a job that is leased already."""
        self._slots.free -= 1
        self.held += 1

    def release(self, count: int = 1) -> None:
        """Free `count` slots."""
        self.held -= count
        slots = self._slots
        if slots.contested:
            slots.release(count, self)
        else:
            slots.free += count
