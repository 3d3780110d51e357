"""Live events of many streams for many readers, over one connection.

A wire that follows streams has one. A stream is a tracked key (`valkey.tracking`): when it changes,
it is read from its subscriptions' positions (`stream_subscriptions`). The wire gives the keys, the
decoder and the rule of the last event. Nothing is written.

A read begins *at* the last entry that a reader received, not after it. If that entry is gone,
entries may have been lost, and the reader gets a gap.

A slow reader never delays others: while it is not writable its subscription is blocked, then it
goes on from its own position. Subscriptions that have all events so far are one group, however many
they are.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from functools import partial
from typing import Generic, TypeVar

from jobwire.valkey.config import Config
from jobwire.valkey.connection import Connection
from jobwire.valkey.resp_socket import Arg, Reply
from jobwire.valkey.stream_ids import START, Position
from jobwire.valkey.stream_subscriptions import (
    E,
    EventReader,
    EventSubscription,
    FeedResult,
    FollowedStream,
    Rules,
    following,
)
from jobwire.valkey.tracking import MAX_READS, TrackingReader

T = TypeVar("T")


class StreamFollower(Generic[E]):
    """`async with follower.running(config, name):` around everything that subscribes.

    `on_empty` gets the key of a stream that has subscriptions and no entries. `on_quiet` gets that
    of a stream without a read for some seconds, once until `check_again`. `on_other` gets changed
    keys that the wire has read over `connection`. `until_overdue` calls its argument once the
    terminal event of a finished stream is not expected anymore.
    """

    def __init__(
        self,
        rules: Rules[E],
        *,
        on_empty: Callable[[str], None] = lambda _: None,
        on_quiet: Callable[[str], None] | None = None,
        on_other: Callable[[str], None] = lambda _: None,
        until_overdue: Callable[[Callable[[], None]], asyncio.TimerHandle] | None = None,
    ) -> None:
        self._rules = rules
        self._on_empty = on_empty
        self._on_quiet = on_quiet
        self._until_overdue = until_overdue
        self._streams = TrackingReader[FollowedStream[E]](
            _read_command, self._on_entries, on_other=on_other, on_tick=self._report_quiet
        )
        self._ends_of_waiters: set[Callable[[], None]] = set()
        self._is_stopping = False

    @property
    def followed(self) -> int:
        """How many streams have subscriptions."""
        return len(self._streams)

    @property
    def watchers(self) -> int:
        """How many subscriptions there are."""
        return sum(1 for stream in self._streams.keys for _ in stream.subscriptions)

    @property
    def table_use(self) -> float:
        """How much of the server's table of tracked keys is in use."""
        return self._streams.table_use

    @property
    def connection(self) -> Connection:
        return self._streams.connection

    @contextlib.asynccontextmanager
    async def running(
        self,
        config: Config | str,
        name: str,
        *,
        connect_timeout_s: float = 0.0,
        or_later: bool = False,
    ) -> AsyncGenerator[None]:
        """Follow inside the block; at its end all waiters are released."""
        reading = self._streams.running(
            config, name, connect_timeout_s=connect_timeout_s, or_later=or_later
        )
        async with reading, asyncio.TaskGroup() as self._group:
            try:
                yield
            finally:
                self.release_waiters()
                for stream in tuple(self._streams.keys):
                    for subscription in tuple(stream.subscriptions):
                        self._unsubscribe(stream, subscription)

    # Subscribing

    def watch(
        self,
        key: str,
        reader: EventReader[E],
        after: Position,
        *,
        subject: str | None = None,
        finished: bool = False,
    ) -> Callable[[], None]:
        """Send every event after a position to `reader`, only those of a subject if one is given;
        call the result to unsubscribe.

        `finished`: what it follows has ended.
        """
        stream = self._streams.get(key)
        if stream is None:
            stream = FollowedStream(self._rules, key)
            self._streams.add(stream)
        subscription = EventSubscription(self._rules, reader, after, subject, finished)
        stream.set_behind(subscription)
        self._streams.mark(stream)
        return partial(self._unsubscribe, stream, subscription)

    @contextlib.contextmanager
    def waiting(
        self,
        key: str,
        value: Callable[[E], T | None],
        after: Position,
        *,
        subject: str | None = None,
        until_gap: bool = False,
    ) -> Generator[asyncio.Future[T | None]]:
        """A future of the first value that `value` finds in an event; it is None at the end of the
        subscription, when this process stops, and at a gap if `until_gap`."""
        waiter = _Waiter(value, until_gap=until_gap)
        self._ends_of_waiters.add(waiter.end)
        if self._is_stopping:
            waiter.end()
        stop = self.watch(key, waiter, after, subject=subject)
        try:
            yield waiter.found
        finally:
            stop()
            self._ends_of_waiters.discard(waiter.end)

    def release_waiters(self) -> None:
        """Release all that wait, now and later: this process stops."""
        self._is_stopping = True
        for end in self._ends_of_waiters:
            end()

    async def last(self, key: str) -> E | None:
        """The last event of a stream; ValkeyError if the server does not answer."""
        events = self._rules.read(
            await self.connection.call("XREVRANGE", key, "+", "-", "COUNT", 1)
        )
        return events[0] if events else None

    def _unsubscribe(self, stream: FollowedStream[E], subscription: EventSubscription[E]) -> None:
        if subscription.is_ended:
            return
        subscription.is_ended = True
        if subscription.pending is not None:
            subscription.pending.cancel()
        stream.discard(subscription)
        if not stream.has_subscriptions:
            self._streams.remove(stream)

    # What the wire finds out

    def check_again(self, key: str) -> None:
        """Report a stream as quiet once more."""
        stream = self._streams.get(key)
        if stream is not None:
            stream.is_checked = False

    def finish(self, key: str) -> None:
        """What the stream is about has ended: its terminal event is due."""
        stream = self._streams.get(key)
        if stream is not None:
            stream.finish()
            self._streams.mark(stream)

    def end(self, key: str) -> None:
        """No event of this stream follows."""
        stream = self._streams.get(key)
        if stream is not None:
            for subscription in tuple(stream.subscriptions):
                self._end(stream, subscription)

    def _report_quiet(self) -> None:
        if self._on_quiet is None:
            return
        quiet = [
            stream
            for stream in self._streams.keys
            if not stream.is_active and not stream.is_checked
        ]
        for stream in self._streams.keys:
            stream.is_active = False
        for stream in quiet[:MAX_READS]:
            stream.is_checked = True
            self._on_quiet(stream.key)

    # Delivering

    def _on_entries(self, stream: FollowedStream[E], reply: Reply) -> None:
        # A key of another type holds no events.
        self._deliver(stream, self._rules.read(reply) if reply is not None else ())

    def _deliver(self, stream: FollowedStream[E], events: Sequence[E]) -> None:
        whole = len(events) < stream.read_limit
        last = events[-1].position if events else START
        most, refused = 0, False

        def feed(subscription: EventSubscription[E]) -> None:
            nonlocal most, refused
            result, passed = subscription.feed(events, whole=whole)
            most = max(most, passed)
            refused = refused or result is FeedResult.REFUSED
            self._regroup(stream, subscription, result, whole=whole)

        covers_level = not stream.level or stream.start <= stream.tail
        if covers_level:
            tail = stream.tail
            found = following(tail, events, whole=whole, can_end=self._rules.subject is None)
            stream.tail = last if whole else max(tail, last)
            for subscription in stream.level_for(found):
                subscription.move_to(tail)
                feed(subscription)
            if stream.level:
                most = max(most, len(found.events))
        for subscription in stream.served_by(last, whole=whole):
            feed(subscription)
        stream.changed = not (whole and covers_level)
        # Entries that no reader can accept are not read repeatedly; a read needs its first entry.
        most_entries = self._rules.max_entries
        stream.count = max(2, most + 1) if refused else min(most_entries, 2 * stream.count)
        if stream.behind or (stream.level and stream.changed):
            self._streams.mark(stream)
        if stream.has_subscriptions and not events:
            self._on_empty(stream.key)

    def _regroup(
        self,
        stream: FollowedStream[E],
        subscription: EventSubscription[E],
        result: FeedResult,
        *,
        whole: bool,
    ) -> None:
        """Move a subscription to the group that fits the result of its feed."""
        match result:
            case FeedResult.ENDED:
                self._end(stream, subscription)
            case FeedResult.REFUSED:
                self._block(stream, subscription)
            case FeedResult.RESTART | FeedResult.CONTINUES:
                has_all = result is FeedResult.CONTINUES and subscription.at == stream.tail
                if has_all and subscription.is_level:
                    return
                if not (has_all and whole):
                    stream.set_behind(subscription)
                    return
                stream.set_level(subscription)
                overdue = self._until_overdue
                if subscription.finished and subscription.pending is None and overdue is not None:
                    subscription.pending = overdue(
                        partial(self._end_with_gap, stream, subscription)
                    )

    def _end(self, stream: FollowedStream[E], subscription: EventSubscription[E]) -> None:
        subscription.reader.end()
        self._unsubscribe(stream, subscription)

    def _end_with_gap(self, stream: FollowedStream[E], subscription: EventSubscription[E]) -> None:
        """It has ended without a terminal event."""
        subscription.reader.send_gap()
        self._end(stream, subscription)

    def _block(self, stream: FollowedStream[E], subscription: EventSubscription[E]) -> None:
        """Leave a subscription out until its reader is writable."""
        if subscription.reader.closed:
            self._unsubscribe(stream, subscription)
            return

        async def until_writable() -> None:
            await subscription.reader.wait_writable()
            subscription.pending = None
            stream.set_behind(subscription)
            self._streams.mark(stream)

        if subscription.pending is not None:
            subscription.pending.cancel()
        stream.set_blocked(subscription)
        subscription.pending = self._group.create_task(until_writable())


class _Waiter(Generic[E, T]):
    """A reader that waits for one event."""

    closed: bool = False

    def __init__(self, value: Callable[[E], T | None], *, until_gap: bool) -> None:
        self.found: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
        self._value = value
        self._until_gap = until_gap

    def push(self, event: E) -> bool:
        value = self._value(event)
        if value is not None:
            self._resolve(value)
        return True

    def send_gap(self) -> bool:
        if self._until_gap:
            self.end()
        return True

    def end(self) -> None:
        self._resolve(None)

    async def wait_writable(self) -> None:
        """Never awaited: `push` always accepts."""

    def _resolve(self, value: T | None) -> None:
        if not self.found.done():
            self.found.set_result(value)


def _read_command(stream: FollowedStream[E]) -> Sequence[Arg] | None:
    if not stream.plan_read():
        return None
    return "XRANGE", stream.key, stream.start.id, "+", "COUNT", stream.read_limit
