"""The path of a report from the handler to the engine, and of the answer back.

    Context.emit          encodes the report and calls `add` of its sink:
      Run                   a coroutine: the report goes to the run's buffer at once
      ThreadSink            a thread: blocks while WINDOW reports are unacknowledged
      PipeSink              a child process: the worker passes it to the run's ThreadSink
    ReportBuffer          numbers the report, keeps it until it is sent, bounds the window
    SendQueue             lists the runs with unsent reports until the next turn of the queue loop
    SendQueue.send_reports  one batch, one `engine.report` call
    SendQueue._acknowledge  the answers free the window; after a lost connection the reports are
                          sent again

At most WINDOW reports of a job are unacknowledged: then a coroutine waits when it awaits the
report, a thread when it calls (J-36). Outcomes share the queue, since an outcome must not overtake
a report that is in flight: a report lost with the connection could not be sent after it.
"""

import asyncio
import logging
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence, Set
from concurrent import futures
from typing import TYPE_CHECKING, Any, Final, Protocol

from jobwire.job.engine import Engine, StepRules, Use
from jobwire.job.errors import BackendUnavailable, Fail, JobSuspended
from jobwire.job.messages import (
    RECORD_KIND,
    SUBMIT_KIND,
    Children,
    ChildrenRead,
    Outcome,
    Report,
    ReportAnswer,
    Restarted,
    Suspended,
)
from jobwire.worker.branches import Branches, joined
from jobwire.worker.job_log import fields
from jobwire.worker.replay import Replay
from jobwire.worker.steps import StepNotRecorded, StepRecord
from jobwire.worker.threads import Threads
from jobwire.worker.watchdog import Watchdog, call

if TYPE_CHECKING:  # run.py needs the buffers of this file
    from jobwire.worker.run import Run

_log: Final = logging.getLogger("jobwire.worker")

WINDOW: Final = 64


class ReportSink(Protocol):
    """Accepts the reports of one running job; what a Context writes to."""

    @property
    def stopped(self) -> bool:
        """Whether the handler was asked to stop."""
        ...

    @property
    def uses(self) -> Set[Use]:
        """What the handler declares to use."""
        ...

    @property
    def reserved_kinds(self) -> Set[str]:
        """The kinds of reports that no handler of the queue may use."""
        ...

    def add(self, report: Report) -> Awaitable[None]:
        """Queue the report, in order; CancelledError if the job is over or lost."""
        ...

    @property
    def replay(self) -> Replay | None:
        """What holds reports while the run repeats earlier ones."""
        ...

    def push(self, report: Report) -> object:
        """Queue a report that was held, even if the window is full."""
        ...

    @property
    def any_progress(self) -> bool:
        """Whether progress may be any number."""
        ...

    @property
    def max_result_bytes(self) -> int:
        """The largest result, as JSON."""
        ...

    def children(self) -> "ChildrenAnswer":
        """Read the job's children; BackendUnavailable if the server does not answer."""
        ...

    def restart_timeout(self) -> None:
        """Count the job's `timeout_s` from now on."""
        ...

    @property
    def steps(self) -> StepRecord:
        """The record of the job's steps."""
        ...

    def record(self, field: str, value: str, kind: str = RECORD_KIND) -> Awaitable[None]:
        """Write a field of the record, or submit a child (`SUBMIT_KIND`), in order with the
        reports; the server has it when this returns. CancelledError if the job is over or lost,
        StepNotRecorded if it is refused, Fail if a child never can be submitted."""
        ...

    def suspend(self, outcome: Suspended | Restarted) -> Awaitable[None]:
        """End the run, and then suspend the job so: JobSuspended in a thread. The awaitable of a
        coroutine never returns: its task is cancelled when nothing of the run works any more."""
        ...

    @property
    def branches(self) -> Branches | None:
        """Those of a coroutine that may suspend its job."""
        ...

    @property
    def threads(self) -> Threads:
        """For the functions that a coroutine must not call on the event loop."""
        ...


class ChildrenAnswer(Protocol):
    """`await` it in an `async def`; in a `def`, where the call has waited, take the `result()`."""

    def result(self) -> Children: ...

    def __await__(self) -> Generator[Any, Any, Children]: ...


class PendingChildren:
    """The answer in a coroutine."""

    __slots__ = ("_reading",)

    def __init__(self, reading: Coroutine[Any, Any, Children]) -> None:
        self._reading = reading

    def result(self) -> Children:
        self._reading.close()
        raise RuntimeError("in an `async def`, write `await ctx.children()`")

    def __await__(self) -> Generator[Any, Any, Children]:
        return self._reading.__await__()


class ReportAdded:
    """The awaitable of a report that was queued at once."""

    __slots__ = ()

    def __await__(self) -> Generator[object, None, None]:
        return
        yield  # makes this a generator


REPORT_ADDED: Final = ReportAdded()


class ReportBuffer:
    """The reports of one run that are not acknowledged; made with its first report. Used on the
    event loop only."""

    __slots__ = (
        "_count",
        "_on_unsent",
        "_waiting",
        "closed",
        "in_flight",
        "unacknowledged",
        "unsent",
    )

    def __init__(self, on_unsent: Callable[[], None]) -> None:
        self._on_unsent = on_unsent
        self._count = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.unsent: list[Report] = []
        self.in_flight = False
        """A batch is sent and not answered; the next one waits for it, to keep the order."""
        self.unacknowledged = 0
        self.closed = False
        """The job is over or lost: no more reports."""

    def add(self, report: Report) -> Awaitable[None]:
        """Queue the report now if the window has space; otherwise the awaitable waits for it."""
        if self.closed:
            raise asyncio.CancelledError("this job is over")
        if self.unacknowledged < WINDOW and not self._waiting:
            self.unacknowledged += 1
            self._queue(report)
            return REPORT_ADDED
        return _PendingReport(self, report)

    def push(self, report: Report) -> None:
        """Queue the report of a thread now: the window of its sink has bounded them."""
        if not self.closed:
            self.unacknowledged += 1
            self._queue(report)

    def acknowledge(self, count: int) -> None:
        """`count` reports are answered: the window has space for as many."""
        self.unacknowledged -= count
        while self._waiting and self.unacknowledged < WINDOW:
            waiter = self._waiting.popleft()
            if not waiter.done():
                self.unacknowledged += 1
                waiter.set_result(None)

    def close(self) -> None:
        """Drop unsent reports, cancel waiting ones, refuse later ones."""
        self.closed = True
        self.unsent.clear()
        while self._waiting:
            self._waiting.popleft().cancel()

    async def add_when_writable(self, report: Report) -> None:
        """Wait for space in the window, first come first served, then queue the report."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.acknowledge(1)
            raise
        if not self.closed:
            self._queue(report)

    def _queue(self, report: Report) -> None:
        self._count += 1
        self.unsent.append(report._replace(number=self._count))
        self._on_unsent()


class _PendingReport:
    """A report that waits for space in the window; warns if it is never awaited."""

    __slots__ = ("_awaited", "_buffer", "_report")

    def __init__(self, buffer: ReportBuffer, report: Report) -> None:
        self._buffer = buffer
        self._report = report
        self._awaited = False

    def __await__(self) -> Generator[object, None, None]:
        self._awaited = True
        return self._buffer.add_when_writable(self._report).__await__()

    def __del__(self) -> None:
        if not self._awaited:
            import warnings

            warnings.warn(
                f"a report ({self._report.kind}) was dropped: {WINDOW} others were unsent and it "
                "was not awaited; write `await ctx.emit(…)`",
                RuntimeWarning,
                stacklevel=2,
            )


class ThreadSink:
    """The sink of a handler in a thread, or of the thread that serves a child process. Any thread
    may use it, since a handler may start threads of its own."""

    __slots__ = (
        *("_loop", "_run", "_unacknowledged", "_window", "any_progress", "max_result_bytes"),
        *("branches", "replay", "reserved_kinds", "steps", "stopped", "threads", "uses"),
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, run: "Run") -> None:
        """Methods of the run are called on the event loop."""
        self.branches: Branches | None = None
        self.threads = run.threads
        self.uses = run.uses
        self.reserved_kinds = run.reserved_kinds
        self.any_progress = run.any_progress
        self.max_result_bytes = run.max_result_bytes
        self.steps = run.steps
        self.replay = run.replay
        self._loop = loop
        self._run = run
        self._window = threading.Semaphore(WINDOW)
        self._unacknowledged = 0
        """The reports that have used up the window; changed on the event loop."""
        self.stopped = False

    def add(self, report: Report) -> Awaitable[None]:
        self._window.acquire()
        if self.stopped:
            self._window.release()  # the next waiting thread is refused, too
            raise asyncio.CancelledError("this job is over")
        self._loop.call_soon_threadsafe(self._add, report)
        return REPORT_ADDED

    def push(self, report: Report) -> None:
        self._loop.call_soon_threadsafe(self._run.add_from_thread, report)

    def _add(self, report: Report) -> None:
        self._unacknowledged += 1
        self._run.add_from_thread(report)

    def children(self) -> ChildrenRead:
        if self.stopped:
            raise asyncio.CancelledError("this job is over")
        reading = asyncio.run_coroutine_threadsafe(self._run.read_children(), self._loop)
        return ChildrenRead(reading.result())

    def suspend(self, outcome: Suspended | Restarted) -> Awaitable[None]:
        if self.stopped:
            raise asyncio.CancelledError("this job is over")
        self._run.suspend_with(outcome)
        raise JobSuspended

    def record(self, field: str, value: str, kind: str = RECORD_KIND) -> Awaitable[None]:
        if self.stopped:
            raise asyncio.CancelledError("this job is over")
        recording = self._run.record_from_thread(field, value, kind)
        writing = asyncio.run_coroutine_threadsafe(recording, self._loop)
        try:
            writing.result()
        except futures.CancelledError:
            raise asyncio.CancelledError("this job is over") from None
        return REPORT_ADDED

    def restart_timeout(self) -> None:
        self._loop.call_soon_threadsafe(self._run.restart_timeout)

    def acknowledge(self, count: int) -> None:
        """On the event loop: `count` reports or records are answered. Only reports fill the
        window: a thread that records waits for the answer."""
        if count := min(count, self._unacknowledged):
            self._unacknowledged -= count
            self._window.release(count)

    def stop(self) -> None:
        """On the event loop: refuse waiting and later reports."""
        self.stopped = True
        self._window.release()


class SinkRules(Protocol):
    """What a child process knows of the job's queue."""

    uses: frozenset[Use]
    reserved_kinds: frozenset[str]
    any_progress: bool
    max_result_bytes: int
    step_rules: StepRules | None
    record: dict[str, str]
    now_ms: int
    names: dict[str, int]
    attempt: int


class PipeSink:
    """The sink in a child process: one report at a time, each acknowledged before the next."""

    def __init__(
        self,
        send: Callable[[Report], None],
        restart: Callable[[], None],
        request_children: Callable[[], None],
        request_record: Callable[[str, str, str], None],
        threads: Threads,
        rules: SinkRules,
    ) -> None:
        """`send`, `restart`, `request_children` and `request_record` write to the pipe."""
        self.steps = StepRecord(
            rules.step_rules, rules.record, rules.now_ms, rules.names, rules.attempt
        )
        self.replay = self.steps.replay
        self.suspension: Suspended | Restarted | None = None
        """What the job waits for after this run."""
        self.branches: Branches | None = None
        """Of a coroutine that may suspend its job, while it runs."""
        self.threads = threads
        self._request_record = request_record
        self._recorded: queue.SimpleQueue[tuple[str | None, str]] = queue.SimpleQueue()
        self.uses = rules.uses
        self.reserved_kinds = rules.reserved_kinds
        self.any_progress = rules.any_progress
        self.max_result_bytes = rules.max_result_bytes
        self._send = send
        self._request_children = request_children
        self._children: queue.SimpleQueue[Children | str] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._acks: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.restart_timeout = restart
        self.stopped = False
        self.interrupt: Callable[[], object] | None = None

    def add(self, report: Report) -> Awaitable[None]:
        with self._lock:
            self._send(report)
            if not self._acks.get():
                raise asyncio.CancelledError("this job is over")
        return REPORT_ADDED

    def push(self, report: Report) -> None:
        self.add(report)

    def children(self) -> ChildrenRead:
        with self._lock:
            self._request_children()
            answer = self._children.get()
        if isinstance(answer, Children):
            return ChildrenRead(answer)
        raise BackendUnavailable("the job's children could not be read", detail=answer)

    def children_answered(self, answer: Children | str) -> None:
        """By the thread that reads the pipe: the children, or why they could not be read."""
        self._children.put(answer)

    def suspend(self, outcome: Suspended | Restarted) -> Awaitable[None]:
        if self.branches is not None:
            return self.branches.wait(outcome)
        self.suspend_with(outcome)
        raise JobSuspended

    def suspend_with(self, outcome: Suspended | Restarted) -> None:
        """The run ends, and the job waits so; with several calls, for all of them."""
        self.steps.suspended = True
        self.suspension = joined([self.suspension, outcome] if self.suspension else [outcome])
        if self.interrupt is not None:
            self.interrupt()

    def record(self, field: str, value: str, kind: str = RECORD_KIND) -> Awaitable[None]:
        with self._lock:
            self._request_record(field, value, kind)
            error, code = self._recorded.get()
        if error is None:
            raise asyncio.CancelledError("this job is over")
        if code:
            raise Fail(code, error)
        if error:
            raise StepNotRecorded(error)
        return REPORT_ADDED

    def record_answered(self, error: str | None, code: str) -> None:
        """By the thread that reads the pipe: why it was not written, None if the job is over; with
        a code the job fails."""
        self._recorded.put((error, code))

    def acknowledge(self, accepted: bool) -> None:
        """By the thread that reads the pipe: the worker's answer to the last report."""
        self._acks.put(accepted)

    def stop(self) -> None:
        """By the thread that reads the pipe: the handler is to stop. A second request
        changes nothing."""
        first, self.stopped = not self.stopped, True
        if first and self.interrupt is not None:
            self.interrupt()


ReportBatch = list[tuple["Run", list[Report]]]
OutcomeBatch = list[tuple["Run", Outcome]]


class SendQueue:
    """The reports and outcomes of one queue loop, collected until its next turn.

    The order of each job: its reports, batch after batch, then its outcome, which leaves in the
    same write as the last of them.
    """

    def __init__(
        self,
        engine: Engine,
        watchdog: Watchdog,
        on_change: Callable[[], None],
        on_unavailable: Callable[[Exception], None],
    ) -> None:
        self._engine = engine
        self._watchdog = watchdog
        self._on_change = on_change
        self._on_unavailable = on_unavailable
        self._reporting: deque[Run] = deque()
        self._outcomes: OutcomeBatch = []
        self._held_back: dict[Run, Outcome] = {}

    def __bool__(self) -> bool:
        return bool(self._reporting or self._outcomes)

    # ── reports ──────────────────────────────────────────────────────────────────────────────────

    def add_reports(self, run: "Run") -> None:
        """The run has a new unsent report."""
        if run.buffer is not None and not run.buffer.in_flight and len(run.buffer.unsent) == 1:
            self._reporting.append(run)
        self._on_change()

    def send_reports(self) -> Coroutine[object, None, None] | None:
        """Send all reports that may go now in one call; the coroutine handles the answers."""
        batch: ReportBatch = []
        while self._reporting:
            buffer = (run := self._reporting.popleft()).buffer
            if buffer is not None and buffer.unsent:
                buffer.in_flight = True
                batch.append((run, buffer.unsent))
                buffer.unsent = []
        if not batch:
            return None
        reports = [(run.leased, report) for run, reports in batch for report in reports]
        return self._await_answers(call(self._engine.report, reports), batch)

    async def _await_answers(
        self, answer: Awaitable[list[ReportAnswer]], batch: ReportBatch
    ) -> None:
        try:
            answers = await self._watchdog.watched(f"{self._engine.name}: report", answer)
        except BackendUnavailable as error:
            for run, reports in batch:
                self._batch_ended(run, resend=reports)
            self._on_unavailable(error)
            return
        except Exception as error:  # noqa: BLE001 - a report never fails a job
            _log.error(
                "reports dropped engine=%(engine)s", {"engine": self._engine.name}, exc_info=error
            )
            answers = [ReportAnswer.DROPPED for _, reports in batch for _ in reports]
        first = 0
        for run, reports in batch:
            self._acknowledge(run, reports, answers[first : first + len(reports)])
            first += len(reports)
        if self:  # most often nothing is left to send
            self._on_change()

    def _acknowledge(
        self, run: "Run", reports: Sequence[Report], answers: Sequence[ReportAnswer]
    ) -> None:
        run.reports_acknowledged(len(answers))
        if run.recording:
            for report, answer in zip(reports, answers, strict=True):
                if report.kind in (RECORD_KIND, SUBMIT_KIND):
                    run.recorded(report.step, answer)
        self._batch_ended(run)
        if ReportAnswer.LOST in answers:
            run.lease_lost()
        elif ReportAnswer.DROPPED in answers and not run.warned:
            run.warned = True  # one line per job
            _log.warning("report dropped", extra=fields(run))

    def _batch_ended(self, run: "Run", resend: Sequence[Report] = ()) -> None:
        """The run's batch is no longer in flight: its next reports and its outcome may go."""
        buffer = run.buffer
        assert buffer is not None
        buffer.in_flight = False
        if resend and not buffer.closed:
            buffer.unsent[:0] = resend
        if buffer.unsent:
            self._reporting.append(run)
        if (outcome := self._held_back.pop(run, None)) is not None:
            self._outcomes.append((run, outcome))

    # ── outcomes ─────────────────────────────────────────────────────────────────────────────────

    def add_outcome(self, run: "Run", outcome: Outcome) -> None:
        """Settle the run so, after all its reports."""
        if run.buffer is not None and run.buffer.in_flight:
            self._held_back[run] = outcome
        else:
            self._outcomes.append((run, outcome))
        self._on_change()

    def take_outcomes(self, limit: int) -> OutcomeBatch:
        """Up to `limit` outcomes that may go now, the oldest first."""
        batch, self._outcomes = self._outcomes[:limit], self._outcomes[limit:]
        return batch

    def unsent_outcomes(self) -> OutcomeBatch:
        """All outcomes that wait; for the lease renewal thread while the loop is blocked."""
        return [*self._outcomes, *self._held_back.items()]

    def requeue(self, batch: OutcomeBatch) -> None:
        """These outcomes were not written: they go first next time."""
        self._outcomes[:0] = batch
