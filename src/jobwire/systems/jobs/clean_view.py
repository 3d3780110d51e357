"""The clean view of a job's events: without the reports that a later run takes back (A-8).

Every run begins with its event `running`; neither `attempt` nor the number of deliveries separates
runs. A run that was lost, released or retried is superseded by the next one from its last record on
(`step_done`, or the end of a run that was suspended; without any: from its start). The next run
takes its reports back with the first event of its own, unless that is `continued`: then it goes on
where they end. A suspended run is not superseded, since the run after it emits nothing again.
Changes of state are never taken back.

    RunFold       what the events so far take back; pure
    CleanView     the ranges of superseded reports of one job; all its readers in a process share it
    CleanReader   one reader's place: drops superseded events, sends `rollback` if it has some

A reader that resumes knows nothing of what was before its place, and one that begins may be behind
the newest run: at the next `running` their view is read from the beginning of the stream (`scan`),
while they wait as slow readers do. The view of a job that ran once is never read twice.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, cast

import msgspec

from jobwire.systems.jobs.contract import (
    CONTINUED,
    RECORD_EVENTS,
    STATE_EVENTS,
    EventStep,
    EventType,
)
from jobwire.systems.jobs.events import StreamEvent
from jobwire.valkey.stream_ids import START, Position
from jobwire.valkey.stream_subscriptions import EventReader

_KEPT_STEPS: Final = frozenset({EventStep.SUSPEND, EventStep.RESTART})
"""Of `queued`: the run had to wait for nothing any more, or begins anew with what it has shown."""


def is_report(kind: str) -> bool:
    """Whether a handler emitted it, so that it may be taken back."""
    return kind not in STATE_EVENTS


class RunFold:
    """What the next event takes back, given all events before it."""

    __slots__ = ("_has_reports", "_is_superseded", "_kept")

    def __init__(self) -> None:
        self._kept = START
        """Reports up to here are never taken back."""
        self._has_reports = False
        """There are reports after it."""
        self._is_superseded = False
        """Another run has begun since the last of them."""

    def take(self, event: StreamEvent) -> Position | None:
        """Add the next event. A position: it takes back all reports after that one."""
        kind = event.kind
        if kind in RECORD_EVENTS or (kind == EventType.QUEUED and event.step in _KEPT_STEPS):
            back_to = self._taken_back()
            if kind != EventType.STEP_DONE or not _has_failed(event):
                self._kept, self._has_reports = event.position, False
            return back_to
        if kind == EventType.RUNNING:
            self._is_superseded = self._has_reports
        elif kind == EventType.DONE:
            return self._taken_back()
        elif is_report(kind):
            if kind == CONTINUED:
                self._is_superseded = False
            back_to = self._taken_back()
            self._has_reports = True
            return back_to
        return None

    def _taken_back(self) -> Position | None:
        if not self._is_superseded:
            return None
        self._is_superseded = self._has_reports = False
        return self._kept


def _has_failed(event: StreamEvent) -> bool:
    """Whether a recorded step has an error. The next attempt may forget it and call the step again,
    so that later runs do not go on behind it."""
    data: object = msgspec.json.decode(event.data)
    return isinstance(data, dict) and cast("dict[str, object]", data).get("failed") is True


class CleanView:
    """Which reports of a job are superseded, as far as its events are known."""

    __slots__ = ("__weakref__", "_fold", "_from", "_until", "known", "reading")

    def __init__(self) -> None:
        self._fold = RunFold()
        self._from: list[Position] = []
        self._until: list[Position] = []
        """Reports between are superseded; the ranges are in order and apart."""
        self.known = START
        """Every event up to this one is known."""
        self.reading: asyncio.Lock | None = None
        """Held by the reader that reads the stream for all of them."""

    def add(self, after: Position, event: StreamEvent) -> None:
        """An event that follows `after` in the stream; known ones and those behind a hole are
        ignored."""
        if not after <= self.known < event.position:
            return
        self.known = event.position
        back_to = self._fold.take(event)
        if back_to is not None:
            while self._from and self._from[-1] >= back_to:
                del self._from[-1], self._until[-1]
            self._from.append(back_to)
            self._until.append(event.position)

    def superseded(self, position: Position) -> tuple[Position, Position] | None:
        """The range of superseded reports around a position: what they are taken back to, and what
        takes them back."""
        at = bisect_right(self._from, position) - 1
        if at >= 0 and self._from[at] < position < self._until[at]:
            return self._from[at], self._until[at]
        return None


class RollbackReader(EventReader[StreamEvent], Protocol):
    """A reader to which events can be taken back."""

    def send_rollback(self, to: str, /) -> bool:
        """Accept that the reports after the event with this id do not count; returns as `push`."""
        ...


Scan = Callable[[CleanView, Callable[[], bool]], Awaitable[None]]
"""Adds the events of the stream that a view does not know, if the reader still lacks them."""
_NOWHERE: Final = Position(1 << 64, 0)


class CleanReader:
    """Receives all events of a job from the follower, and passes those of the clean view on."""

    __slots__ = (
        "_at",
        "_is_behind",
        "_looked_at",
        "_reader",
        "_scan",
        "_shown",
        "_started_ms",
        "_view",
    )

    def __init__(
        self,
        reader: RollbackReader,
        view: CleanView,
        scan: Scan,
        after: Position,
        *,
        started_ms: int,
        is_behind: bool,
    ) -> None:
        """`started_ms` is when the job's newest run began. `is_behind`: the event at `after` does
        not tell whether the next one takes something back."""
        self._reader = reader
        self._view = view
        self._scan = scan
        self._started_ms = started_ms
        self._at = after
        """The last event."""
        self._shown = after
        """Of the reports up to here the reader may have some."""
        self._is_behind: bool = is_behind
        """The next event waits until the view knows it."""
        self._looked_at: Position = START
        """The last event for which the stream was read; it is not read twice for one."""

    @property
    def closed(self) -> bool:
        return self._reader.closed

    def push(self, event: StreamEvent) -> bool:
        view, position = self._view, event.position
        view.add(self._at, event)
        if self._is_behind or event.kind == EventType.RUNNING:
            self._is_behind = position != self._looked_at and self._lacks(position)
            if self._is_behind:
                self._looked_at = position
                return False
        if not self._take_back(position):
            return False
        if not is_report(event.kind):
            if not self._reader.push(event):
                return False
        elif view.superseded(position) is None:
            if not self._reader.push(event):
                return False
            self._shown = position
        self._at = position
        return True

    def _lacks(self, position: Position) -> bool:
        """Whether the view does not know this event, or not the newest run, which may supersede
        it."""
        known = self._view.known
        return known < position or (position.ms < self._started_ms and known.ms < self._started_ms)

    def _take_back(self, position: Position) -> bool:
        """Send `rollback` if the reader has what is taken back before this position."""
        found = self._view.superseded(self._shown)
        if found is not None and found[1] <= position:
            if not self._reader.send_rollback(found[0].id):
                return False
            self._shown = found[0]
        return True

    def send_gap(self) -> bool:
        if not self._reader.send_gap():
            return False
        self._at, self._is_behind = _NOWHERE, True
        return True

    def end(self) -> None:
        self._reader.end()

    async def wait_writable(self) -> None:
        if self._is_behind:
            await self._scan(self._view, lambda: self._lacks(self._looked_at))
        await self._reader.wait_writable()
