"""One running job: from the moment it is leased until its handler's code has really ended.

Made by a queue loop, driven by the runner. Two ends need not coincide: the job is *over* when its
outcome is decided and queued, the code has *ended* when it no longer uses its slot. A thread cannot
be stopped, so its job may be over long before its code has ended.

Everything here happens in the event loop's thread.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Set
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from jobwire.job.engine import Use
from jobwire.job.errors import Fail
from jobwire.job.ids import random_fraction
from jobwire.job.messages import (
    CHILD_FIELD,
    NO_RECORD,
    RECORD_KIND,
    RESULT_FIELD,
    Children,
    JobRecord,
    LeasedJob,
    Outcome,
    RenewAnswer,
    Report,
    ReportAnswer,
    Restarted,
    Suspended,
)
from jobwire.worker import outcomes
from jobwire.worker.app import Handler
from jobwire.worker.branches import Branches, MustWait, joined, note_tasks, tasks_of_run
from jobwire.worker.context import Context
from jobwire.worker.job_log import fields
from jobwire.worker.limits import HandlerLimit
from jobwire.worker.metrics import TaskMetrics
from jobwire.worker.outcomes import Ending, Returned, StopReason, SuspendRequested
from jobwire.worker.replay import Replay
from jobwire.worker.reports import PendingChildren, ReportBuffer, ThreadSink
from jobwire.worker.steps import StepNotRecorded, StepRecord
from jobwire.worker.threads import Threads

if TYPE_CHECKING:  # queue_loop.py makes the runs
    from jobwire.worker.queue_loop import QueueLoop

_log: Final = logging.getLogger("jobwire.worker")
_NOTHING: Final = Returned("null")
_OVERRULED: Final = (StopReason.TIMEOUT, StopReason.DEADLINE, StopReason.RELEASE)
"""Reasons to stop that do not count once the handler waits."""
_CHILD_FAILURES: Final = {
    ReportAnswer.CHILD_LIMIT: (
        "child_limit",
        "a job has at most 1,000 children, and children are at most 8 levels deep",
    ),
    ReportAnswer.UNKNOWN_TASK: ("unknown_task", "no worker has or had the task of the child"),
}
_FULL_SERVER_S: Final = 30.0
"""When a job whose child a full server has refused looks again."""
_RELEASE_GRACE_S: Final = 1.0
"""The grace time of a handler whose worker stops: other workers wait for its job."""


class Phase(Enum):
    """How far the handler's code is."""

    LEASED = "leased"
    """Not begun: it waits for its record or, where other queues were faster, for a slot."""
    RUNNING = "running"
    ENDED = "ended"


_ENDED: Final = Phase.ENDED  # for each job: reading it from the enum is slow


class Run:
    """Most jobs never touch most of these attributes, so they are defaults of the class: to make a
    run is to set four names."""

    phase: Phase = Phase.LEASED
    has_slot: bool = True
    """It holds a slot; otherwise it waits in line for one."""
    admitted_by: HandlerLimit | None = None
    """The limit of its handler that has admitted it."""
    begun: bool = False
    """The runner has begun it, and counts its end."""
    began_s: float | None = None
    """When it was leased, on our own clock; None: it is not to run."""
    leased_s: float = 0.0
    """When the last successful lease or renewal was requested, on our own clock: the lease holds
    from then on. Also written by the lease renewal thread."""
    timeout_from_s: float | None = None
    """Since when its timeout counts, on our own clock; None: not begun. Also read by the lease
    renewal thread."""
    stop: StopReason | None = None
    lost_by: RenewAnswer | None = None
    """How the lease was lost; None if that is not known."""
    is_over: bool = False
    context: Context[Any] | None = None
    task: "asyncio.Task[Any] | None" = None
    """The task in which its coroutine runs; read by the lease renewal thread."""
    interrupt: Callable[[], object] | None = None
    """Asks the code to stop; None if it cannot be interrupted."""
    kill: Callable[[], object] | None = None
    """Ends the code at once; None if it cannot be ended."""
    buffer: ReportBuffer | None = None
    sink: ThreadSink | None = None
    recording: "dict[str, asyncio.Future[None]] | None" = None
    """The fields of its record that are being written."""
    job_record: JobRecord = NO_RECORD
    """What it has from earlier runs; read before it begins, if there is any."""
    progress_attempt: int = 1
    """The attempt of the latest new result of a step: `max_attempts` counts from it (D-7)."""
    replay: Replay | None = None
    """What holds its reports while it repeats those of earlier runs."""
    _steps: StepRecord | None = None
    branches: Branches | None = None
    """Of a coroutine that may suspend its job."""
    tasks: "set[asyncio.Task[Any]] | None" = None
    """Those that it has created and that have not ended."""
    suspension: "Suspended | Restarted | None" = None
    """What its job waits for once its code has ended. Also written by the handler's thread."""
    refusals: int = 0
    """How often the server refused to write its outcome."""
    warned: bool = False
    """A dropped report of it is in the log."""
    _timer: asyncio.TimerHandle | None = None

    def __init__(
        self, leased: LeasedJob, handler: Handler, owner: "QueueLoop", metrics: TaskMetrics
    ) -> None:
        self.leased = leased
        self.handler = handler
        self.owner = owner
        self.metrics = metrics

    # ── the sink of a coroutine's reports (`reports.py`) ─────────────────────────────────────────

    @property
    def stopped(self) -> bool:
        return self.stop is not None

    @property
    def uses(self) -> Set[Use]:
        return self.handler.uses

    @property
    def reserved_kinds(self) -> Set[str]:
        return self.owner.engine.reserved_kinds

    @property
    def any_progress(self) -> bool:
        return self.owner.engine.traits.any_progress

    @property
    def max_result_bytes(self) -> int:
        return self.owner.engine.traits.max_result_bytes

    def children(self) -> PendingChildren:
        return PendingChildren(self.read_children())

    async def read_children(self) -> Children:
        return await self.owner.engine.children(self.leased)

    @property
    def steps(self) -> StepRecord:
        if self._steps is None:
            record = self.job_record
            rules = self.owner.engine.traits.steps
            attempt = self.leased.job.attempt
            self._steps = StepRecord(rules, record.fields, record.now_ms, attempt=attempt)
        return self._steps

    @property
    def threads(self) -> Threads:
        return self.owner.threads

    def suspend(self, outcome: Suspended | Restarted) -> Awaitable[None]:
        assert self.branches is not None  # what suspends is declared
        return self.branches.wait(outcome)

    def suspend_with(self, outcome: Suspended | Restarted) -> None:
        """Suspend the job so when the code has ended; after several calls, for all of them."""
        self.steps.suspended = True
        self.suspension = joined([self.suspension, outcome] if self.suspension else [outcome])

    def begin_branches(self) -> None:
        """The handler, a coroutine that may suspend its job, begins in this task."""
        loop = self.owner.loop
        note_tasks(loop)
        self.tasks = set()
        tasks_of_run.set(self.tasks)
        self.branches = Branches(loop, self._has_no_tasks, self._suspend_now)

    def _has_no_tasks(self) -> bool:
        return not self.tasks

    def _suspend_now(self, outcome: Suspended | Restarted) -> None:
        if self.phase is not _ENDED and self.task is not None:
            self.suspend_with(outcome)
            self.task.cancel()

    async def record(self, field: str, value: str, kind: str = RECORD_KIND) -> None:
        waiter, is_new = self._waiter(field)
        if is_new:
            try:
                await self.add(Report(kind, value, field))
            except BaseException:  # not sent: nothing else would end the wait of another branch
                self._forget(field)
                raise
        if kind == RECORD_KIND:  # only this branch waits for its step
            await waiter
        else:  # two may submit the same child: the end of one is not that of the other
            await asyncio.shield(waiter)

    async def record_from_thread(self, field: str, value: str, kind: str) -> None:
        """Called on the loop for a thread."""
        waiter, is_new = self._waiter(field)
        if is_new:
            self._own_buffer().push(Report(kind, value, field))
        await asyncio.shield(waiter)

    def _waiter(self, field: str) -> "tuple[asyncio.Future[None], bool]":
        """What ends when the field is written, and whether it has yet to be sent."""
        if self.is_over:
            raise asyncio.CancelledError("this job is over")
        if self.recording is None:
            self.recording = {}
        if (waiter := self.recording.get(field)) is not None:
            return waiter, False
        waiter = self.recording[field] = self.owner.loop.create_future()
        return waiter, True

    def _forget(self, field: str) -> None:
        if self.recording and (waiter := self.recording.pop(field, None)) is not None:
            waiter.cancel()

    def recorded(self, field: str, answer: ReportAnswer) -> None:
        """The server has answered to the record of this field."""
        waiter = self.recording.pop(field, None) if self.recording else None
        if answer is ReportAnswer.WRITTEN:
            self.leased = self.leased._replace(records=self.leased.records + 1)
            if field.startswith(RESULT_FIELD):
                self.progress_attempt = self.leased.job.attempt
        if waiter is None or waiter.done():
            return
        if answer is ReportAnswer.WRITTEN:
            waiter.set_result(None)
        elif answer is ReportAnswer.LOST:
            waiter.cancel()
        elif answer is ReportAnswer.CANCEL:
            waiter.cancel()
            self.halt(StopReason.CANCEL)
        elif answer in _CHILD_FAILURES:
            waiter.set_exception(Fail(*_CHILD_FAILURES[answer]))
        elif answer is ReportAnswer.DROPPED and field.startswith(CHILD_FIELD):
            # The server is full: what was paid for is kept, and the child is submitted later.
            wait = Suspended("children", field.removeprefix(CHILD_FIELD), _FULL_SERVER_S)
            if self.sink is None:
                waiter.set_exception(MustWait(wait))
            else:
                self.suspend_with(wait)
                waiter.cancel()
        else:
            waiter.set_exception(StepNotRecorded(f"the server does not accept {field!r}"))

    def _own_buffer(self) -> ReportBuffer:
        buffer = self.buffer
        if buffer is None:
            buffer = self.buffer = ReportBuffer(lambda: self.owner.send_queue.add_reports(self))
            buffer.closed = self.is_over
        return buffer

    def add(self, report: Report) -> Awaitable[None]:
        return self._own_buffer().add(report)

    def push(self, report: Report) -> None:
        self._own_buffer().push(report)

    def add_from_thread(self, report: Report) -> None:
        """Called on the loop for a thread: a report that comes too late is dropped."""
        if not self.is_over:
            self._own_buffer().push(report)

    def reports_acknowledged(self, count: int) -> None:
        """`count` of its reports were answered."""
        if self.buffer is not None:
            self.buffer.acknowledge(count)
        if self.sink is not None:
            self.sink.acknowledge(count)

    def restart_timeout(self) -> None:
        """Count the timeout from now; for coroutines, and on the loop for threads and processes."""
        if self.stop is None and not self.is_over and self.timeout_from_s is not None:
            self.timeout_from_s = time.monotonic()
            if self._timer is not None:
                self._timer.cancel()
                self.limit(self.handler.timeout_of(self.leased))

    @property
    def lease_ran_out(self) -> bool:
        """Whether another worker may have reclaimed the job, by our own clock."""
        return time.monotonic() - self.leased_s >= self.owner.lease_s

    # ── ending ───────────────────────────────────────────────────────────────────────────────────

    def skip(self, outcome: Outcome) -> None:
        """Settle it so without running it."""
        self.phase = Phase.ENDED
        self.is_over = True
        self.owner.decided(self, outcome)
        self.owner.code_ended(self)

    def limit(self, timeout_s: float | None) -> None:
        """Stop it after that long, and at the deadline of its job."""
        reason, left_s = StopReason.TIMEOUT, self.leased.policy.deadline_left_s
        if left_s is not None and self.began_s is not None:
            left_s = max(0.0, left_s - (time.monotonic() - self.began_s))
            if timeout_s is None or left_s < timeout_s:
                reason, timeout_s = StopReason.DEADLINE, left_s
        if timeout_s is not None:
            self._timer = self.owner.loop.call_later(timeout_s, self.halt, reason)

    def code_ended(self, ending: Ending, partial: str = "") -> None:
        """The handler's code has ended; `partial` is the partial result of a child process."""
        if self.replay is not None:
            self.replay.end()
        self.phase = _ENDED
        if self._timer is not None:
            self._timer.cancel()
        if not self.is_over:
            self._decide(ending, partial)
        for task in list(self.tasks or ()):
            task.cancel()
        # Break the reference cycle, or every job leaves work for the garbage collector.
        self.context = None
        self.owner.code_ended(self)

    def lease_lost(self) -> None:
        """Another worker has the job."""
        self.halt(StopReason.LOST)

    def halt(self, stop: StopReason) -> None:
        """Stop it. Its job is settled when the code has ended, and soon in any case: at once if
        nothing can interrupt the code, after a grace time if the code does not stop."""
        if self.is_over or (self.stop is not None and stop is not StopReason.LOST):
            return
        self.stop = stop
        if self.phase is Phase.LEASED:
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
                grace_s = min(grace_s, _RELEASE_GRACE_S)
            self._timer = self.owner.loop.call_later(grace_s, self.abandon)

    def abandon(self) -> None:
        """Settle the job without waiting for its code any longer."""
        if self.is_over:
            return
        if self.kill is not None:
            self.kill()
        elif self.stop is not StopReason.LOST:
            _log.warning(
                "job did not stop asked=%(asked)s task=%(task)s; its slot stays in use until it "
                "ends",
                {"asked": self.stop and self.stop.value, "task": self.handler.task},
                extra=fields(self),
            )
        self._decide(_NOTHING)

    def _decide(self, ending: Ending, partial: str = "") -> None:
        self.is_over = True
        if self.suspension is not None:
            ending = self._suspended(ending)
        elif self.stop is None and type(ending) is Returned:  # most jobs: nothing to decide
            self.owner.decided(self, outcomes.done(ending))
            return
        if self.context is not None:
            partial = outcomes.partial_json(self.context.partial)
        policy = self.handler.attempt_policy(self.leased, self.progress_attempt)
        stop = self.stop
        if type(ending) is SuspendRequested and stop in _OVERRULED:
            stop = None
        outcome = outcomes.outcome(ending, stop, policy, partial, random_fraction())
        if self.stop is StopReason.LOST and self.buffer is not None:
            self.buffer.close()
            for waiter in (self.recording or {}).values():
                waiter.cancel()
        self.owner.decided(self, outcome)

    def _suspended(self, ending: Ending) -> Ending:
        """A handler that goes on after it was suspended is suspended all the same."""
        assert self.suspension is not None
        if type(ending) is Returned and self.stop is None:
            _log.warning(
                "handler returned though its job was suspended task=%(task)s; result ignored",
                {"task": self.handler.task},
                extra=fields(self),
            )
        return outcomes.suspended(self.suspension)
