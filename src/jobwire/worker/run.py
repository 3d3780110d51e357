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

from jobwire.job.clock import chance
from jobwire.job.messages import Done, Failed, GivenBack, Held, Outcome, Report, TryAgain
from jobwire.worker import endings
from jobwire.worker.app import Handler
from jobwire.worker.context import Context
from jobwire.worker.endings import Ending, Returned, Stop
from jobwire.worker.tally import Account
from jobwire.worker.voice import ThreadVoice, Voice

_log: Final = logging.getLogger("jobwire.worker")
_NOTHING: Final = Returned("null")
_LAST_GRACE_S: Final = 1.0
"""For a handler whose worker ends: others wait for its job."""


class Desk(Protocol):
    """What a run needs of the loop it belongs to."""

    loop: asyncio.AbstractEventLoop
    grace_s: float
    lease_s: float

    def speaks(self, run: "Run") -> None:
        """The run has unsent reports."""
        ...

    def over(self, run: "Run", outcome: Outcome | None) -> None:
        """Settle it so; None: forget it, it is another's."""
        ...

    def ended(self, run: "Run") -> None:
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
    stop: Stop | None = None
    is_over: bool = False
    context: Context[Any] | None = None
    interrupt: Callable[[], object] | None = None
    """Tells the code to stop; None where nothing can."""
    kill: Callable[[], object] | None = None
    """Ends the code for good; None where nothing can."""
    voice: Voice | None = None
    mouth: ThreadVoice | None = None
    refusals: int = 0
    """How often the server would not write its outcome."""
    complained: bool = False
    """The log knows that reports of it were dropped."""
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, held: Held, handler: Handler, desk: Desk, account: Account) -> None:
        self.held = held
        self.handler = handler
        self.desk = desk
        self.account = account

    # ── what the handler sees ────────────────────────────────────────────────────────────────────

    @property
    def stopped(self) -> bool:
        return self.stop is not None

    def say(self, report: Report) -> Awaitable[None]:
        """Take a report of a coroutine, or of a thread's mouth."""
        voice = self.voice
        if voice is None:
            voice = self.voice = Voice(lambda: self.desk.speaks(self))
            voice.silent = self.is_over
        return voice.say(report)

    def say_from_thread(self, report: Report) -> None:
        """The same, called on the loop for a thread: what comes too late is dropped."""
        if not self.is_over:
            self.say(report)

    def restart_timeout(self) -> None:
        """Count the timeout anew; for coroutines, and on the loop for threads and processes."""
        if self.stop is None and not self.is_over and self.timeout_from_s is not None:
            self.timeout_from_s = time.monotonic()
            if self._timer is not None:
                self._timer.cancel()
                self.limit(self.handler.timeout_of(self.held))

    @property
    def lease_ran_out(self) -> bool:
        """Whether another worker may have taken the job over, as far as our own clock tells."""
        return time.monotonic() - self.leased_s >= self.desk.lease_s

    def heard(self, count: int) -> None:
        """`count` of its reports were answered."""
        if self.voice is not None:
            self.voice.answered(count)
        if self.mouth is not None:
            self.mouth.answered(count)

    def skip(self, outcome: Outcome) -> None:
        """It is not to run at all: settle it so."""
        self.phase = Phase.ENDED
        self.is_over = True
        self.desk.over(self, outcome)
        self.desk.ended(self)

    # ── ending ───────────────────────────────────────────────────────────────────────────────────

    def limit(self, timeout_s: float | None) -> None:
        """Stop it after so long."""
        if timeout_s is not None:
            self._timer = self.desk.loop.call_later(timeout_s, self.halt, Stop.TIMEOUT)

    def code_ended(self, ending: Ending, partial: str = "") -> None:
        """The handler's code has ended, however it did; `partial` is what a child process left."""
        self.phase = Phase.ENDED
        if self._timer is not None:
            self._timer.cancel()
        if not self.is_over:
            self._decide(ending, partial)
        # It knows us, and we it: let go, or the garbage collector has a knot to untie each job.
        self.context = None
        self.desk.ended(self)

    def halt(self, stop: Stop) -> None:
        """Stop it. Its job is settled when the code has ended, but soon in any case: at once where
        nothing can interrupt the code, after a time of grace where it does not listen."""
        if self.is_over or (self.stop is not None and stop is not Stop.LOST):
            return
        self.stop = stop
        if self.phase is Phase.PARKED:
            self.code_ended(_NOTHING)
            return
        if self._timer is not None:
            self._timer.cancel()
        if self.mouth is not None:
            self.mouth.stop()
        if self.interrupt is not None:
            self.interrupt()
        if self.interrupt is None or stop is Stop.LOST:
            self.abandon()
        else:
            grace_s = self.desk.grace_s
            if stop is Stop.RELEASE:
                grace_s = min(grace_s, _LAST_GRACE_S)
            self._timer = self.desk.loop.call_later(grace_s, self.abandon)

    def abandon(self) -> None:
        """Settle the job without waiting for its code any longer."""
        if self.is_over:
            return
        if self.kill is not None:
            self.kill()
        elif self.stop is not Stop.LOST:
            _log.warning(
                "job %s (%s) goes on though it was told to stop (%s); its slot stays taken",
                *(self.held.job.id, self.handler.task, self.stop and self.stop.value),
            )
        self._decide(_NOTHING)

    def _decide(self, ending: Ending, partial: str = "") -> None:
        self.is_over = True
        if self.stop is None and type(ending) is Returned:  # most jobs: nothing to decide
            self.desk.over(self, endings.done(ending))
            return
        if self.context is not None:
            partial = endings.partial_json(self.context.partial)
        terms = self.handler.terms(self.held)
        outcome = endings.outcome(ending, self.stop, terms, partial, chance())
        if self.stop is Stop.LOST and self.voice is not None:
            self.voice.hush()
        self._tell(outcome)
        self.desk.over(self, outcome)

    def _tell(self, outcome: Outcome | None) -> None:
        """Failures go to the log with everything that the caller is not shown."""
        name, task = self.held.job.id, self.handler.task
        match outcome:
            case None:
                _log.warning("job %s (%s) belongs to another worker now", name, task)
            case TryAgain(after_s, error) if error.detail:
                _log.warning("job %s (%s) again in %.1f s\n%s", name, task, after_s, error.detail)
            case TryAgain(after_s, error):
                _log.info("job %s (%s) again in %.1f s: %s", name, task, after_s, error.message)
            case Failed(error):
                _log.warning(
                    "job %s (%s) failed: %s: %s%s",
                    *(name, task, error.code, error.message),
                    f"\n{error.detail}" if error.detail else "",
                )
            case Done() | GivenBack() | _:
                pass
