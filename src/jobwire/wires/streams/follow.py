"""Live events of many jobs for many readers, over one connection (J-15, J-17).

The gateway has one. A job's event stream is a tracked key (`valkey.tracking`): when it changes, it
is read from its subscriptions' positions.

A read begins *at* the last entry that a reader received, not after it. If that entry is gone,
entries may have been lost, and the reader gets a gap.

A slow reader never delays others: while it is not writable its subscription is blocked, then it
goes on from its own position. Subscriptions that have all events so far are one group, however many
they are. The follower writes nothing to the server.

A foreign worker may end a job without its terminal event. The status of a job without new events is
read periodically; once it is terminal, the event may follow within `_GRACE_S`, then readers get a
gap and the end.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Final, cast

from jobwire.job.messages import JobId
from jobwire.valkey import Arg, Config, Reply, ValkeyError
from jobwire.valkey.stream_ids import START, Position
from jobwire.valkey.tracking import MAX_READS, TrackingReader
from jobwire.wires.streams.contract import TERMINAL_EVENTS, Field, StreamsKeys
from jobwire.wires.streams.events import StreamEvent, following, read_events
from jobwire.wires.streams.subscriptions import (
    MAX_ENTRIES,
    EventReader,
    EventSubscription,
    FeedResult,
    FollowedStream,
    UntilEnded,
)

_GRACE_S: Final = 5.0
"""How long the terminal event may follow the terminal status: a foreign worker writes it second."""


class Follower:
    """`async with follower.running(config):` around everything that subscribes."""

    def __init__(self, keys: StreamsKeys) -> None:
        self._keys = keys
        self._streams = TrackingReader[FollowedStream](
            _read_command,
            self._on_events,
            on_other=self._job_changed,
            on_tick=self._check_quiet_jobs,
        )
        self._by_job_key: dict[str, FollowedStream] = {}
        self._waiting: set[UntilEnded] = set()

    @property
    def followed(self) -> int:
        """How many jobs have subscriptions."""
        return len(self._streams)

    @contextlib.asynccontextmanager
    async def running(
        self, config: Config | str, name: str = "jobwire", *, connect_timeout_s: float = 0.0
    ) -> AsyncGenerator[None]:
        """Follow inside the block; at its end all waiters are released."""
        self._loop = asyncio.get_running_loop()
        reading = self._streams.running(
            config, f"{name}-follow", connect_timeout_s=connect_timeout_s
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
        self, job_id: JobId, reader: EventReader, after: Position = START, *, finished: bool = False
    ) -> Callable[[], None]:
        """Send every event after a position to `reader`; call the result to unsubscribe.

        `finished`: the job's hash has a terminal status.
        """
        key = self._keys.events(job_id)
        stream = self._streams.get(key)
        if stream is None:
            job_key = self._keys.job(job_id)
            stream = self._by_job_key[job_key] = FollowedStream(job_id, key, job_key)
            self._streams.add(stream)
        subscription = EventSubscription(reader, after, finished=finished)
        stream.behind[subscription] = None
        self._streams.mark(stream)
        return lambda: self._unsubscribe(stream, subscription)

    async def until_ended(self, job_id: JobId, timeout_s: float) -> None:
        """Return when the job has ended, after the timeout, or when this process stops."""
        # From the last event on: a waiter for the end need not read the earlier ones.
        try:
            last = await self._last(job_id)
        except ValkeyError:
            return  # the caller reads the job next, and gets the error there
        if last is not None and last.is_terminal:
            return
        waiter = UntilEnded()
        self._waiting.add(waiter)
        stop = self.watch(job_id, waiter, last.position if last is not None else START)
        try:
            await asyncio.wait([waiter.ended], timeout=timeout_s)
        finally:
            stop()
            self._waiting.discard(waiter)

    async def is_last(self, job_id: JobId, position: Position) -> bool:
        """Whether the event at this position is the terminal one; ValkeyError if unknown."""
        last = await self._last(job_id)
        return last is not None and last.is_terminal and last.position == position

    async def _last(self, job_id: JobId) -> StreamEvent | None:
        key = self._keys.events(job_id)
        connection = self._streams.connection
        events = read_events(await connection.call("XREVRANGE", key, "+", "-", "COUNT", 1))
        return events[0] if events else None

    def release_waiters(self) -> None:
        """Release all callers of `until_ended`: this process stops."""
        for waiter in self._waiting:
            waiter.end()

    def _unsubscribe(self, stream: FollowedStream, subscription: EventSubscription) -> None:
        if subscription.is_ended:
            return
        subscription.is_ended = True
        if subscription.pending is not None:
            subscription.pending.cancel()
        stream.discard(subscription)
        if not stream.has_subscriptions:
            self._streams.remove(stream)
            del self._by_job_key[stream.job_key]

    # Jobs that end without a terminal event

    def _job_changed(self, job_key: str) -> None:
        stream = self._by_job_key.get(job_key)
        if stream is not None:
            stream.is_status_known = False

    def _check_quiet_jobs(self) -> None:
        """Read the status of jobs without new events: a foreign worker may have ended one without
        its event. The read arms the tracking of the hash, so a quiet job is read once, and again
        only after a change."""
        quiet = [
            stream
            for stream in self._streams.keys
            if not stream.is_active and not stream.is_status_known
        ]
        for stream in self._streams.keys:
            stream.is_active = False
        for stream in quiet[:MAX_READS]:
            with contextlib.suppress(ValkeyError):
                reply = self._streams.connection.call("HGET", stream.job_key, Field.STATUS.value)
                status_reply = cast("asyncio.Future[Reply]", reply)
                status_reply.add_done_callback(partial(self._status_read, stream))
                stream.is_status_known = True

    def _status_read(self, stream: FollowedStream, status_reply: "asyncio.Future[Reply]") -> None:
        if status_reply.cancelled() or status_reply.exception() is not None:
            stream.is_status_known = False
        elif status_reply.result() in TERMINAL_EVENTS:
            for subscription in stream.subscriptions:
                subscription.finished = True
            # The next read finds that the terminal event of each of them is due.
            stream.behind.update(stream.level)
            stream.level.clear()
            self._streams.mark(stream)

    # Delivering

    def _on_events(self, stream: FollowedStream, reply: Reply) -> None:
        # A key of another type holds no events.
        self._deliver(stream, read_events(reply) if reply is not None else [])

    def _deliver(self, stream: FollowedStream, events: Sequence[StreamEvent]) -> None:
        whole = len(events) < stream.read_limit
        last = events[-1].position if events else START
        most, refused = 0, False

        def feed(subscription: EventSubscription) -> None:
            nonlocal most, refused
            result, accepted = subscription.feed(events, whole=whole)
            most = max(most, accepted)
            refused = refused or result is FeedResult.REFUSED
            self._regroup(stream, subscription, result, whole=whole)

        covers_level = not stream.level or stream.start <= stream.tail
        if covers_level:
            found = following(stream.tail, events, whole=whole)
            is_new = found.events or found.has_gap or found.restart or found.ended
            level = tuple(stream.level) if is_new else ()
            stream.tail = last if whole else max(stream.tail, last)
            for subscription in level:
                feed(subscription)
        for subscription in stream.served_by(last, whole=whole):
            feed(subscription)
        stream.changed = not (whole and covers_level)
        # Entries that no reader can accept are not read repeatedly; a read needs its first entry.
        stream.count = max(2, most + 1) if refused else min(MAX_ENTRIES, 2 * stream.count)
        if stream.behind or (stream.level and stream.changed):
            self._streams.mark(stream)
        if stream.has_subscriptions and not events:
            self._check_exists(stream)

    def _regroup(
        self,
        stream: FollowedStream,
        subscription: EventSubscription,
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
                if has_all and subscription in stream.level:
                    return
                stream.discard(subscription)
                if not (has_all and whole):
                    stream.behind[subscription] = None  # behind those that have waited longer
                    return
                stream.level[subscription] = None
                if subscription.finished and subscription.pending is None:
                    subscription.pending = self._loop.call_later(
                        _GRACE_S, self._end_with_gap, stream, subscription
                    )

    def _end(self, stream: FollowedStream, subscription: EventSubscription) -> None:
        subscription.reader.end()
        self._unsubscribe(stream, subscription)

    def _end_with_gap(self, stream: FollowedStream, subscription: EventSubscription) -> None:
        """The job has ended without a terminal event."""
        subscription.reader.send_gap()
        self._end(stream, subscription)

    def _block(self, stream: FollowedStream, subscription: EventSubscription) -> None:
        """Leave a subscription out until its reader is writable."""
        if subscription.reader.closed:
            self._unsubscribe(stream, subscription)
            return

        async def until_writable() -> None:
            await subscription.reader.wait_writable()
            subscription.pending = None
            stream.discard(subscription)
            stream.behind[subscription] = None
            self._streams.mark(stream)

        if subscription.pending is not None:
            subscription.pending.cancel()
        stream.discard(subscription)
        stream.blocked[subscription] = None
        subscription.pending = self._group.create_task(until_writable())

    def _check_exists(self, stream: FollowedStream) -> None:
        """No events: either none were written yet, or the job is gone."""
        with contextlib.suppress(ValkeyError):
            reply = self._streams.connection.call("EXISTS", self._keys.job(stream.job_id))
            status_reply = cast("asyncio.Future[Reply]", reply)
            status_reply.add_done_callback(
                lambda status_reply: self._existence_read(stream, status_reply)
            )

    def _existence_read(
        self, stream: FollowedStream, status_reply: "asyncio.Future[Reply]"
    ) -> None:
        if status_reply.exception() is None and status_reply.result() == 0:
            for subscription in tuple(stream.subscriptions):
                self._end(stream, subscription)


def _read_command(stream: FollowedStream) -> Sequence[Arg] | None:
    if not stream.plan_read():
        return None
    stream.is_active, stream.is_status_known = True, False
    return "XRANGE", stream.key, stream.start.id, "+", "COUNT", stream.read_limit
