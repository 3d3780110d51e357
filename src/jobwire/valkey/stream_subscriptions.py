"""Subscriptions to the events of a stream, and their positions.

`stream_follower` owns these; each feed is one decision about one reader, without waiting. A wire
says by its `Rules` how entries are decoded and when a subscription has its last event. Pure.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain, islice
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from jobwire.valkey.resp_socket import Reply
from jobwire.valkey.stream_ids import START, Position
from jobwire.valkey.tracking import TrackedKey

_MAX_PUSHES: Final = 100_000
"""Events pushed to readers in one turn of the event loop, which delay the rest of the gateway."""


class FollowedEvent(Protocol):
    """One entry of a stream, decoded."""

    @property
    def position(self) -> Position: ...

    @property
    def is_terminal(self) -> bool:
        """Its subject has ended."""
        ...


E = TypeVar("E", bound=FollowedEvent)
E_contra = TypeVar("E_contra", contravariant=True)


class EventReader(Protocol[E_contra]):
    """Receives events from a follower: an open event stream of the gateway, or a waiter."""

    @property
    def closed(self) -> bool:
        """It accepts no more events."""
        ...

    def push(self, event: E_contra, /) -> bool:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules(Generic[E]):
    """What a wire says about its streams.

    A stream without subjects is about one thing, and its terminal event is the last one. A stream
    with subjects does not end. The subscriptions of one subject do, with a terminal event: at once
    if it is new, but among past events only if no later one reopens the subject.
    """

    read: Callable[[Reply], Sequence[E]]
    """Decodes the reply to XRANGE."""
    subject: Callable[[E], str | None] | None = None
    begins: Callable[[E], bool] = lambda _: True
    """The event may be the first of its stream. Earlier ones than any other were evicted."""
    reopens: Callable[[E], bool] = lambda _: False
    """The event means that its subject runs again."""
    max_entries: int = 100
    """Entries in one read of one stream."""


class EventsFound(NamedTuple, Generic[E]):
    """The result of a read for a subscription at a position."""

    events: Sequence[E]
    """The events after the position."""
    has_gap: bool = False
    """The entry at the position is gone, and later ones may be gone too."""
    restart: bool = False
    """The position lies behind the last entry: begin anew."""
    ended: bool = False
    """The position was the end of the stream."""


def following(
    position: Position, events: Sequence[E], *, whole: bool, can_end: bool = True
) -> EventsFound[E]:
    """The events after `position`, in a read that began there or before.

    `whole`: the read reached the end of the stream. `can_end`: no event follows a terminal one.
    """
    if position == START:
        return EventsFound(events)
    at = bisect_left(events, position, key=lambda event: event.position)
    if at < len(events) and events[at].position == position:
        if can_end and events[at].is_terminal:
            return EventsFound((), ended=True)
        return EventsFound(events[at + 1 :])
    if at < len(events):
        return EventsFound(events[at:], has_gap=True)
    return EventsFound((), has_gap=whole, restart=whole)


class FeedResult(Enum):
    """The result of a feed."""

    CONTINUES = "continues"
    REFUSED = "refused"
    """The reader did not accept the rest."""
    RESTART = "restart"
    """The entry at its position is gone: it begins anew with another read."""
    ENDED = "ended"
    """It has the last event."""


class Feeding(NamedTuple):
    """The result of a feed, and how many entries the subscription has passed."""

    result: FeedResult
    passed: int


@dataclass(eq=False, slots=True)
class EventSubscription(Generic[E]):
    """One reader's position in one stream."""

    rules: Rules[E]
    reader: EventReader[E]
    at: Position
    """Of the last entry that the reader has, or that was not for it."""
    subject: str | None
    """It gets the events of this subject only; None: all events."""
    finished: bool
    """What it follows has ended, so that no event but the terminal one is due."""
    is_ended: bool = False
    is_level: bool = False
    gap_sent: bool = False
    """For its present position."""
    pending: asyncio.Task[None] | asyncio.TimerHandle | None = None
    """A task while its reader is not writable; a timer while its terminal event is due."""

    def feed(self, events: Sequence[E], *, whole: bool) -> Feeding:
        """Push the new events of a read that began at this position or before.

        `whole`: the read reached the end of the stream.
        """
        subject_of = self.rules.subject
        found = following(self.at, events, whole=whole, can_end=subject_of is None)
        is_cut = self.at == START and bool(events) and not self.rules.begins(events[0])
        if (found.has_gap or is_cut) and not self.gap_sent:
            if not self.reader.send_gap():
                return Feeding(FeedResult.REFUSED, 0)
            self.gap_sent = True
        for passed, event in enumerate(found.events):
            if self.subject is None or (subject_of and subject_of(event) == self.subject):
                if not self.reader.push(event):
                    return Feeding(FeedResult.REFUSED, passed)
                if self._is_last(event):
                    return Feeding(FeedResult.ENDED, passed + 1)
            self.move_to(event.position)
        if found.ended or (whole and self.finished and self.subject is not None):
            return Feeding(FeedResult.ENDED, len(found.events))
        if found.restart:
            self.at = START
            return Feeding(FeedResult.RESTART, 0)
        return Feeding(FeedResult.CONTINUES, len(found.events))

    def move_to(self, position: Position) -> None:
        """The reader has every entry up to this one that is for it."""
        if position != self.at:
            self.at, self.gap_sent = position, False

    def _is_last(self, event: E) -> bool:
        if self.subject is None:
            return event.is_terminal and self.rules.subject is None
        if event.is_terminal or self.rules.reopens(event):
            self.finished = event.is_terminal
        return event.is_terminal and self.is_level


class FollowedStream(TrackedKey, Generic[E]):
    """One stream and the subscriptions to it.

    A subscription is in one of three groups. Those that are level have every event up to `tail`:
    one check decides whether a read has anything new for all of them, so a new subscription costs
    nothing per existing one. They are found by their subject, so an event costs nothing for those
    of other subjects. Those that are behind are read for from their own positions. Those that are
    blocked wait for their reader.
    """

    __slots__ = (
        "_behind_last",
        "_most_of_subject",
        "_rules",
        "behind",
        "blocked",
        "count",
        "is_active",
        "is_checked",
        "level",
        "read_limit",
        "start",
        "tail",
    )

    def __init__(self, rules: Rules[E], key: str) -> None:
        super().__init__(key)
        self._rules = rules
        self.is_active = True
        """It was read since the last tick."""
        self.is_checked = False
        """It was reported as quiet since its last read."""
        # The inner ones are used as ordered sets.
        self.behind: dict[EventSubscription[E], None] = {}
        self.level: dict[str | None, dict[EventSubscription[E], None]] = {}
        self.blocked: dict[EventSubscription[E], None] = {}
        self.tail = START
        self._most_of_subject = 0
        self._behind_last = False
        self.start = START
        """Where the read in flight began."""
        self.read_limit = rules.max_entries
        """The COUNT of that read."""
        self.count = rules.max_entries
        """The COUNT of the next read: smaller where readers do not accept the entries."""

    @property
    def subscriptions(self) -> Iterator[EventSubscription[E]]:
        return chain(self.behind, *self.level.values(), self.blocked)

    @property
    def has_subscriptions(self) -> bool:
        return bool(self.behind or self.level or self.blocked)

    def discard(self, subscription: EventSubscription[E]) -> None:
        """Remove a subscription from its group."""
        self.behind.pop(subscription, None)
        self.blocked.pop(subscription, None)
        if subscription.is_level:
            subscription.is_level = False
            group = self.level[subscription.subject]
            del group[subscription]
            if not group:
                del self.level[subscription.subject]

    def set_level(self, subscription: EventSubscription[E]) -> None:
        """Its reader has every event; from now on its position is `tail`."""
        self.discard(subscription)
        subscription.is_level = True
        group = self.level.setdefault(subscription.subject, {})
        group[subscription] = None
        if subscription.subject is not None:
            self._most_of_subject = max(self._most_of_subject, len(group))

    def set_behind(self, subscription: EventSubscription[E]) -> None:
        """It is read for, after those that have waited longer."""
        self.discard(subscription)
        self.behind[subscription] = None

    def set_blocked(self, subscription: EventSubscription[E]) -> None:
        self.discard(subscription)
        self.blocked[subscription] = None

    def finish(self) -> None:
        """What it is about has ended: the next read finds that a terminal event is due."""
        for subscription in tuple(self.subscriptions):
            subscription.finished = True
            if subscription.is_level:
                subscription.move_to(self.tail)
                self.set_behind(subscription)

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
        pushes = len(self.level.get(None, ())) + self._most_of_subject + 1
        self.read_limit = max(2, min(self.count, _MAX_PUSHES // pushes))
        self.is_active, self.is_checked = True, False
        return True

    def level_for(self, found: EventsFound[E]) -> list[EventSubscription[E]]:
        """Those that are level and concerned by what was found after `tail`."""
        if found.has_gap or found.restart or found.ended:
            return list(chain(*self.level.values()))
        if not found.events:
            return []
        subjects: dict[str | None, None] = {None: None}
        if self._rules.subject is not None:
            subjects.update(dict.fromkeys(map(self._rules.subject, found.events)))
        return list(chain(*(self.level.get(subject, ()) for subject in subjects)))

    def served_by(self, last: Position, *, whole: bool) -> list[EventSubscription[E]]:
        """Those behind for which a read up to `last` has events; a bounded number of them."""
        return [
            subscription
            for subscription in islice(self.behind, _MAX_PUSHES // self._rules.max_entries)
            # A subscription that was added during the read may be before its start: read next.
            if self.start <= subscription.at and (whole or subscription.at < last)
        ]
