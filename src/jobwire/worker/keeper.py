"""Keeps the leases of everything a queue holds, from a thread of its own.

A handler that blocks the event loop, even for minutes, so keeps its job. One that holds the
interpreter lock past the lease does not: then nobody in this process can act, the job goes to
another worker, and whatever this one still writes is refused.

The thread reads the loop's table of runs and changes nothing; what it learns it hands to the loop.
"""

import asyncio
import contextlib
import logging
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from typing import Final

from jobwire.job.engine import Keeper
from jobwire.job.errors import GroundError
from jobwire.job.messages import Held, KeepAnswer
from jobwire.worker.loop import Source
from jobwire.worker.watchdog import Watchdog

_log: Final = logging.getLogger("jobwire.worker")
_AFTER_TROUBLE_S: Final = 0.5
_BLOCKED_S: Final = 5.0


class LeaseThread:
    """One thread for one queue. Started before the first job, ended after the last settle."""

    def __init__(self, source: Source, watchdog: Watchdog) -> None:
        self._source = source
        self._watchdog = watchdog
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._keeper: Keeper = source.engine.keeper()
        self.lease_s = self._keeper.lease_s
        self._stop = threading.Event()
        self._complained = False
        self._thread = threading.Thread(
            target=self._keep_all, name=f"jobwire-keeper-{source.engine.name}", daemon=True
        )
        self._thread.start()

    async def close(self) -> None:
        """End the thread; leases run out from here on."""
        self._stop.set()
        await asyncio.to_thread(self._thread.join)

    def _keep_all(self) -> None:
        pause_s = self._keeper.period_s
        try:
            while not self._stop.wait(pause_s):
                began_s = time.monotonic()
                answered = self._keep_once()
                self._look_at_the_loop()
                whole_s = self._keeper.period_s if answered else _AFTER_TROUBLE_S
                pause_s = max(0.0, min(whole_s, self._keeper.period_s) - time.monotonic() + began_s)
        finally:
            self._keeper.close()

    def _keep_once(self) -> bool:
        # `list` of a dict is one step under the interpreter lock: the loop cannot change it in
        # between.
        held = [run.held for run in list(self._source.runs.values())]
        if not held:
            return True
        try:
            answers = self._keeper.keep(held)
        except GroundError as error:
            name = self._source.engine.name
            _log.warning("%s: leases were not kept: %s (%s)", name, error, error.detail)
            return False
        except Exception:  # noqa: BLE001 - a keeper never gives up
            _log.exception("%s: leases were not kept", self._source.engine.name)
            return False
        self._tell(held, answers)
        return True

    def _tell(self, held: list[Held], answers: Sequence[KeepAnswer]) -> None:
        news = [
            (one.token, answer)
            for one, answer in zip(held, answers, strict=True)
            if answer is not KeepAnswer.KEPT
        ]
        if news:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants to know
                self._loop.call_soon_threadsafe(self._source.kept, news)

    def _look_at_the_loop(self) -> None:
        """Say which code blocks the event loop: no other job moves meanwhile."""
        blocked_s = time.monotonic() - self._watchdog.beat_s
        if blocked_s < _BLOCKED_S:
            self._complained = False
        elif not self._complained:
            self._complained = True
            frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented, if under this name
            where = "".join(traceback.format_stack(frame)[-3:]) if frame else ""
            _log.warning(
                "the event loop is blocked since %.0f s; write such a handler as `def`, or with "
                "process=True. It is at\n%s",
                *(blocked_s, where),
            )
