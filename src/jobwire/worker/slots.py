"""The slots of a worker, shared fairly by its queues: how many jobs it runs at a time.

Each queue loop has a Share. A queue that waits for work holds no slot: it only *offers* free ones
for the jobs that the wait may start, and acquires them when such jobs have come. If other queues
were faster, the jobs wait in line for the next free slots (`when_free`). If several queues want
more slots than there are, each gets at most an equal part. Shards of the same queues are one
`Group`: they have one part together, and take turns with all that is free of it, so that each takes
a large batch (G-6). A slot is free again when the handler's code has ended.
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
        """The shares that want more slots than they have, the one whose turn it is first."""
        self.groups_wanting = 0
        """How many groups have such shares."""
        self.nudged: Share | None = None
        """The share that acquires free slots in the next turn of its queue loop."""
        self._groups: dict[str, Group] = {}
        self._in_line: deque[tuple[Share, Callable[[], bool]]] = deque()

    def share(self, nudge: Callable[[], bool], group: str = "") -> "Share":
        """A share for one queue, or for one shard of the queue `group`. `nudge` is called when
        slots are free and it wants more; it says whether it acquires some soon."""
        self.queues += 1
        own = self._groups.setdefault(group, Group()) if group else Group()
        return Share(self, nudge, own)

    @property
    def contested(self) -> bool:
        """Whether another queue may need a released slot."""
        return self.queues > 1 or bool(self._in_line) or self.free < 0

    def room(self, group: "Group") -> int:
        """How many free slots a group may acquire, given how many others want some."""
        groups = self.groups_wanting + (not group.wanting)
        part = self.total if groups == 1 else max(1, self.total // groups)
        return min(self.free, part - group.held)

    def nudge_next(self) -> None:
        """Slots are free: let the next share that can use them acquire them."""
        if self.nudged is not None:
            return
        for share in self.wanting:
            if self.room(share.group) > 0 and share.nudge():
                self.nudged = share
                return

    def is_turn_of(self, share: "Share") -> bool:
        """Whether no other share of its group comes first, and can use a slot."""
        for other in self.wanting:
            if other is share:
                return True
            if other.group is share.group and other.nudge():
                return False
        return True

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

    def release(self, count: int) -> None:
        """`count` slots are free: first for those in line, then for shares that want more."""
        if self.free < 0:  # after force_acquire or resize
            repaid = min(count, -self.free)
            self.free += repaid
            count -= repaid
        while count and self._in_line:
            share, start = self._in_line.popleft()
            share.hold(1)
            if start():
                count -= 1
            else:
                share.hold(-1)
        self.free += count
        if count:
            self.nudge_next()


def check_slots(total: int) -> None:
    """ValueError if a worker cannot have so many."""
    if total < 1:
        raise ValueError(f"{total} slots: a worker needs at least one")


class Group:
    """The shares that have one part of the slots together; most often a single one."""

    def __init__(self) -> None:
        self.held = 0
        self.wanting = 0
        """How many of its shares want more slots."""


class Share:
    """One queue's share of the slots."""

    def __init__(self, slots: Slots, nudge: Callable[[], bool], group: Group) -> None:
        self._slots = slots
        self.nudge = nudge
        self.group = group
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
        slots, group = self._slots, self.group
        if more:
            slots.wanting[self] = None
            slots.groups_wanting += not group.wanting
            group.wanting += 1
        else:
            del slots.wanting[self]
            group.wanting -= 1
            slots.groups_wanting -= not group.wanting
            self.pass_on()

    def pass_on(self) -> None:
        """This share cannot use free slots now: others may."""
        if self._slots.free > 0:
            self._slots.nudge_next()

    def hold(self, count: int) -> None:
        """Count so many more slots as held."""
        self.held += count
        self.group.held += count

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
        self.hold(count)
        return count

    async def acquire(self) -> None:
        """Acquire one slot; waits in line if none is free."""
        slots = self._slots
        if slots.free > 0:
            slots.free -= 1
            self.hold(1)
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
        count = min(limit, slots.room(self.group))
        if count <= 0:
            return 0
        slots.free -= count
        self.hold(count)
        return count

    def begin_turn(self) -> None:
        """To be called first in each turn of the queue loop, also where it cannot take: from now on
        others may be nudged."""
        if self._slots.nudged is self:
            self._slots.nudged = None

    def take_turn(self, limit: int) -> int:
        """The same if it is the turn of this share; the next one is another's."""
        slots = self._slots
        if slots.free <= 0 or not slots.is_turn_of(self):
            return 0
        count = self.try_acquire(limit)
        if count:
            del slots.wanting[self]
            slots.wanting[self] = None
        self.pass_on()  # what is left is for other groups
        return count

    def force_acquire(self) -> None:
        """Acquire a slot even if none is free, for a job that is leased already."""
        self._slots.free -= 1
        self.hold(1)

    def release(self, count: int = 1) -> None:
        """Free `count` slots."""
        self.hold(-count)
        slots = self._slots
        if slots.contested:
            slots.release(count)
        else:
            slots.free += count
