"""The slots of a worker, shared fairly by its queues: how many jobs it runs at a time.

Each queue loop has a Share. A queue that waits for work holds no slot: it only *offers* free ones
for the jobs that the wait may start, and acquires them when such jobs have come. If other queues
were faster, the jobs wait in line for the next free slots (`when_free`). If several queues want
more slots than there are, each gets at most an equal part. A slot is free again when the handler's
code has ended.
"""

import asyncio
from collections import deque
from collections.abc import Callable


class Slots:
    """All of one worker's slots."""

    def __init__(self, total: int) -> None:
        check_slots(total)
        self.total = total
        self.free = total
        self.offered = 0
        """Free slots that waiting queues have offered."""
        self.queues = 0
        self.wanting: dict[Share, None] = {}
        """The shares that want more slots than they have."""
        self._in_line: deque[tuple[Share, Callable[[], bool]]] = deque()

    def share(self, nudge: Callable[[], None]) -> "Share":
        """A share for one queue; `nudge` is called when slots are free and it wants more."""
        self.queues += 1
        return Share(self, nudge)

    @property
    def contested(self) -> bool:
        """Whether another queue may need a released slot."""
        return self.queues > 1 or bool(self._in_line) or self.free < 0

    def fair_part(self, share: "Share") -> int:
        """How many slots the share may hold, given how many others want some."""
        others = len(self.wanting) - (share in self.wanting)
        return self.total if not others else max(1, self.total // (others + 1))

    def wait_in_line(self, share: "Share", start: Callable[[], bool]) -> None:
        """Call `start` with the next free slot; False: it needs none any more."""
        self._in_line.append((share, start))

    def resize(self, total: int) -> None:
        """Have so many slots. Where fewer are left than are held, the next released ones are not
        free again."""
        check_slots(total)
        more, self.total = total - self.total, total
        if more > 0:
            self.release(more)
        else:
            self.free += more

    def release(self, count: int, by: "Share | None" = None) -> None:
        """`count` slots are free: first for those in line, then for shares that want more."""
        if self.free < 0:  # after force_acquire or resize
            repaid = min(count, -self.free)
            self.free += repaid
            count -= repaid
        while count and self._in_line:
            share, start = self._in_line.popleft()
            share.held += 1
            if start():
                count -= 1
            else:
                share.held -= 1
        self.free += count
        if count and self.wanting:
            for share in tuple(self.wanting):
                if share is not by:
                    share.nudge()


def check_slots(total: int) -> None:
    """ValueError if a worker cannot have so many."""
    if total < 1:
        raise ValueError(f"{total} slots: a worker needs at least one")


class Share:
    """One queue's share of the slots."""

    def __init__(self, slots: Slots, nudge: Callable[[], None]) -> None:
        self._slots = slots
        self.nudge = nudge
        self.held = 0
        self.wants_more = False
        """Its queue may have more jobs than it has slots. Set by `want`."""

    @property
    def holds_all(self) -> bool:
        """No slot is free, and no other queue uses one."""
        return self._slots.queues == 1 and self._slots.free <= 0

    def want(self, more: bool) -> None:
        """Set `wants_more`."""
        if more is self.wants_more:
            return
        self.wants_more = more
        if more:
            self._slots.wanting[self] = None
        else:
            del self._slots.wanting[self]

    def offer(self, limit: int) -> int:
        """Offer up to `limit` free slots for jobs that a wait may start; returns how many. They
        stay free for other queues. `accept` ends the offer."""
        slots = self._slots
        count = max(0, min(limit, slots.free - slots.offered))
        slots.offered += count
        return count

    def accept(self, offered: int, needed: int) -> int:
        """End an offer and acquire up to `needed` slots; returns how many were still free."""
        slots = self._slots
        slots.offered -= offered
        count = max(0, min(needed, slots.free))
        slots.free -= count
        self.held += count
        return count

    async def acquire(self) -> None:
        """Acquire one slot; waits in line if none is free."""
        slots = self._slots
        if slots.free > 0:
            slots.free -= 1
            self.held += 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def start() -> bool:
            if waiter.done():
                return False
            waiter.set_result(None)
            return True

        slots.wait_in_line(self, start)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release()
            raise

    def when_free(self, start: Callable[[], bool]) -> None:
        """Call `start` with the next free slot, which it holds from then on; False: it needs none
        any more."""
        self._slots.wait_in_line(self, start)

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
