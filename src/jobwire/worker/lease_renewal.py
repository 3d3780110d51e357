"""Renews the leases of all jobs of a worker, from one thread for all its queues.

So a handler that blocks the event loop, even for minutes, keeps its job. A handler that holds the
GIL longer than the lease does not: no thread of this process can act then, another worker reclaims
the job, and later writes of this worker are refused.

A blocked loop must not hold the worker's other jobs without end (J-56): the renewal of a job ends
some time after its own timeout. A handler that blocks the loop past its job's timeout, or for too
long, ends the process. This thread then settles the job as `timeout`, so that it does not block the
next worker, and releases the others.

The thread reads the queue loops' tables of runs and passes lost leases and cancels to them. Engines
that share a renewer are renewed in one call.
"""

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Literal, TypeVar

from jobwire import user_frames
from jobwire.job import retry
from jobwire.job.engine import LeaseRenewer
from jobwire.job.errors import BackendUnavailable
from jobwire.job.ids import random_fraction
from jobwire.job.messages import LeasedJob, Outcome, Released, RenewAnswer, Token
from jobwire.worker import outcomes
from jobwire.worker.outcomes import Crashed, StopReason
from jobwire.worker.queue_loop import QueueLoop
from jobwire.worker.run import Phase, Run
from jobwire.worker.watchdog import Watchdog

T = TypeVar("T")

_log: Final = logging.getLogger("jobwire.worker")
_FAILED_BACKOFF: Final = retry.fixed(0.5, jitter=0.5)
_BLOCKED_S: Final = 5.0
_SHORTEST_BLOCK_S: Final = 2.0
"""More than the watchdog's period."""
_FRAMES: Final = 12
_PAST_TIMEOUT_S: Final = 10.0
"""How long after its timeout a job that has not ended is still renewed."""
_LOG_TIMEOUT_S: Final = 2.0
_EXIT_BLOCKED: Final = 70
"""EX_SOFTWARE of sysexits.h."""


class _Renewal:
    """One renewer, and the queue loops whose leases it renews."""

    def __init__(self, renewer: LeaseRenewer) -> None:
        self.renewer = renewer
        self.queue_loops: list[QueueLoop] = []
        self.due_s = time.monotonic() + renewer.period_s

    @property
    def name(self) -> str:
        first, *rest = (each.engine.name for each in self.queue_loops)
        return f"{first} and {len(rest)} more" if rest else first

    def runs(self, now_s: float) -> list[Run]:
        # `list` of a dict is one step under the GIL: the loop cannot change it meanwhile.
        return [
            run
            for queue_loop in self.queue_loops
            for run in list(queue_loop.runs.values())
            if _is_renewable(run, now_s)
        ]

    def attempt(self, failure: str, call: Callable[[], T]) -> T | None:
        """The result of a call of the renewer; None, and a log line, if it failed."""
        try:
            return call()
        except BackendUnavailable as error:
            facts = {"engine": self.name, "error": error, "detail": error.detail}
            line = f"{failure} engine=%(engine)s error=%(error)s detail=%(detail)s; will retry"
            _log.warning(line, facts)
        except Exception:  # noqa: BLE001 - renewal never gives up
            _log.exception(f"{failure} engine=%(engine)s; will retry", {"engine": self.name})
        return None


class LeaseRenewalThread:
    """One thread per worker. Started before the first job, ended after the last settle."""

    def __init__(
        self, queue_loops: Sequence[QueueLoop], watchdog: Watchdog, max_block_s: float
    ) -> None:
        self._watchdog = watchdog
        self._max_block_s = max_block_s
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._renewals: list[_Renewal] = []
        for queue_loop in queue_loops:
            self._add(queue_loop)
        self._heartbeat_s = min(each.renewer.heartbeat_s for each in self._renewals)
        self._stands_s = max(
            _SHORTEST_BLOCK_S, min(each.renewer.lease_s for each in self._renewals) / 6
        )
        """A loop that is late for that long is blocked."""
        self._stop = threading.Event()
        self._warned = False
        self._awake_s = time.monotonic()
        """Since when this thread has run without a pause: while the whole process was suspended
        (SIGSTOP, a sleeping machine), the loop was not blocked."""
        self._thread = threading.Thread(target=self._run, name="jobwire-renew", daemon=True)
        self._thread.start()

    def _add(self, queue_loop: QueueLoop) -> None:
        renewer = queue_loop.engine.lease_renewer()
        queue_loop.lease_s = renewer.lease_s
        for renewal in self._renewals:
            if renewal.renewer is renewer:
                break
        else:
            self._renewals.append(renewal := _Renewal(renewer))
        renewal.queue_loops.append(queue_loop)

    async def close(self) -> None:
        """End the thread; leases are no longer renewed."""
        self._stop.set()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            while not self._wait(self._pause_s()):
                self._call_servers()
                self._check_loop()
        finally:
            for renewal in self._renewals:
                renewal.renewer.close()

    def _call_servers(self) -> None:
        """Renew what is due and send late heartbeats, all engines side by side: a call waits for a
        server that does not answer, and the leases at other servers must not expire meanwhile."""
        now_s = time.monotonic()
        calls: list[threading.Thread] = []
        for renewal in self._renewals:
            renews = False
            if now_s >= renewal.due_s:
                renewal.due_s = now_s + renewal.renewer.period_s
                renews = bool(renewal.runs(now_s))
            if renews or renewal.renewer.heartbeat_is_late:
                call = threading.Thread(target=self._call, args=(renewal, renews), daemon=True)
                calls.append(call)
        for call in calls[1:]:
            call.start()
        for call in calls[:1]:
            call.run()
        for call in calls[1:]:
            call.join()

    def _call(self, renewal: _Renewal, renews: bool) -> None:
        # One that has not answered is not waited for twice: all others wait for the end of this.
        if not renews or self._renew(renewal):
            renewal.attempt("heartbeat was not sent", renewal.renewer.heartbeat)

    def _renew(self, renewal: _Renewal) -> bool:
        asked_s = time.monotonic()
        renewed = self._renew_all(renewal)
        if not renewed:
            backoff_s = retry.delay_s(_FAILED_BACKOFF, 1, random_fraction())
            renewal.due_s = min(renewal.due_s, asked_s + backoff_s)
        return renewed

    def _pause_s(self) -> float:
        due_s = min(renewal.due_s for renewal in self._renewals)
        return min(due_s - time.monotonic(), self._heartbeat_s)

    def _wait(self, pause_s: float) -> bool:
        """Wait for the pause; True if the thread is to stop."""
        asked_s = time.monotonic()
        stopped = self._stop.wait(max(0.0, pause_s))
        now_s = time.monotonic()
        if now_s - asked_s > pause_s + _BLOCKED_S:
            self._awake_s = now_s
        return stopped

    def _renew_all(self, renewal: _Renewal) -> bool:
        asked_s = time.monotonic()
        runs = renewal.runs(asked_s)
        if not runs:
            return True
        leased = [run.leased for run in runs]
        answers = renewal.attempt("leases were not renewed", lambda: renewal.renewer.renew(leased))
        if answers is None:
            return False
        self._pass_answers(runs, answers, asked_s)
        return True

    def _pass_answers(
        self, runs: list[Run], answers: Sequence[RenewAnswer], asked_s: float
    ) -> None:
        not_renewed: dict[QueueLoop, list[tuple[Token, RenewAnswer]]] = {}
        for run, answer in zip(runs, answers, strict=True):
            if answer is RenewAnswer.RENEWED:
                run.leased_s = asked_s
            elif answer is not RenewAnswer.REFUSED:
                not_renewed.setdefault(run.owner, []).append((run.leased.token, answer))
        for queue_loop, tokens in not_renewed.items():
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(queue_loop.lease_answers, tokens)

    def _check_loop(self) -> None:
        """Log which code blocks the event loop: no other job proceeds meanwhile. End the process if
        it stays blocked: nothing else ends such a handler, and other workers must get its jobs."""
        now_s = time.monotonic()
        blocked_s = now_s - max(self._watchdog.beat_s, self._awake_s)
        if blocked_s < self._stands_s:
            self._warned = False
            return
        blocking = self._blocking_runs()
        overdue = [run for run in blocking if _is_overdue(run, now_s - self._stands_s)]
        if overdue:
            self._settle_and_exit("past the timeout of its job", blocked_s, overdue, ())
        elif blocked_s >= self._max_block_s:
            limit = f"for worker.max_block ({self._max_block_s:.0f} s)"
            self._settle_and_exit(limit, blocked_s, (), blocking)
        elif blocked_s >= _BLOCKED_S and not self._warned:
            self._warned = True
            _log.warning(
                "event loop blocked for_s=%(for_s)s; write the handler as `def` or with "
                "process=True",
                {"for_s": round(blocked_s)},
                extra={"traceback": self._stack()},
            )

    def _blocking_runs(self) -> list[Run]:
        """The run whose coroutine the loop is in. Code in a task that a handler has started belongs
        to no run that is known here: then all coroutines may be it."""
        task = asyncio.current_task(self._loop)
        running = [
            run
            for renewal in self._renewals
            for queue_loop in renewal.queue_loops
            for run in list(queue_loop.runs.values())
            if run.task is not None and run.phase is Phase.RUNNING and not run.is_over
        ]
        return [run for run in running if run.task is task] or running

    def _settle_and_exit(
        self, why: str, blocked_s: float, overdue: Sequence[Run], left: Sequence[Run]
    ) -> None:
        """Settle `overdue` as timed out, release all others but those `left` to the expiry of their
        leases, and end the process. If the server does not answer, the next check tries again."""
        stack = self._stack()
        answered = [
            renewal.attempt("jobs of a blocked loop were not settled", settle)
            for renewal in self._renewals
            for settle in [partial(_settle, renewal, overdue, left, stack)]
        ]
        if not all(answered) and blocked_s < self._max_block_s:
            return
        line = (
            "event loop blocked for_s=%(for_s)s limit=%(limit)s timed_out=%(timed_out)s; "
            "the process ends, and its jobs go to other workers"
        )
        jobs = ",".join(run.leased.job.id for run in overdue) or "none"
        facts = {"for_s": round(blocked_s), "limit": why, "timed_out": jobs}
        _with_timeout(lambda: _log.critical(line, facts, extra={"traceback": stack}))
        os._exit(_EXIT_BLOCKED)

    def _stack(self) -> str:
        """Where the loop is, from the handler's first frame on."""
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented
        frames = traceback.extract_stack(frame) if frame else traceback.StackSummary()
        first = 0
        for at, each in enumerate(frames):
            if user_frames.is_jobwire_file(each.filename):
                first = at + 1
        return "".join(traceback.StackSummary.from_list(frames[first:][-_FRAMES:]).format())


def _settle(
    renewal: _Renewal, overdue: Sequence[Run], left: Sequence[Run], stack: str
) -> Literal[True]:
    batch: list[tuple[LeasedJob, Outcome]] = []
    for queue_loop in renewal.queue_loops:
        decided = dict(queue_loop.send_queue.unsent_outcomes())
        for run in list(queue_loop.runs.values()):
            if run.is_over:
                # Of one without an outcome here, the outcome was sent and its answer is awaited.
                outcome = decided.get(run)
            else:
                outcome = _timeout(run, stack) if run in overdue else Released()
            if outcome is not None and run not in left:
                batch.append((run.leased, outcome))
    renewal.renewer.settle(batch)
    return True


def _timeout(run: Run, stack: str) -> Outcome | None:
    partial_json = ""
    if run.context is not None:
        partial_json = outcomes.partial_json(run.context.partial)
    policy = run.handler.attempt_policy(run.leased, run.progress_attempt)
    ending = Crashed("", f"The handler blocked the event loop at\n{stack}")
    return outcomes.outcome(ending, StopReason.TIMEOUT, policy, partial_json, random_fraction())


def _is_overdue(run: Run, now_s: float) -> bool:
    timeout_s = run.handler.timeout_of(run.leased)
    began_s = run.timeout_from_s
    return timeout_s is not None and began_s is not None and now_s >= began_s + timeout_s


def _is_renewable(run: Run, now_s: float) -> bool:
    """J-56: a job that is long past its timeout is not renewed; a blocked loop holds it."""
    began_s = run.timeout_from_s
    if began_s is None or run.is_over:
        return True  # not begun, or its outcome is to be written
    timeout_s = run.handler.timeout_of(run.leased)
    return timeout_s is None or now_s < began_s + timeout_s + _PAST_TIMEOUT_S


def _with_timeout(act: Callable[[], None]) -> None:
    """The blocked loop may hold a lock of `logging` that is never released."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(_LOG_TIMEOUT_S)
