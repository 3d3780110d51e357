"""Who watches which job, and how far each of them has got (J-15, J-17).

The follower keeps these; each feeding is one decision about one reader, without a wait. Readers
are handed in: an open stream of the gateway, or somebody who only wants to know of the end.
"""

import asyncio
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import chain, islice
from typing import Final, NamedTuple, Protocol

from jobwire.job.messages import JobId
from jobwire.valkey import Reply
from jobwire.wires.streams.events import START, Position, StreamEvent, following

MOST_ENTRIES: Final = 100
"""Entries in one read of one stream."""
_MAX_PUSHES: Final = 100_000
"""Events handed to readers in one turn of the loop: the rest of the gateway waits meanwhile."""


class EventReader(Protocol):
    """Whoever watches a job, as the follower sees it."""

    @property
    def closed(self) -> bool:
        """It will take no more, ever."""
        ...

    def push(self, event: StreamEvent, /) -> bool:
        """Take one more event; False: not now, or never again."""
        ...

    def send_gap(self) -> bool:
        """Be told that events may be missing here; answers like `push`."""
        ...

    def end(self) -> None:
        """There is nothing more to come."""
        ...

    async def wait_writable(self) -> None:
        """Return when a refused push may be tried again."""
        ...


class FeedResult(Enum):
    """How a feeding ended."""

    GOES_ON = "goes on"
    REFUSED = "refused"
    """No room for the rest."""
    AGAIN = "again"
    """What it had seen is no more: it begins anew, and the stream is to be read for it."""
    OVER = "over"
    """It has had the terminal event."""


class Feeding(NamedTuple):
    """How a feeding ended, and how many events were taken."""

    how: FeedResult
    taken: int


class Subscription:
    """One reader's place in one stream."""

    __slots__ = ("_told", "at", "finished", "over", "pending", "reader")

    def __init__(self, reader: EventReader, at: Position, *, finished: bool) -> None:
        self.reader = reader
        self.at = at
        self.finished = finished
        """The job's hash said that it had ended, so its terminal event is due."""
        self.over = False
        self.pending: asyncio.Task[None] | asyncio.TimerHandle | None = None
        """A task while its reader has no room; a timer while its terminal event is due."""
        self._told = False  # of the gap at its place

    def feed(self, events: Sequence[StreamEvent], *, whole: bool) -> Feeding:
        """Give the reader what is new to it, in a read that began at its place or before.

        `whole` says that the read reached the end of the stream.
        """
        found = following(self.at, events, whole=whole)
        if found.missed and not self._told:
            if not self.reader.send_gap():
                return Feeding(FeedResult.REFUSED, 0)
            self._told = True
        for taken, event in enumerate(found.events):
            if not self.reader.push(event):
                return Feeding(FeedResult.REFUSED, taken)
            self.at, self._told = event.position, False
            if event.is_terminal:
                return Feeding(FeedResult.OVER, taken + 1)
        if found.over:
            return Feeding(FeedResult.OVER, 0)
        if found.again:
            self.at = START
            return Feeding(FeedResult.AGAIN, 0)
        return Feeding(FeedResult.GOES_ON, len(found.events))


class FollowedStream:
    """One job's events and the watches on them.

    A watch is in one of three sets. Those that are level have every event up to `tail`: one look
    tells whether a read has anything new for all of them, so the arrival of a watch costs nothing
    per watch that is already there. Those that are behind are read for from their own positions.
    Those that are blocked wait for their reader.
    """

    __slots__ = (
        "_behind_last",
        "asked",
        "behind",
        "blocked",
        "count",
        "is_active",
        "is_status_known",
        "job_id",
        "job_key",
        "key",
        "level",
        "level_due",
        "reply",
        "start",
        "tail",
    )

    def __init__(self, job_id: JobId, key: str, job_key: str) -> None:
        self.job_id = job_id
        self.key = key
        self.job_key = job_key
        self.is_active = True
        """It was read since the last round of status checks."""
        self.is_status_known = False
        """The job's status was read since its last event, and its hash has not changed since."""
        # Used as ordered sets.
        self.behind: dict[Subscription, None] = {}
        self.level: dict[Subscription, None] = {}
        self.blocked: dict[Subscription, None] = {}
        self.tail = START
        self.level_due = False
        """There may be events after `tail`."""
        self._behind_last = False
        self.reply: asyncio.Future[Reply] | None = None
        """The read that is under way."""
        self.start = START
        """Where it began."""
        self.asked = MOST_ENTRIES
        """How many entries it asked for."""
        self.count = MOST_ENTRIES
        """How many entries to ask for: fewer where readers have no room for them."""

    @property
    def watches(self) -> Iterator[Subscription]:
        return chain(self.behind, self.level, self.blocked)

    @property
    def is_watched(self) -> bool:
        return bool(self.behind or self.level or self.blocked)

    def discard(self, watch: Subscription) -> None:
        """Take a watch out of the set that it is in."""
        for group in (self.behind, self.level, self.blocked):
            group.pop(watch, None)

    def plan_read(self) -> bool:
        """Decide where the next read begins and how long it is; False if no watch needs one.

        The two groups take turns, so that neither many arrivals nor many events keep the other
        waiting; of those behind, the one that has waited longest decides.
        """
        level = bool(self.level) and (not self.behind or (self.level_due and self._behind_last))
        self._behind_last = not level
        if level:
            self.start = self.tail
        elif self.behind:
            self.start = next(iter(self.behind)).at
        else:
            return False
        self.asked = max(2, min(self.count, _MAX_PUSHES // (len(self.level) + 1)))
        return True

    def served_by(self, last: Position, *, whole: bool) -> list[Subscription]:
        """Those behind for whom a read up to `last` has something; not all if they are many."""
        return [
            watch
            for watch in islice(self.behind, _MAX_PUSHES // MOST_ENTRIES)
            # One that came while this was being read may be before it: the next read is for it.
            if self.start <= watch.at and (whole or watch.at < last)
        ]


class UntilEnded:
    """A reader that only wants to know when it is over."""

    closed: bool = False

    def __init__(self) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def push(self, _: StreamEvent) -> bool:
        return True

    def send_gap(self) -> bool:
        # The end may be among what was lost: let its caller look at the job.
        self.end()
        return True

    def end(self) -> None:
        if not self.over.done():
            self.over.set_result(None)

    async def wait_writable(self) -> None:
        """Never waited for: it refuses nothing."""
