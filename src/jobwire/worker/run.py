"""One job in work: from the moment it is held until its handler's code has really ended.

Made by a queue's loop, driven by the runner. Two things end here and need not coincide: the job is
*over* when its outcome is decided and handed to the loop, the code has *ended* when it no longer
uses its slot. A thread cannot be stopped, so its job may be over long before its code has ended.

Everything here happens in the event loop's thread.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Final, Protocol

from jobwire.job.clock import random_fraction
from jobwire.job.messages import Done, Failed, LeasedJob, Outcome, Released, Report, RetryLater
from jobwire.worker import outcomes
from jobwire.worker.app import Handler
from jobwire.worker.context import Context
from jobwire.worker.metrics import TaskMetrics
from jobwire.worker.outcomes import Ending, Returned, StopReason
from jobwire.worker.report_buffer import ReportBuffer, ThreadReportBuffer

_log: Final = logging.getLogger("jobwire.worker")
_NOTHING: Final = Returned("null")
_LAST_GRACE_S: Final = 1.0
"""For a handler whose worker ends: others wait for its job."""


class RunOwner(Protocol):
    """What a run needs of the loop it belongs to."""

    loop: asyncio.AbstractEventLoop
    grace_s: float
    lease_s: float

    def has_reports(self, run: "Run") -> None:
        """The run has unsent reports."""
        ...

    def decided(self, run: "Run", outcome: Outcome | None) -> None:
        """Settle it so; None: forget it, it is another's."""
        ...

    def code_ended(self, run: "Run") -> None:
        """Its code has ended, its slot is free."""
        ...

    def renew_first(self, run: "Run") -> None:
        """Its lease may have run out: renew it before its code begins."""
        ...


class Phase(Enum):
    """How far the handler's code is."""

    PARKED = "parked"
    """Not begun: its handler runs as often as it may already."""
    RUNNING = "running"
    ENDED = "ended"


class Run:
    """Most jobs never touch most of these, so they are defaults of the class: to make a run is to
    set four names."""

    phase: Phase = Phase.PARKED
    begun: bool = False
    """The runner has begun it, and is told of its end."""
    began_s: float | None = None
    """When it came, on our own clock; None: it is not to run."""
    leased_s: float = 0.0
    """When the lease was last asked for with success, on our own clock: it holds for a lease from
    then on. Also written by the renewal thread."""
    timeout_from_s: float | None = None
    """Since when its timeout runs, on our own clock; None: its turn has not come. Also read by the
    renewal thread."""
    stop: StopReason | None = None
    is_over: bool = False
    context: Context[Any] | None = None
    interrupt: Callable[[], object] | None = None
    """Tells the code to stop; None where nothing can."""
    kill: Callable[[], object] | None = None
    """Ends the code for good; None where nothing can."""
    buffer: ReportBuffer | None = None
    sink: ThreadReportBuffer | None = None
    refusals: int = 0
    """How often the server would not write its outcome."""
    warned: bool = False
    """The log knows that reports of it were dropped."""
    _timer: asyncio.TimerHandle | None = None

    def __init__(
        self, held: LeasedJob, handler: Handler, desk: RunOwner, account: TaskMetrics
    ) -> None:
        self.leased = held
        self.handler = handler
        self.owner = desk
        self.account = account

    # ── what the handler sees ────────────────────────────────────────────────────────────────────

    @property
    def stopped(self) -> bool:
        return self.stop is not None

    def add(self, report: Report) -> Awaitable[None]:
        """Take a report of a coroutine, or of a thread's mouth."""
        voice = self.buffer
        if voice is None:
            voice = self.buffer = ReportBuffer(lambda: self.owner.has_reports(self))
            voice.closed = self.is_over
        return voice.add(report)

    def add_from_thread(self, report: Report) -> None:
        """The same, called on the loop for a thread: what comes too late is dropped."""
        if not self.is_over:
            self.add(report)

    def restart_timeout(self) -> None:
        """Count the timeout anew; for coroutines, and on the loop for threads and processes."""
        if self.stop is None and not self.is_over and self.timeout_from_s is not None:
            self.timeout_from_s = time.monotonic()
            if self._timer is not None:
                self._timer.cancel()
                self.limit(self.handler.timeout_of(self.leased))

    @property
    def lease_ran_out(self) -> bool:
        """Whether another worker may have taken the job over, as far as our own clock tells."""
        return time.monotonic() - self.leased_s >= self.owner.lease_s

    def acknowledged(self, count: int) -> None:
        """`count` of its reports were answered."""
        if self.buffer is not None:
            self.buffer.acknowledge(count)
        if self.sink is not None:
            self.sink.acknowledge(count)

    def skip(self, outcome: Outcome) -> None:
        """It is not to run at all: settle it so."""
        self.phase = Phase.ENDED
        self.is_over = True
        self.owner.decided(self, outcome)
        self.owner.code_ended(self)

    # ── ending ───────────────────────────────────────────────────────────────────────────────────

    def limit(self, timeout_s: float | None) -> None:
        """Stop it after so long."""
        if timeout_s is not None:
            self._timer = self.owner.loop.call_later(timeout_s, self.halt, StopReason.TIMEOUT)

    def code_ended(self, ending: Ending, partial: str = "") -> None:
        """The handler's code has ended, however it did; `partial` is what a child process left."""
        self.phase = Phase.ENDED
        if self._timer is not None:
            self._timer.cancel()
        if not self.is_over:
            self._decide(ending, partial)
        # It knows us, and we it: let go, or the garbage collector has a knot to untie each job.
        self.context = None
        self.owner.code_ended(self)

    def halt(self, stop: StopReason) -> None:
        """Stop it. Its job is settled when the code has ended, but soon in any case: at once where
        nothing can interrupt the code, after a time of grace where it does not listen."""
        if self.is_over or (self.stop is not None and stop is not StopReason.LOST):
            return
        self.stop = stop
        if self.phase is Phase.PARKED:
            self.code_ended(_NOTHING)
            return
        if self._timer is not None:
            self._timer.cancel()
        if self.sink is not None:
            self.sink.stop()
        if self.interrupt is not None:
            self.interrupt()
        if self.interrupt is None or stop is StopReason.LOST:
            self.abandon()
        else:
            grace_s = self.owner.grace_s
            if stop is StopReason.RELEASE:
                grace_s = min(grace_s, _LAST_GRACE_S)
            self._timer = self.owner.loop.call_later(grace_s, self.abandon)

    def abandon(self) -> None:
        """Settle the job without waiting for its code any longer."""
        if self.is_over:
            return
        if self.kill is not None:
            self.kill()
        elif self.stop is not StopReason.LOST:
            _log.warning(
                "job %s (%s) goes on though it was told to stop (%s); its slot stays taken",
                *(self.leased.job.id, self.handler.task, self.stop and self.stop.value),
            )
        self._decide(_NOTHING)

    def _decide(self, ending: Ending, partial: str = "") -> None:
        self.is_over = True
        if self.stop is None and type(ending) is Returned:  # most jobs: nothing to decide
            self.owner.decided(self, outcomes.done(ending))
            return
        if self.context is not None:
            partial = outcomes.partial_json(self.context.partial)
        terms = self.handler.attempt_policy(self.leased)
        outcome = outcomes.outcome(ending, self.stop, terms, partial, random_fraction())
        if self.stop is StopReason.LOST and self.buffer is not None:
            self.buffer.close()
        self._tell(outcome)
        self.owner.decided(self, outcome)

    def _tell(self, outcome: Outcome | None) -> None:
        """Failures go to the log with everything that the caller is not shown."""
        name, task = self.leased.job.id, self.handler.task
        match outcome:
            case None:
                _log.warning("job %s (%s) belongs to another worker now", name, task)
            case RetryLater(after_s, error) if error.detail:
                _log.warning("job %s (%s) again in %.1f s\n%s", name, task, after_s, error.detail)
            case RetryLater(after_s, error):
                _log.info("job %s (%s) again in %.1f s: %s", name, task, after_s, error.message)
            case Failed(error):
                _log.warning(
                    "job %s (%s) failed: %s: %s%s",
                    *(name, task, error.code, error.message),
                    f"\n{error.detail}" if error.detail else "",
                )
            case Done() | Released() | _:
                pass
