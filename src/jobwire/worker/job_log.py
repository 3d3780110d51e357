"""The worker's log: one line per finished job, and one for each failed attempt.

Written where an outcome is decided. Each line names its own job, in whatever context it is written:
a timer or a thread may carry the id of another job. A worker that finishes many jobs in a second
writes the first lines of that second and then their number; failures are always written.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from jobwire.job.messages import Canceled, Done, Failed, JobError, Outcome, RenewAnswer, RetryLater

if TYPE_CHECKING:  # run.py makes the runs
    from jobwire.worker.run import Run

_log: Final = logging.getLogger("jobwire.worker")
_INFO: Final = logging.INFO
_MAX_LINES: Final = 100
"""Lines for finished jobs in one second."""
_WINDOW_S: Final = 1.0
_LOST: Final[Mapping[RenewAnswer | None, str]] = {
    RenewAnswer.LOST: "it belongs to another worker now",
    RenewAnswer.ENDED: "it has ended, or is gone from the server",
}


class JobLog:
    """The lines of one queue's jobs. Used on the event loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lines = 0
        self._left_out = 0
        self._window_open = False

    def ended(self, run: "Run", outcome: Outcome | None, ran_s: float | None) -> None:
        """An outcome is decided; None: another worker has the job. `ran_s` None: it did not
        run."""
        if type(outcome) is Done:  # most jobs
            if _log.isEnabledFor(_INFO) and ran_s is not None and self._admit():
                self._write(_INFO, "job done", run, _facts(run, ran_s))
            return
        match outcome:
            case Failed(error):
                facts = _facts(run, ran_s) | {"code": error.code, "error": error.message}
                self._write(logging.WARNING, "job failed", run, facts, error)
            case RetryLater(after_s, error):
                level = logging.WARNING if error.detail else _INFO
                facts = _facts(run, ran_s) | {"code": error.code, "error": error.message}
                facts["after_s"] = round(after_s, 1)
                self._write(level, "job attempt failed", run, facts, error, "; will retry")
            case Canceled():
                self._write(_INFO, "job canceled", run, _facts(run, ran_s))
            case None:
                why = _LOST.get(run.lost_by, "another worker has it, or it has ended")
                facts = _facts(run, ran_s) | {"reason": why}
                self._write(logging.WARNING, "job lost", run, facts)
            case _:
                pass

    @staticmethod
    def _write(
        level: int,
        event: str,
        run: "Run",
        facts: Mapping[str, object],
        error: JobError | None = None,
        then: str = "",
    ) -> None:
        line = "".join((event, *(f" {name}=%({name})s" for name in facts), then))
        _log.log(level, line, facts, extra=fields(run, error))

    def _admit(self) -> bool:
        """Whether a line for a finished job may be written in this second."""
        if not self._window_open:
            self._window_open = True
            self._loop.call_later(_WINDOW_S, self._close_window)
        if self._lines < _MAX_LINES:
            self._lines += 1
            return True
        self._left_out += 1
        return False

    def _close_window(self) -> None:
        if self._left_out:
            _log.info(
                "more jobs done jobs=%(jobs)s", {"jobs": self._left_out}, extra={"job_id": ""}
            )
        self._lines = self._left_out = 0
        self._window_open = False


def fields(run: "Run", error: JobError | None = None) -> dict[str, object]:
    """The fields of a log line about this run, with the traceback of its error."""
    found: dict[str, object] = {"job_id": run.leased.job.id}
    if error is not None and error.detail:
        found["traceback"] = error.detail
    return found


def _facts(run: "Run", ran_s: float | None) -> dict[str, object]:
    job = run.leased.job
    facts: dict[str, object] = {"task": job.task}
    if ran_s is not None:
        is_first = job.attempt <= 1 and job.deliveries <= 1 and not run.job_record.fields
        if job.created_ms and is_first:
            # The server's clock and ours may differ: never negative.
            waited_s = max(0.0, time.time() - job.created_ms / 1000 - ran_s)
            facts["waited_s"] = round(waited_s, 3)
        facts["ran_s"] = round(ran_s, 3)
    if job.attempt > 1:
        facts["attempt"] = job.attempt
    return facts
