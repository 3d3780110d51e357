"""Live events of many queues for many readers, over one connection (B-8, B-12).

The gateway has one. A queue's events are one stream; a reader gets all of them or those of one job.
Delivery, gaps and slow readers are `valkey.stream_follower`'s.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, NamedTuple

from jobwire.systems.queues.contract import BullField, BullState, EventName, Keys, Refusal
from jobwire.systems.queues.events import QueueEvent, read_events
from jobwire.systems.queues.queue import QueueProducer
from jobwire.valkey import Config
from jobwire.valkey.stream_follower import StreamFollower
from jobwire.valkey.stream_ids import START, Position
from jobwire.valkey.stream_subscriptions import EventReader, Rules

FINISHED: Final = frozenset((BullState.COMPLETED, BullState.FAILED, BullState.UNKNOWN))
_PAGE: Final = 500
_RULES: Final[Rules[QueueEvent]] = Rules(
    read=read_events,
    subject=lambda event: event.job_id,
    reopens=lambda event: event.reopens,
    max_entries=_PAGE,
)


class FinishedJob(NamedTuple):
    """How a job ended; `value_json` is the result of a completed one."""

    state: BullState
    value_json: str = ""
    reason: str = ""


class QueueFollower:
    """`async with follower.running(config):` around everything that subscribes."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._streams = StreamFollower(_RULES)

    @property
    def watchers(self) -> int:
        """How many readers follow a queue or a job."""
        return self._streams.watchers

    @property
    def table_use(self) -> float:
        """How much of the server's table of tracked keys is in use (G-16)."""
        return self._streams.table_use

    def running(
        self, config: Config | str, name: str = "jobwire", *, connect_timeout_s: float = 0.0
    ) -> AbstractAsyncContextManager[None]:
        """Follow inside the block; at its end all waiters are released."""
        name = f"{name}-queues"
        return self._streams.running(config, name, connect_timeout_s=connect_timeout_s)

    async def end_of(self, queue: str) -> Position:
        """The position behind the last event so far; ValkeyError if the server does not answer."""
        last = await self._streams.last(self._key(queue))
        return last.position if last is not None else START

    async def has_more(self, queue: str, job_id: str, after: Position) -> bool:
        """Whether the job has an event after a position; ValkeyError as above."""
        while True:
            reply = await self._streams.connection.call(
                "XRANGE", self._key(queue), f"({after.id}", "+", "COUNT", _PAGE
            )
            events = read_events(reply)
            if any(event.job_id == job_id for event in events):
                return True
            if len(events) < _PAGE:
                return False
            after = events[-1].position

    def watch(
        self,
        queue: str,
        reader: EventReader[QueueEvent],
        after: Position,
        *,
        job_id: str | None = None,
        finished: bool = False,
    ) -> Callable[[], None]:
        """Send the events after a position to `reader`, only those of a job if one is given; call
        the result to unsubscribe. The stream of a job ends with the job: `finished` if it has."""
        key = self._key(queue)
        return self._streams.watch(key, reader, after, subject=job_id, finished=finished)

    async def wait_until_finished(
        self, queue: QueueProducer, job_id: str, timeout_s: float
    ) -> FinishedJob | Refusal | None:
        """How a job ended; None if it has not in this time, or if this process stops. A Refusal if
        there is no such job.

        A job that is removed at its end is found by its last event, if the call came before."""
        name = queue.keys.queue
        position = await self.end_of(name)
        key = self._key(name)
        with self._streams.waiting(key, _as_ended, position, subject=job_id) as by_event:
            ended = await _ended(queue, job_id)
            if ended is Refusal.MISSING and await self.has_more(name, job_id, position):
                ended = None  # it was removed at its end just now: its last event says how
            if ended is not None:
                return ended
            await asyncio.wait([by_event], timeout=timeout_s)
            return by_event.result() if by_event.done() else None

    def release_waiters(self) -> None:
        """Release all callers of `wait_until_finished`: this process stops."""
        self._streams.release_waiters()

    def _key(self, queue: str) -> str:
        return Keys(queue, self._prefix).events


def _as_ended(event: QueueEvent) -> FinishedJob | None:
    match event.name:
        case EventName.COMPLETED:
            return FinishedJob(
                BullState.COMPLETED, event.fields.get(BullField.RETURN_VALUE, "null")
            )
        case EventName.FAILED:
            return FinishedJob(
                BullState.FAILED, reason=event.fields.get(BullField.FAILED_REASON, "")
            )
        case EventName.REMOVED:
            return FinishedJob(BullState.UNKNOWN, reason="the job was removed")
        case _:
            return None


async def _ended(queue: QueueProducer, job_id: str) -> FinishedJob | Refusal | None:
    state = await queue.state(job_id)
    if state not in FINISHED:
        return None
    job = await queue.get(job_id)
    if job is None:
        return Refusal.MISSING
    return (
        FinishedJob(state, job.return_json, job.failed_reason)
        if state != BullState.UNKNOWN
        else None
    )
