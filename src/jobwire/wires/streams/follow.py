"""Live events of many jobs for many readers, over one connection (J-15, J-17).

The gateway has one. The server is asked to say when a key that was read changes (CLIENT TRACKING):
reading a stream and arming that is one command, so no event falls between. What changed is read
again from where its readers are, many streams in one write, at most once in `_WINDOW_S`.

Reads begin *at* the last entry that a reader saw, not after it. If that entry is no longer there,
entries may have been lost, and the reader is told of a gap instead of going on as if nothing were.

A reader never makes others wait: one without room is blocked until it has some again, then goes on
from its own position. Readers that have all events so far are one group, however many they are.
The follower writes nothing to the server.

A foreign worker may end a job without its terminal event. The status of a job without new events is
read now and then; once it is terminal, the event has `_GRACE_S` to come, then its readers get a gap
and the end.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from itertools import islice
from typing import Final, cast

from jobwire.job.messages import JobId
from jobwire.valkey import Config, Connection, Reply, ServerError, ValkeyError
from jobwire.wires.streams.contract import TERMINAL_EVENTS, Field, StreamsKeys
from jobwire.wires.streams.events import START, Position, StreamEvent, following, read_events
from jobwire.wires.streams.subscriptions import (
    MOST_ENTRIES,
    EventReader,
    FeedResult,
    FollowedStream,
    Subscription,
    UntilEnded,
)

_log = logging.getLogger("jobwire.streams")

_WINDOW_S: Final = 0.005
_AT_ONCE: Final = 1_000
"""Streams read in one turn of the loop; more wait for the next."""
_PING_S: Final = 5.0
"""A peer that has gone silently is found out by a question, since nothing else is asked."""
_PAUSE_S: Final = 0.25
_GRACE_S: Final = 5.0
"""How long a job that has ended may owe its terminal event: a foreign worker writes it second."""


class Follower:
    """`async with follower.running(config):` around everything that watches."""

    def __init__(self, keys: StreamsKeys) -> None:
        self._keys = keys
        self._streams: dict[str, FollowedStream] = {}
        self._by_job_key: dict[str, FollowedStream] = {}
        self._changed: dict[FollowedStream, None] = {}
        self._timer: asyncio.Handle | None = None
        self._flushed_at_s = float("-inf")
        self._waiting: set[UntilEnded] = set()

    @property
    def followed(self) -> int:
        """How many jobs are being watched."""
        return len(self._streams)

    @contextlib.asynccontextmanager
    async def running(
        self, config: Config | str, name: str = "jobwire", *, patience_s: float = 0.0
    ) -> AsyncGenerator[None]:
        """Follow inside; at the end everybody who still waits is sent home."""
        self._loop = asyncio.get_running_loop()
        opening = Connection.open(
            config,
            name=f"{name}-follow",
            setup=[("CLIENT", "TRACKING", "ON")],
            on_push=self._pushed,
            on_up=self._read_all_again,
            patience_s=patience_s,
        )
        async with opening as self._connection, asyncio.TaskGroup() as self._group:
            pings = self._group.create_task(self._ping())
            try:
                yield
            finally:
                pings.cancel()
                self.release_waiters()
                for stream in tuple(self._streams.values()):
                    for watch in tuple(stream.watches):
                        self._remove(stream, watch)
                if self._timer is not None:
                    self._timer.cancel()

    # For those who watch

    def watch(
        self, job_id: JobId, reader: EventReader, after: Position = START, *, finished: bool = False
    ) -> Callable[[], None]:
        """Feed `reader` with every event after a place; what this returns stops it.

        `finished` says that the job has ended, as far as its hash goes.
        """
        key = self._keys.events(job_id)
        stream = self._streams.get(key)
        if stream is None:
            job_key = self._keys.job(job_id)
            stream = self._streams[key] = FollowedStream(job_id, key, job_key)
            self._by_job_key[job_key] = stream
        watch = Subscription(reader, after, finished=finished)
        stream.behind[watch] = None
        self._mark(stream)
        return lambda: self._remove(stream, watch)

    async def until_ended(self, job_id: JobId, timeout_s: float) -> None:
        """Return when the job has ended, when the time is up, or when we are about to stop."""
        # From the last event on: whoever only waits for the end need not read the way there.
        try:
            last = await self._last(job_id)
        except ValkeyError:
            return  # nothing to wait for: whoever asked looks at the job, and is told
        if last is not None and last.is_terminal:
            return
        waiter = UntilEnded()
        self._waiting.add(waiter)
        stop = self.watch(job_id, waiter, last.position if last is not None else START)
        try:
            await asyncio.wait([waiter.over], timeout=timeout_s)
        finally:
            stop()
            self._waiting.discard(waiter)

    async def is_last(self, job_id: JobId, place: Position) -> bool:
        """Whether the event at this place is the job's terminal one; ValkeyError if unknown."""
        last = await self._last(job_id)
        return last is not None and last.is_terminal and last.position == place

    async def _last(self, job_id: JobId) -> StreamEvent | None:
        key = self._keys.events(job_id)
        events = read_events(await self._connection.call("XREVRANGE", key, "+", "-", "COUNT", 1))
        return events[0] if events else None

    def release_waiters(self) -> None:
        """Let everybody go who waits for an end: this program stops."""
        for waiter in self._waiting:
            waiter.end()

    def _remove(self, stream: FollowedStream, watch: Subscription) -> None:
        if watch.over:
            return
        watch.over = True
        if watch.pending is not None:
            watch.pending.cancel()
        stream.discard(watch)
        if not stream.is_watched:
            del self._streams[stream.key]
            del self._by_job_key[stream.job_key]
            self._changed.pop(stream, None)

    # What the server says

    def _pushed(self, push: list[Reply]) -> None:
        match push:
            case ["invalidate", [*keys]]:
                for key in keys:
                    stream = self._streams.get(cast(str, key))
                    if stream is None:
                        self._job_changed(cast(str, key))
                        continue
                    # A read whose answer is still to come will see what this tells: the server
                    # says both over the same socket, in order.
                    if stream.reply is None or stream.reply.done():
                        stream.level_due = True
                        self._mark(stream)
            case ["invalidate", None]:
                self._read_all_again()
            case _:
                pass

    def _read_all_again(self) -> None:
        """A new connection knows nothing of what was armed, an emptied server nothing at all."""
        for stream in self._streams.values():
            stream.level_due = True
            self._mark(stream)

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(_PING_S)
            self._check_quiet_jobs()
            with contextlib.suppress(ValkeyError):
                await self._connection.call("PING")

    # Jobs that end without a terminal event

    def _job_changed(self, job_key: str) -> None:
        stream = self._by_job_key.get(job_key)
        if stream is not None:
            stream.is_status_known = False

    def _check_quiet_jobs(self) -> None:
        """Read the status of jobs without new events: a foreign worker may have ended one without
        its event. The read arms the tracking of the hash, so a quiet job is read once, and again
        only when it has changed."""
        quiet = [
            stream
            for stream in self._streams.values()
            if not stream.is_active and not stream.is_status_known
        ]
        for stream in self._streams.values():
            stream.is_active = False
        for stream in quiet[:_AT_ONCE]:
            with contextlib.suppress(ValkeyError):
                reply = self._connection.call("HGET", stream.job_key, Field.STATUS.value)
                asked = cast("asyncio.Future[Reply]", reply)
                asked.add_done_callback(partial(self._status_read, stream))
                stream.is_status_known = True

    def _status_read(self, stream: FollowedStream, asked: "asyncio.Future[Reply]") -> None:
        if asked.cancelled() or asked.exception() is not None:
            stream.is_status_known = False
        elif asked.result() in TERMINAL_EVENTS:
            for watch in stream.watches:
                watch.finished = True
            # The read that follows finds for each of them that its terminal event is due.
            stream.behind.update(stream.level)
            stream.level.clear()
            self._mark(stream)

    # Reading

    def _mark(self, stream: FollowedStream, pause_s: float = 0.0) -> None:
        """Read a stream again: when the window is over, or after a pause."""
        self._changed[stream] = None
        if self._timer is None:
            window_s = self._flushed_at_s + _WINDOW_S - self._loop.time()
            self._timer = self._loop.call_later(max(0.0, window_s, pause_s), self._flush)

    def _flush(self) -> None:
        self._timer = None
        self._flushed_at_s = self._loop.time()
        # What is being read already comes back here when its answer has come.
        idle = (stream for stream in self._changed if stream.reply is None)
        ready = list(islice(idle, _AT_ONCE))
        for stream in ready:
            del self._changed[stream]
            self._read(stream)
        if len(ready) == _AT_ONCE:
            self._timer = self._loop.call_soon(self._flush)

    def _read(self, stream: FollowedStream) -> None:
        if not stream.plan_read():
            return
        span = (stream.start.id, "+", "COUNT", stream.asked)
        try:
            reply = self._connection.call("XRANGE", stream.key, *span)
        except ValkeyError:
            self._mark(stream, _PAUSE_S)
            return
        stream.is_active, stream.is_status_known = True, False
        stream.reply = cast("asyncio.Future[Reply]", reply)
        stream.reply.add_done_callback(lambda reply: self._arrived(stream, reply))

    def _arrived(self, stream: FollowedStream, reply: "asyncio.Future[Reply]") -> None:
        stream.reply = None
        if not stream.is_watched:
            return
        try:
            events = read_events(reply.result())
        except ServerError as error:
            if error.code != "WRONGTYPE":
                _log.warning("events of job %s cannot be read: %s", stream.job_id, error)
                self._mark(stream, _PAUSE_S)
                return
            events = []  # a key of another type holds no events
        except ValkeyError:
            # The next connection reads all again; this is for the case that it came before us.
            self._mark(stream, _PAUSE_S)
            return
        self._deliver(stream, events)

    def _deliver(self, stream: FollowedStream, events: Sequence[StreamEvent]) -> None:
        whole = len(events) < stream.asked
        last = events[-1].position if events else START
        most, refused = 0, False

        def feed(watch: Subscription) -> None:
            nonlocal most, refused
            how, taken = watch.feed(events, whole=whole)
            most = max(most, taken)
            refused = refused or how is FeedResult.REFUSED
            self._sort(stream, watch, how, whole=whole)

        covers_level = not stream.level or stream.start <= stream.tail
        if covers_level:
            found = following(stream.tail, events, whole=whole)
            is_new = found.events or found.missed or found.again or found.over
            level = tuple(stream.level) if is_new else ()
            stream.tail = last if whole else max(stream.tail, last)
            for watch in level:
                feed(watch)
        for watch in stream.served_by(last, whole=whole):
            feed(watch)
        stream.level_due = not (whole and covers_level)
        # What nobody has room for is not read again and again; a read needs its first entry.
        stream.count = max(2, most + 1) if refused else min(MOST_ENTRIES, 2 * stream.count)
        due = stream.behind or (stream.level and stream.level_due)
        if due or (stream.is_watched and stream in self._changed):
            self._mark(stream)
        if stream.is_watched and not events:
            self._ask_whether_gone(stream)

    def _sort(
        self, stream: FollowedStream, watch: Subscription, how: FeedResult, *, whole: bool
    ) -> None:
        """Put a watch into the group where it belongs after it was fed."""
        match how:
            case FeedResult.OVER:
                self._end(stream, watch)
            case FeedResult.REFUSED:
                self._block(stream, watch)
            case FeedResult.AGAIN | FeedResult.GOES_ON:
                has_all = how is FeedResult.GOES_ON and watch.at == stream.tail
                if has_all and watch in stream.level:
                    return
                stream.discard(watch)
                if not (has_all and whole):
                    stream.behind[watch] = None  # after those that have waited longer
                    return
                stream.level[watch] = None
                if watch.finished and watch.pending is None:
                    watch.pending = self._loop.call_later(_GRACE_S, self._give_up, stream, watch)

    def _end(self, stream: FollowedStream, watch: Subscription) -> None:
        watch.reader.end()
        self._remove(stream, watch)

    def _give_up(self, stream: FollowedStream, watch: Subscription) -> None:
        """The job has ended, and its terminal event will not come any more."""
        watch.reader.send_gap()
        self._end(stream, watch)

    def _block(self, stream: FollowedStream, watch: Subscription) -> None:
        """Leave a watch out until its reader has room again."""
        if watch.reader.closed:
            self._remove(stream, watch)
            return

        async def until_room() -> None:
            await watch.reader.wait_writable()
            watch.pending = None
            stream.discard(watch)
            stream.behind[watch] = None
            self._mark(stream)

        if watch.pending is not None:
            watch.pending.cancel()
        stream.discard(watch)
        stream.blocked[watch] = None
        watch.pending = self._group.create_task(until_room())

    def _ask_whether_gone(self, stream: FollowedStream) -> None:
        """No events at all: either none were written yet, or the job is gone."""
        with contextlib.suppress(ValkeyError):
            reply = self._connection.call("EXISTS", self._keys.job(stream.job_id))
            asked = cast("asyncio.Future[Reply]", reply)
            asked.add_done_callback(lambda asked: self._told_whether_gone(stream, asked))

    def _told_whether_gone(self, stream: FollowedStream, asked: "asyncio.Future[Reply]") -> None:
        if asked.exception() is None and asked.result() == 0:
            for watch in tuple(stream.watches):
                self._end(stream, watch)
