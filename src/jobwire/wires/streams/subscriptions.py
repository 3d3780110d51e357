"""Subscriptions to a job's events and their positions (J-15, J-17).

The follower owns these; each feed is one decision about one reader, without waiting. A reader is an
open event stream of the gateway, or a waiter for the end of the job.
"""

import asyncio
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import chain, islice
from typing import Final, NamedTuple, Protocol

from jobwire.job.messages import JobId
from jobwire.valkey.stream_ids import START, Position
from jobwire.valkey.tracking import TrackedKey
from jobwire.wires.streams.events import StreamEvent, following

MAX_ENTRIES: Final = 100
"""Entries in one read of one stream."""
_MAX_PUSHES: Final = 100_000
"""Events pushed to readers in one turn of the event loop, which delay the rest of the gateway."""


class EventReader(Protocol):
    """Receives a job's events from the follower."""

    @property
    def closed(self) -> bool:
        """It accepts no more events."""
        ...

    def push(self, event: StreamEvent, /) -> bool:
        """Accept one event; False: not now, or closed."""
        ...

    def send_gap(self) -> bool:
        """Accept a gap: events may be missing here. Returns as `push`."""
        ...

    def end(self) -> None:
        """No event follows."""
        ...

    async def wait_writable(self) -> None:
        """Return when a refused push may be repeated."""
        ...


class FeedResult(Enum):
    """The result of a feed."""

    CONTINUES = "continues"
    REFUSED = "refused"
    """The reader did not accept the rest."""
    RESTART = "restart"
    """The entry at its position is gone: it begins anew with another read."""
    ENDED = "ended"
    """It has the terminal event."""


class Feeding(NamedTuple):
    """The result of a feed, and how many events were accepted."""

    result: FeedResult
    accepted: int


class EventSubscription:
    """One reader's position in one stream."""

    __slots__ = ("_gap_sent", "at", "finished", "is_ended", "pending", "reader")

    def __init__(self, reader: EventReader, at: Position, *, finished: bool) -> None:
        self.reader = reader
        self.at = at
        self.finished = finished
        """The job's hash has a terminal status, so the terminal event is due."""
        self.is_ended = False
        self.pending: asyncio.Task[None] | asyncio.TimerHandle | None = None
        """A task while its reader is not writable; a timer while its terminal event is due."""
        self._gap_sent = False  # for its present position

    def feed(self, events: Sequence[StreamEvent], *, whole: bool) -> Feeding:
        """Push the new events of a read that began at this position or before.

        `whole`: the read reached the end of the stream.
        """
        found = following(self.at, events, whole=whole)
        if found.has_gap and not self._gap_sent:
            if not self.reader.send_gap():
                return Feeding(FeedResult.REFUSED, 0)
            self._gap_sent = True
        for accepted, event in enumerate(found.events):
            if not self.reader.push(event):
                return Feeding(FeedResult.REFUSED, accepted)
            self.at, self._gap_sent = event.position, False
            if event.is_terminal:
                return Feeding(FeedResult.ENDED, accepted + 1)
        if found.ended:
            return Feeding(FeedResult.ENDED, 0)
        if found.restart:
            self.at = START
            return Feeding(FeedResult.RESTART, 0)
        return Feeding(FeedResult.CONTINUES, len(found.events))


class FollowedStream(TrackedKey):
    """One job's events and the subscriptions to them.

    A subscription is in one of three groups. Those that are level have every event up to `tail`:
    one check decides whether a read has anything new for all of them, so a new subscription costs
    nothing per existing one. Those that are behind are read for from their own positions. Those
    that are blocked wait for their reader.
    """

    __slots__ = (
        "_behind_last",
        "behind",
        "blocked",
        "count",
        "is_active",
        "is_status_known",
        "job_id",
        "job_key",
        "level",
        "read_limit",
        "start",
        "tail",
    )

    def __init__(self, job_id: JobId, key: str, job_key: str) -> None:
        super().__init__(key)
        self.job_id = job_id
        self.job_key = job_key
        self.is_active = True
        """The stream was read since the last round of status checks."""
        self.is_status_known = False
        """The job's status was read since its last event, and its hash has not changed since."""
        # Used as ordered sets.
        self.behind: dict[EventSubscription, None] = {}
        self.level: dict[EventSubscription, None] = {}
        self.blocked: dict[EventSubscription, None] = {}
        self.tail = START
        self._behind_last = False
        self.start = START
        """Where the read in flight began."""
        self.read_limit = MAX_ENTRIES
        """The COUNT of that read."""
        self.count = MAX_ENTRIES
        """The COUNT of the next read: smaller where readers do not accept the entries."""

    @property
    def subscriptions(self) -> Iterator[EventSubscription]:
        return chain(self.behind, self.level, self.blocked)

    @property
    def has_subscriptions(self) -> bool:
        return bool(self.behind or self.level or self.blocked)

    def discard(self, subscription: EventSubscription) -> None:
        """Remove a subscription from its group."""
        for group in (self.behind, self.level, self.blocked):
            group.pop(subscription, None)

    def plan_read(self) -> bool:
        """Choose the start and COUNT of the next read; False if no subscription needs one.

        The two groups take turns, so that neither many new subscriptions nor many events delay the
        other group; of those behind, the one that has waited longest decides.
        """
        level = bool(self.level) and (not self.behind or (self.changed and self._behind_last))
        self._behind_last = not level
        if level:
            self.start = self.tail
        elif self.behind:
            self.start = next(iter(self.behind)).at
        else:
            return False
        self.read_limit = max(2, min(self.count, _MAX_PUSHES // (len(self.level) + 1)))
        return True

    def served_by(self, last: Position, *, whole: bool) -> list[EventSubscription]:
        """Those behind for which a read up to `last` has events; a bounded number of them."""
        return [
            subscription
            for subscription in islice(self.behind, _MAX_PUSHES // MAX_ENTRIES)
            # A subscription that was added during the read may be before its start: read next.
            if self.start <= subscription.at and (whole or subscription.at < last)
        ]


class UntilEnded:
    """A reader that only waits for the end."""

    closed: bool = False

    def __init__(self) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def push(self, _: StreamEvent) -> bool:
        return True

    def send_gap(self) -> bool:
        # The end may be among the lost events: its caller reads the job.
        self.end()
        return True

    def end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    async def wait_writable(self) -> None:
        """Never awaited: `push` always accepts."""
