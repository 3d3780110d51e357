"""Who watches which job, and how far each of them has got (J-15, J-17).

The follower keeps these; each feeding is one decision about one reader, without a wait. Readers
are handed in: an open stream of the gateway, or somebody who only wants to know of the end.
"""

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

from jobwire.job.messages import JobId
from jobwire.valkey import Reply
from jobwire.wires.streams.events import START, Position, StreamEvent, following

MOST_ENTRIES: Final = 100
"""Entries in one read of one stream."""


class Reader(Protocol):
    """Whoever watches a job, as the follower sees it."""

    @property
    def closed(self) -> bool:
        """It will take no more, ever."""
        ...

    def push(self, event: StreamEvent, /) -> bool:
        """Take one more event; False: not now, or never again."""
        ...

    def lost(self) -> bool:
        """Be told that events may be missing here; answers like `push`."""
        ...

    def end(self) -> None:
        """There is nothing more to come."""
        ...

    async def room(self) -> None:
        """Return when a refused push may be tried again."""
        ...


class Fed(Enum):
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

    how: Fed
    taken: int


class Watch:
    """One reader's place in one stream."""

    __slots__ = ("_told", "at", "finished", "over", "pending", "reader")

    def __init__(self, reader: Reader, at: Position, *, finished: bool) -> None:
        self.reader = reader
        self.at = at
        self.finished = finished
        """The job's hash said that it had ended, so its terminal event is due."""
        self.over = False
        self.pending: asyncio.Task[None] | asyncio.TimerHandle | None = None
        """A task while it stands aside, until there is room; a timer while its event is due."""
        self._told = False  # of the gap at its place

    @property
    def stands_aside(self) -> bool:
        return isinstance(self.pending, asyncio.Task)

    def feed(self, events: Sequence[StreamEvent], *, whole: bool) -> Feeding:
        """Give the reader what is new to it, in a read that began at its place or before.

        `whole` says that the read reached the end of the stream.
        """
        found = following(self.at, events, whole=whole)
        if found.missed and not self._told:
            if not self.reader.lost():
                return Feeding(Fed.REFUSED, 0)
            self._told = True
        for taken, event in enumerate(found.events):
            if not self.reader.push(event):
                return Feeding(Fed.REFUSED, taken)
            self.at, self._told = event.position, False
            if event.is_terminal:
                return Feeding(Fed.OVER, taken + 1)
        if found.over:
            return Feeding(Fed.OVER, 0)
        if found.again:
            self.at = START
            return Feeding(Fed.AGAIN, 0)
        return Feeding(Fed.GOES_ON, len(found.events))


class Stream:
    """One job's events and everybody who watches them."""

    __slots__ = (
        *("count", "is_active", "is_status_known", "job_id", "job_key", "key"),
        *("reply", "start", "watches"),
    )

    def __init__(self, job_id: JobId, key: str, job_key: str) -> None:
        self.job_id = job_id
        self.key = key
        self.job_key = job_key
        self.is_active = True
        """It was read since the last round of status checks."""
        self.is_status_known = False
        """The job's status was read since its last event, and its hash has not changed since."""
        self.watches: list[Watch] = []
        self.reply: asyncio.Future[Reply] | None = None
        """The read that is under way."""
        self.start = START
        """Where it began."""
        self.count = MOST_ENTRIES
        """How many entries to ask for: fewer where readers have no room for them."""

    def furthest_behind(self) -> Position | None:
        """The earliest place of those who can take something; None if nobody can."""
        return min((watch.at for watch in self.watches if not watch.stands_aside), default=None)


class UntilEnded:
    """A reader that only wants to know when it is over."""

    closed: bool = False

    def __init__(self) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def push(self, _: StreamEvent) -> bool:
        return True

    def lost(self) -> bool:
        # The end may be among what was lost: let its caller look at the job.
        self.end()
        return True

    def end(self) -> None:
        if not self.over.done():
            self.over.set_result(None)

    async def room(self) -> None:
        """Never waited for: it refuses nothing."""
