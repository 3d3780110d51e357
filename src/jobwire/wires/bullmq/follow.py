"""Live events of many queues for many readers, over one connection (B-8, B-12).

A queue's events stream is a tracked key (`valkey.tracking`): new entries are read once and given to
all readers of the queue. A reader begins at a position of the stream, as does one that was too
slow: it catches up by reads of its own and then joins the others. Nothing is written.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from jobwire.valkey import Arg, Config, Reply, ValkeyError
from jobwire.valkey.stream_ids import START, Position, read_position
from jobwire.valkey.tracking import TrackedKey, TrackingReader
from jobwire.wires.bullmq.contract import Event, Field, Keys, Refusal, State
from jobwire.wires.bullmq.events import QueueEvent, read_events
from jobwire.wires.bullmq.queue import BullQueue

_PAGE: Final = 500
_PAUSE_S: Final = 0.25
FINISHED: Final = frozenset((State.COMPLETED, State.FAILED, State.UNKNOWN))


class EventReader(Protocol):
    """One open event stream."""

    @property
    def closed(self) -> bool: ...
    def push(self, event: QueueEvent) -> bool: ...
    def send_gap(self) -> bool: ...
    def end(self) -> None: ...
    async def wait_writable(self) -> None: ...


class Ended(NamedTuple):
    """How a job ended; `value_json` is the result of a completed one."""

    state: State
    value_json: str = ""
    reason: str = ""


@dataclass(eq=False, slots=True)
class _Subscription:
    reader: EventReader
    position: Position
    """Of the last entry that the reader has, or that was not for it."""
    job_id: str | None
    finished: bool
    """The job had ended when the reader came; for a job only."""
    catching_up: asyncio.Task[None] | None = None


class _FollowedQueue(TrackedKey):
    __slots__ = ("last", "subscriptions")

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.last: Position | None = None
        """Of the newest entry that was read; None before the first read."""
        self.subscriptions: set[_Subscription] = set()


class QueueFollower:
    """`async with follower.running(config):` around everything that subscribes."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._queues = TrackingReader[_FollowedQueue](_read_command, self._on_entries)
        self._waiting: set[_Waiter] = set()

    @property
    def watchers(self) -> int:
        """How many readers follow a queue or a job."""
        return sum(len(queue.subscriptions) for queue in self._queues.keys)

    @contextlib.asynccontextmanager
    async def running(
        self, config: Config | str, name: str = "jobwire", *, connect_timeout_s: float = 0.0
    ) -> AsyncGenerator[None]:
        """Follow inside the block."""
        reading = self._queues.running(
            config, f"{name}-queues", connect_timeout_s=connect_timeout_s
        )
        async with reading, asyncio.TaskGroup() as self._group:
            try:
                yield
            finally:
                for queue in tuple(self._queues.keys):
                    for subscription in tuple(queue.subscriptions):
                        self._unsubscribe(queue, subscription)

    async def end_of(self, queue: str) -> Position:
        """The position behind the last event so far; ValkeyError if the server does not answer."""
        key = Keys(queue, self._prefix).events
        reply = await self._queues.connection.call("XREVRANGE", key, "+", "-", "COUNT", 1)
        return _last(read_events(reply)) or START

    async def has_more(self, queue: str, job_id: str, after: Position) -> bool:
        """Whether the job has an event after a position; ValkeyError as above."""
        key = Keys(queue, self._prefix).events
        while True:
            reply = await self._queues.connection.call(*_range(key, after))
            events = read_events(reply)
            if any(event.job_id == job_id for event in events):
                return True
            if len(events) < _PAGE:
                return False
            after = events[-1].position

    def watch(
        self,
        queue: str,
        reader: EventReader,
        after: Position,
        *,
        job_id: str | None = None,
        finished: bool = False,
    ) -> Callable[[], None]:
        """Send the events after a position to `reader`, only those of a job if one is given; call
        the result to unsubscribe. The stream of a job ends with the job: `finished` if it has."""
        key = Keys(queue, self._prefix).events
        followed = self._queues.get(key)
        if followed is None:
            followed = _FollowedQueue(key)
            self._queues.add(followed)
            self._queues.mark(followed)
        subscription = _Subscription(reader, after, job_id, finished)
        followed.subscriptions.add(subscription)
        self._catch_up(followed, subscription, resumed=after != START)
        return lambda: self._unsubscribe(followed, subscription)

    async def wait_until_finished(
        self, queue: BullQueue, job_id: str, timeout_s: float
    ) -> Ended | Refusal | None:
        """How a job ended; None if it has not in this time, or if this process stops. A Refusal if
        there is no such job.

        A job that is removed at its end is found by its last event, if the call came before."""
        name, waiter = queue.keys.queue, _Waiter()
        self._waiting.add(waiter)
        leave = None
        try:
            position = await self.end_of(name)
            leave = self.watch(name, waiter, position, job_id=job_id)
            ended = await _ended(queue, job_id)
            if ended is Refusal.MISSING and await self.has_more(name, job_id, position):
                ended = None  # it was removed at its end just now: its last event says how
            if ended is not None:
                return ended
            async with asyncio.timeout(timeout_s):
                return await waiter.ended
        except TimeoutError:
            return None
        finally:
            self._waiting.discard(waiter)
            if leave is not None:
                leave()

    def release_waiters(self) -> None:
        """Release all callers of `wait_until_finished`: this process stops."""
        for waiter in self._waiting:
            waiter.resolve(None)

    def _unsubscribe(self, queue: _FollowedQueue, subscription: _Subscription) -> None:
        queue.subscriptions.discard(subscription)
        if subscription.catching_up is not None:
            subscription.catching_up.cancel()
        if not queue.subscriptions and self._queues.get(queue.key) is queue:
            self._queues.remove(queue)

    # New entries

    def _on_entries(self, queue: _FollowedQueue, reply: Reply) -> None:
        events = read_events(reply)
        first = queue.last is None
        queue.last = _last(events) or queue.last or START
        for subscription in tuple(queue.subscriptions):
            if subscription.catching_up is not None:
                continue
            if not first:
                self._deliver(queue, subscription, events)
            elif subscription.position < queue.last:
                # It had caught up before this first read, which has only the newest entry.
                self._catch_up(queue, subscription)
        if len(events) == _PAGE:
            self._queues.mark(queue)

    def _deliver(
        self, queue: _FollowedQueue, subscription: _Subscription, events: Sequence[QueueEvent]
    ) -> None:
        for event in events:
            if event.position <= subscription.position:
                continue
            if subscription.job_id in (None, event.job_id):
                if subscription.reader.closed:
                    self._unsubscribe(queue, subscription)
                    return
                if not subscription.reader.push(event):
                    self._catch_up(queue, subscription)
                    return
                if subscription.job_id is not None and event.is_terminal:
                    subscription.reader.end()
                    self._unsubscribe(queue, subscription)
                    return
            subscription.position = event.position

    # Catching up

    def _catch_up(
        self, queue: _FollowedQueue, subscription: _Subscription, *, resumed: bool = False
    ) -> None:
        reading = self._read_on(queue, subscription, resumed=resumed)
        subscription.catching_up = self._group.create_task(reading)

    async def _read_on(
        self, queue: _FollowedQueue, subscription: _Subscription, *, resumed: bool
    ) -> None:
        """Read from the subscription's position to the end of the stream."""
        reader, job_id = subscription.reader, subscription.job_id
        ended = subscription.finished
        while not reader.closed:
            known = queue.last
            command = _range(queue.key, subscription.position, whole=resumed)
            try:
                found = read_events(await self._queues.connection.call(*command))
            except ValkeyError:
                await asyncio.sleep(_PAUSE_S)
                continue
            events = found
            if resumed:
                # The entry at the position is gone: so may be others behind it.
                if events and events[0].position == subscription.position:
                    events = events[1:]
                else:
                    reader.send_gap()
                    if not events:
                        # A position behind the last entry: the stream was emptied, or never had it.
                        subscription.position = START if job_id is not None else queue.last or START
                resumed = False
            for event in events:
                if job_id in (None, event.job_id):
                    while not reader.push(event):
                        if reader.closed:
                            return
                        await reader.wait_writable()
                    if not event.is_neutral:
                        ended = event.is_terminal
                subscription.position = event.position
            if not found and known is not None and known > subscription.position:
                # These entries were read before, and are deleted by now.
                subscription.position = known
            # What came after this read: the others have it, and this reader must read it.
            behind = queue.last is not None and queue.last > subscription.position
            if len(found) < _PAGE and not behind:
                break
        subscription.catching_up = None
        if reader.closed or (job_id is not None and ended):
            if not reader.closed:
                reader.end()
            self._unsubscribe(queue, subscription)


class _Waiter:
    """A reader that waits for the end of a job."""

    closed = False

    def __init__(self) -> None:
        self.ended: asyncio.Future[Ended | None] = asyncio.get_running_loop().create_future()

    def push(self, event: QueueEvent) -> bool:
        if event.is_terminal:
            self.resolve(_as_ended(event))
        return True

    def resolve(self, ended: Ended | None) -> None:
        if not self.ended.done():
            self.ended.set_result(ended)

    def send_gap(self) -> bool:
        return True

    def end(self) -> None:
        pass

    async def wait_writable(self) -> None:
        pass


def _as_ended(event: QueueEvent) -> Ended:
    match event.name:
        case Event.COMPLETED:
            return Ended(State.COMPLETED, event.fields.get(Field.RETURN_VALUE, "null"))
        case Event.FAILED:
            return Ended(State.FAILED, reason=event.fields.get(Field.FAILED_REASON, ""))
        case _:
            return Ended(State.UNKNOWN, reason="the job was removed")


async def _ended(queue: BullQueue, job_id: str) -> Ended | Refusal | None:
    state = await queue.state(job_id)
    if state not in FINISHED:
        return None
    job = await queue.get(job_id)
    if job is None:
        return Refusal.MISSING
    return Ended(state, job.return_json, job.failed_reason) if state != State.UNKNOWN else None


def _read_command(queue: _FollowedQueue) -> Sequence[Arg]:
    if queue.last is None:
        return "XREVRANGE", queue.key, "+", "-", "COUNT", 1
    return _range(queue.key, queue.last)


def _range(key: str, after: Position, *, whole: bool = False) -> Sequence[Arg]:
    """The entries after a position; `whole`: and the one there."""
    start = after.id if whole else f"({after.id}"
    return "XRANGE", key, start, "+", "COUNT", _PAGE


def _last(events: Sequence[QueueEvent]) -> Position | None:
    return read_position(events[-1].id) if events else None
