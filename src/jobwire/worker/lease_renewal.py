"""Renews the leases of everything a queue holds, from a thread of its own.

A handler that blocks the event loop, even for minutes, so keeps its job. One that holds the
interpreter lock past the lease does not: then nobody in this process can act, the job goes to
another worker, and whatever this one still writes is refused.

A blocked loop must not hold the worker's other jobs without end (J-56): the renewal of a job ends
some time after its own timeout, and a loop that is blocked for too long ends the process.

The thread reads the loop's table of runs; what it learns it hands to the loop.
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
from typing import Final

from jobwire.job.engine import LeaseRenewer
from jobwire.job.errors import BackendUnavailable
from jobwire.job.messages import RenewAnswer
from jobwire.worker.queue_loop import QueueLoop
from jobwire.worker.run import Run
from jobwire.worker.watchdog import Watchdog

_log: Final = logging.getLogger("jobwire.worker")
_AFTER_TROUBLE_S: Final = 0.5
_BLOCKED_S: Final = 5.0
_PAST_TIMEOUT_S: Final = 10.0
"""For how long after its timeout a job that has not ended is still renewed."""
_LAST_LINE_S: Final = 2.0
_EXIT_BLOCKED: Final = 70
"""EX_SOFTWARE of sysexits.h."""


class LeaseRenewalThread:
    """One thread for one queue. Started before the first job, ended after the last settle."""

    def __init__(self, source: QueueLoop, watchdog: Watchdog, max_block_s: float) -> None:
        self._source = source
        self._watchdog = watchdog
        self._max_block_s = max_block_s
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._keeper: LeaseRenewer = source.engine.lease_renewer()
        self.lease_s = source.lease_s = self._keeper.lease_s
        self._stop = threading.Event()
        self._complained = False
        self._awake_s = time.monotonic()
        """Since when this thread has run without a break: while the whole process stood still
        (SIGSTOP, a suspended machine), the loop was not blocked."""
        self._thread = threading.Thread(
            target=self._keep_all, name=f"jobwire-keeper-{source.engine.name}", daemon=True
        )
        self._thread.start()

    async def close(self) -> None:
        """End the thread; leases run out from here on."""
        self._stop.set()
        await asyncio.to_thread(self._thread.join)

    def _keep_all(self) -> None:
        keeper = self._keeper
        renew_at_s = time.monotonic() + keeper.period_s
        try:
            while not self._wait(min(renew_at_s - time.monotonic(), keeper.heartbeat_s)):
                if (now_s := time.monotonic()) >= renew_at_s:
                    whole_s = keeper.period_s if self._keep_once() else _AFTER_TROUBLE_S
                    renew_at_s = now_s + min(whole_s, keeper.period_s)
                self._heartbeat()
                self._look_at_the_loop()
        finally:
            keeper.close()

    def _wait(self, pause_s: float) -> bool:
        """Whether to stop; returns after the pause if not."""
        asked_s = time.monotonic()
        stopped = self._stop.wait(max(0.0, pause_s))
        now_s = time.monotonic()
        if now_s - asked_s > pause_s + _BLOCKED_S:
            self._awake_s = now_s
        return stopped

    def _keep_once(self) -> bool:
        # `list` of a dict is one step under the interpreter lock: the loop cannot change it in
        # between.
        asked_s = time.monotonic()
        runs = [run for run in list(self._source.runs.values()) if _is_renewable(run, asked_s)]
        if not runs:
            return True
        try:
            answers = self._keeper.renew([run.leased for run in runs])
        except BackendUnavailable as error:
            name = self._source.engine.name
            _log.warning("%s: leases were not kept: %s (%s)", name, error, error.detail)
            return False
        except Exception:  # noqa: BLE001 - a keeper never gives up
            _log.exception("%s: leases were not kept", self._source.engine.name)
            return False
        self._tell(runs, answers, asked_s)
        return True

    def _tell(self, runs: list[Run], answers: Sequence[RenewAnswer], asked_s: float) -> None:
        for run, answer in zip(runs, answers, strict=True):
            if answer is RenewAnswer.RENEWED:
                run.leased_s = asked_s
        news = [
            (run.leased.token, answer)
            for run, answer in zip(runs, answers, strict=True)
            if answer is not RenewAnswer.RENEWED
        ]
        if news:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants to know
                self._loop.call_soon_threadsafe(self._source.lease_answers, news)

    def _heartbeat(self) -> None:
        try:
            self._keeper.heartbeat()
        except BackendUnavailable as error:
            name = self._source.engine.name
            _log.warning("%s: heartbeat was not sent: %s (%s)", name, error, error.detail)
        except Exception:  # noqa: BLE001 - a keeper never gives up
            _log.exception("%s: heartbeat was not sent", self._source.engine.name)

    def _look_at_the_loop(self) -> None:
        """Say which code blocks the event loop: no other job moves meanwhile. End the process where
        that lasts for too long: nothing else ends such a handler, and others wait for its jobs."""
        blocked_s = time.monotonic() - max(self._watchdog.beat_s, self._awake_s)
        if blocked_s >= self._max_block_s:
            line = (
                "the event loop is blocked since %.0f s (worker.max_block is %.0f s): the process "
            )
            line += "ends, and its jobs go to other workers. It is at\n%s"
            _in_time(lambda: _log.critical(line, blocked_s, self._max_block_s, self._stack()))
            os._exit(_EXIT_BLOCKED)
        if blocked_s < _BLOCKED_S:
            self._complained = False
        elif not self._complained:
            self._complained = True
            _log.warning(
                "the event loop is blocked since %.0f s; write such a handler as `def`, or with "
                "process=True. It is at\n%s",
                *(blocked_s, self._stack()),
            )

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented, if under this name
        return "".join(traceback.format_stack(frame)[-3:]) if frame else ""


def _is_renewable(run: Run, now_s: float) -> bool:
    """J-56: not a job that should have ended long ago and has not, since the loop is blocked."""
    began_s = run.timeout_from_s
    if began_s is None or run.is_over:
        return True  # it waits for its turn, or its outcome waits to be written
    timeout_s = run.handler.timeout_of(run.leased)
    return timeout_s is None or now_s < began_s + timeout_s + _PAST_TIMEOUT_S


def _in_time(act: Callable[[], None]) -> None:
    """The blocked loop may hold a lock of the logging that is never released."""
    acting = threading.Thread(target=act, daemon=True)
    acting.start()
    acting.join(_LAST_LINE_S)
