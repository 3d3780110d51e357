"""How many jobs a worker holds at a time, shared fairly by the queues it serves.

Each queue's loop has a Share. It reserves one slot while it waits for work, so that work which
comes always finds one; woken, it takes more without waiting. Where several want more than there
is, none gets past its even part. A slot is free again when the handler's code has ended.
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
        """A part for one queue; `nudge` is called when a hungry one may look again."""
        if len(self._shares) == self.total:
            raise ValueError(
                f"{self.total} slot(s) for {self.total + 1} queues: "
                "each queue needs one at least; give more slots or serve fewer queues"
            )
        self._shares.append(Share(self, nudge))
        return self._shares[-1]

    @property
    def contested(self) -> bool:
        """Whether a slot that is given back may be somebody else's."""
        return bool(self._waiting) or self.free < 0 or len(self._shares) > 1

    def fair_part(self, share: "Share") -> int:
        """How many slots this one may hold, given who else wants some."""
        others = sum(1 for other in self._shares if other is not share and other.wants_more)
        return self.total if not others else max(1, self.total // (others + 1))

    def wait_for_slot(self, share: "Share") -> asyncio.Future[None]:
        """A place in the line for the next free slot."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((share, place))
        return place

    def give_back(self, count: int, by: "Share") -> None:
        """`count` slots are free: first for who waits in line, then for who is hungry."""
        if self.free < 0:  # overdrawn
            repaid = min(count, -self.free)
            self.free += repaid
            count -= repaid
        while count and self._waiting:
            share, place = self._waiting.popleft()
            if not place.done():
                count -= 1
                share.held += 1
                place.set_result(None)
        self.free += count
        if count and len(self._shares) > 1:
            for share in self._shares:
                if share.wants_more and share is not by:
                    share.nudge()


class Share:
    """One queue's part of the slots."""

    def __init__(self, slots: Slots, nudge: Callable[[], None]) -> None:
        self._slots = slots
        self.nudge = nudge
        self.held = 0
        self.wants_more = False
        """It has more work than it has slots, as far as it knows."""

    @property
    def contested(self) -> bool:
        """Whether somebody else may want what this one does not use."""
        return self._slots.contested

    async def acquire(self) -> None:
        """Reserve one slot, waiting for it if need be."""
        slots = self._slots
        if slots.free > 0:
            slots.free -= 1
            self.held += 1
            return
        place = slots.wait_for_slot(self)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.release()
            raise

    def try_acquire(self, limit: int) -> int:
        """Reserve up to `limit` more without waiting; says how many it got."""
        slots = self._slots
        count = min(limit, slots.free, slots.fair_part(self) - self.held)
        if count <= 0:
            return 0
        slots.free -= count
        self.held += count
        return count

    def force_acquire(self) -> None:
        """Take one that is not there, for a job that is held whether there is room or not."""
        self._slots.free -= 1
        self.held += 1

    def release(self, count: int = 1) -> None:
        """Give `count` slots back."""
        self.held -= count
        slots = self._slots
        if slots.contested:
            slots.give_back(count, self)
        else:
            slots.free += count
