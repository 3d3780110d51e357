"""What a running job has to say and has not said yet: in order, and no more than it may.

A run gets one with its first report. At most 64 reports are unanswered; whoever says more waits:
a coroutine by awaiting, a thread by blocking. Only the event loop's thread touches the window;
threads come in through `ThreadVoice`.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from typing import Final

from jobwire.job.messages import Report
from jobwire.worker.context import REPORT_ADDED

WINDOW: Final = 64


class ReportBuffer:
    """The reports of one run, for coroutines."""

    __slots__ = ("_count", "_due", "_waiting", "closed", "in_flight", "unacknowledged", "unsent")

    def __init__(self, due: Callable[[], None]) -> None:
        self._due = due
        self._count = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.unsent: list[Report] = []
        self.in_flight = False
        """Some are on their way; the next ones go when those were answered, to keep the order."""
        self.unacknowledged = 0
        self.closed = False
        """The job is over, or another's: nothing more may be said."""

    def add(self, report: Report) -> Awaitable[None]:
        """Queue it now if there is room; else awaiting the answer waits for room."""
        if self.closed:
            raise asyncio.CancelledError("this job is over")
        if self.unacknowledged < WINDOW and not self._waiting:
            self.unacknowledged += 1
            self._queue(report)
            return REPORT_ADDED
        return _PendingReport(self, report)

    def acknowledge(self, count: int) -> None:
        """`count` reports have arrived (or never will): there is room for as many."""
        self.unacknowledged -= count
        while self._waiting and self.unacknowledged < WINDOW:
            place = self._waiting.popleft()
            if not place.done():
                self.unacknowledged += 1
                place.set_result(None)

    def close(self) -> None:
        """Refuse everything from now on; who waits for room is told."""
        self.closed = True
        self.unsent.clear()
        while self._waiting:
            self._waiting.popleft().cancel()

    async def add_when_writable(self, report: Report) -> None:
        """Wait in line, then queue it."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.acknowledge(1)
            raise
        if not self.closed:
            self._queue(report)

    def _queue(self, report: Report) -> None:
        self._count += 1
        self.unsent.append(report._replace(number=self._count))
        self._due()


class _PendingReport:
    """A report that has to wait for room; says so loudly if nobody awaits it."""

    __slots__ = ("_awaited", "_report", "_voice")

    def __init__(self, voice: ReportBuffer, report: Report) -> None:
        self._voice = voice
        self._report = report
        self._awaited = False

    def __await__(self) -> Generator[object, None, None]:
        self._awaited = True
        return self._voice.add_when_writable(self._report).__await__()

    def __del__(self) -> None:
        if not self._awaited:
            import warnings

            warnings.warn(
                f"a report ({self._report.kind}) was dropped: {WINDOW} others were unsent and it "
                "was not awaited; write `await ctx.emit(…)`",
                RuntimeWarning,
                stacklevel=2,
            )


class ThreadReportBuffer:
    """The same for a handler in a thread: it blocks where a coroutine would await.

    Seen by any number of threads, if the handler starts some of its own.
    """

    __slots__ = ("_loop", "_restart", "_room", "_say", "stopped")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        say: Callable[[Report], object],
        restart: Callable[[], object],
    ) -> None:
        """`say` and `restart` are called on the loop."""
        self._loop = loop
        self._say = say
        self._restart = restart
        self._room = threading.Semaphore(WINDOW)
        self.stopped = False

    def add(self, report: Report) -> Awaitable[None]:
        self._room.acquire()
        if self.stopped:
            self._room.release()  # for the next who waits
            raise asyncio.CancelledError("this job is over")
        self._loop.call_soon_threadsafe(self._say, report)
        return REPORT_ADDED

    def restart_timeout(self) -> None:
        self._loop.call_soon_threadsafe(self._restart)

    def acknowledge(self, count: int) -> None:
        """Called on the loop: there is room for `count` more."""
        self._room.release(count)

    def stop(self) -> None:
        """Called on the loop: let everybody out who waits, with nothing said."""
        self.stopped = True
        self._room.release()
