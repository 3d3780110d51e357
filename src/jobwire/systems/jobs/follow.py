"""Live events of many jobs for many readers, over one connection (J-15, J-17).

The gateway has one. Delivery, gaps and slow readers are `valkey.stream_follower`'s.

A foreign worker may end a job without its terminal event. The status of a job without new events is
read periodically; once it is terminal, the event may follow within `_GRACE_S`, then readers get a
gap and the end. The events of a job that does not exist end too.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Final, Protocol, cast
from weakref import WeakValueDictionary

from jobwire.job.messages import JobId
from jobwire.systems.jobs.clean_view import CleanReader, CleanView, RollbackReader
from jobwire.systems.jobs.contract import (
    EVENTS_SUFFIX,
    RECORD_EVENTS,
    STATE_EVENTS,
    TERMINAL_EVENTS,
    EventType,
    Field,
)
from jobwire.systems.jobs.events import StreamEvent, read_events
from jobwire.valkey import Config, Reply, ServerError, ValkeyError
from jobwire.valkey.stream_follower import StreamFollower
from jobwire.valkey.stream_ids import START, Position
from jobwire.valkey.stream_subscriptions import EventReader, Rules

_GRACE_S: Final = 5.0
"""How long the terminal event may follow the terminal status: a foreign worker writes it second."""
_SCAN: Final = 200
"""Events of one read for a clean view."""
_RETRY_S: Final = 1.0


class EventKeys(Protocol):
    """Names the keys of events."""

    def events(self, job_id: str) -> str:
        """The key of a job's events."""
        ...


class Follower:
    """`async with follower.running(config):` around everything that subscribes."""

    def __init__(self, keys: EventKeys) -> None:
        self._keys = keys
        self._streams = StreamFollower[StreamEvent](
            Rules(read=read_events, begins=lambda event: event.kind == EventType.QUEUED),
            on_empty=self._check_exists,
            on_quiet=self._check_status,
            on_other=self._job_changed,
            until_overdue=lambda end: asyncio.get_running_loop().call_later(_GRACE_S, end),
        )
        self._views: WeakValueDictionary[str, CleanView] = WeakValueDictionary()
        """Of jobs that have readers of the clean view, which keep them."""

    @property
    def followed(self) -> int:
        """How many jobs have subscriptions."""
        return self._streams.followed

    @property
    def table_use(self) -> float:
        """How much of the server's table of tracked keys is in use (G-16)."""
        return self._streams.table_use

    def running(
        self,
        config: Config | str,
        name: str = "jobwire",
        *,
        connect_timeout_s: float = 0.0,
        or_later: bool = False,
    ) -> AbstractAsyncContextManager[None]:
        """Follow inside the block; at its end all waiters are released."""
        name = f"{name}-follow"
        return self._streams.running(
            config, name, connect_timeout_s=connect_timeout_s, or_later=or_later
        )

    def watch(
        self,
        job_id: JobId,
        reader: EventReader[StreamEvent],
        after: Position = START,
        *,
        finished: bool = False,
    ) -> Callable[[], None]:
        """Send every event after a position to `reader`; call the result to unsubscribe.

        `finished`: the job's hash has a terminal status.
        """
        return self._streams.watch(self._keys.events(job_id), reader, after, finished=finished)

    def watch_clean(
        self,
        job_id: JobId,
        reader: RollbackReader,
        after: Position = START,
        *,
        finished: bool = False,
        started_ms: int = 0,
        is_behind: bool = False,
    ) -> Callable[[], None]:
        """Send the events of the clean view after a position (`CleanReader` has the arguments);
        call the result to unsubscribe."""
        key = self._keys.events(job_id)
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = CleanView()
        clean = CleanReader(
            reader,
            view,
            partial(self._scan, key),
            after,
            started_ms=started_ms,
            is_behind=is_behind,
        )
        return self._streams.watch(key, clean, after, finished=finished)

    async def is_behind(self, job_id: JobId, position: Position) -> bool:
        """Whether the event at a position does not tell if the next one takes something back: it is
        a change of state, or gone; ValkeyError if the server does not answer."""
        args = (self._keys.events(job_id), position.id, position.id)
        found = read_events(await self._streams.connection.call("XRANGE", *args))
        return not found or found[0].kind in STATE_EVENTS - RECORD_EVENTS

    async def _scan(self, key: str, view: CleanView, lacks: Callable[[], bool]) -> None:
        """Add the events that a view does not know; one reader reads for all of them."""
        view.reading = view.reading or asyncio.Lock()
        async with view.reading:
            is_whole = not lacks()
            while not is_whole:
                args = (key, f"({view.known.id}", "+", "COUNT", _SCAN)
                try:
                    events = read_events(await self._streams.connection.call("XRANGE", *args))
                except ServerError:
                    return  # a key of another type has no events
                except ValkeyError:
                    await asyncio.sleep(_RETRY_S)
                    continue
                for event in events:
                    view.add(view.known, event)
                is_whole = len(events) < _SCAN

    async def until_ended(self, job_id: JobId, timeout_s: float) -> None:
        """Return when the job has ended, after the timeout, or when this process stops."""
        # From the last event on: a waiter for the end need not read the earlier ones.
        key = self._keys.events(job_id)
        try:
            last = await self._streams.last(key)
        except ValkeyError:
            return  # the caller reads the job next, and gets the error there
        if last is not None and last.is_terminal:
            return
        after = last.position if last is not None else START
        # The end may be among lost events: the caller reads the job.
        with self._streams.waiting(key, _no_value, after, until_gap=True) as ended:
            await asyncio.wait([ended], timeout=timeout_s)

    async def is_last(self, job_id: JobId, position: Position) -> bool:
        """Whether the event at this position is the terminal one; ValkeyError if unknown."""
        last = await self._streams.last(self._keys.events(job_id))
        return last is not None and last.is_terminal and last.position == position

    def release_waiters(self) -> None:
        """Release all callers of `until_ended`: this process stops."""
        self._streams.release_waiters()

    # Jobs that end without a terminal event

    def _job_changed(self, job_key: str) -> None:
        self._streams.check_again(job_key + EVENTS_SUFFIX)

    def _check_status(self, key: str) -> None:
        """Read the status of a job without new events: a foreign worker may have ended it without
        its event. The read arms the tracking of the hash, so a quiet job is read once, and again
        only after a change."""
        try:
            reply = self._streams.connection.call("HGET", _job_key(key), Field.STATUS.value)
        except ValkeyError:
            self._streams.check_again(key)
        else:
            status = cast("asyncio.Future[Reply]", reply)
            status.add_done_callback(partial(self._status_read, key))

    def _status_read(self, key: str, status: "asyncio.Future[Reply]") -> None:
        if status.cancelled() or status.exception() is not None:
            self._streams.check_again(key)
        elif status.result() in TERMINAL_EVENTS:
            self._streams.finish(key)

    # Jobs that do not exist

    def _check_exists(self, key: str) -> None:
        """No events: either none were written yet, or the job is gone."""
        with suppress(ValkeyError):
            reply = self._streams.connection.call("EXISTS", _job_key(key))
            count = cast("asyncio.Future[Reply]", reply)
            count.add_done_callback(partial(self._existence_read, key))

    def _existence_read(self, key: str, count: "asyncio.Future[Reply]") -> None:
        if not count.cancelled() and count.exception() is None and count.result() == 0:
            self._streams.end(key)


def _job_key(events_key: str) -> str:
    return events_key.removesuffix(EVENTS_SUFFIX)


def _no_value(_: StreamEvent) -> None:
    """Only the end of the stream counts."""
