"""Submits the jobs of an App's cron entries, each due time once for the whole fleet (J-52).

Every worker runs one, beside its jobs; there is no leader. The calendar's server keeps the time
and remembers what was seen to, so it does not matter how many schedulers there are, whose clock is
wrong, or who was dead when something was due. Of what was missed by all, the last is made up for.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from jobwire.job.engine import CronStore
from jobwire.job.errors import BackendUnavailable
from jobwire.job.ids import random_fraction
from jobwire.job.messages import AlreadyRun, CronState, Full, JobRequest, NotDue, Submitted

_log: Final = logging.getLogger("jobwire.worker.cron")
_LOOK_AGAIN_S: Final = 60.0
"""How long a look at the server's clock is trusted."""
_LATER_S: Final = 1.0


class Times(Protocol):
    """When something is due; `job.cron.Cron` is one."""

    def next_ms(self, after_ms: int) -> int: ...
    def last_ms(self, until_ms: int) -> int: ...


@dataclass(frozen=True, slots=True)
class CronEntry:
    """A task and when it is due."""

    name: str
    times: Times
    text: str
    """The times in words: with others, it is another entry of the same name."""
    task: str
    payload_json: str


def due_ms(times: Times, seen: CronState) -> int | None:
    """The due time that is to be seen to now, if there is one: the last that was missed."""
    last_ms = times.last_ms(seen.now_ms)
    return last_ms if last_ms > seen.due_ms else None


class Scheduler:
    """`await run()` beside the worker, until cancelled."""

    def __init__(self, entries: Sequence[CronEntry], calendar: CronStore) -> None:
        self._entries = tuple(entries)
        self._calendar = calendar

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for entry in self._entries:
                group.create_task(self._keep(entry), name=f"cron: {entry.name}")

    async def _keep(self, entry: CronEntry) -> None:
        failing = False
        while True:
            try:
                pause_s = await self._look(entry)
                failing = False
            except BackendUnavailable as error:
                if not failing:
                    _log.warning("cron %s waits for the server: %s", entry.name, error.detail)
                failing, pause_s = True, _LATER_S * (0.5 + random_fraction())
            except Exception:  # noqa: BLE001 - an entry may not end the worker that has it
                _log.exception("cron %s failed; it is tried again", entry.name)
                pause_s = _LOOK_AGAIN_S
            await asyncio.sleep(pause_s)

    async def _look(self, entry: CronEntry) -> float:
        """See to what is due; answers how long there is nothing to do."""
        seen = await self._calendar.enroll(entry.name, entry.text)
        due = due_ms(entry.times, seen)
        if due is not None:
            order = JobRequest(entry.task, entry.payload_json)
            answer = await self._calendar.submit_due(entry.name, entry.text, due, order)
            match answer:
                case Submitted(job_id, _):
                    _log.info("cron %s: job %s", entry.name, job_id, extra={"due_ms": due})
                case Full(waiting):
                    _log.warning("cron %s waits: the queue holds %d jobs", entry.name, waiting)
                    return _LATER_S * (0.5 + random_fraction())
                case AlreadyRun() | NotDue():
                    pass
        left_ms = entry.times.next_ms(seen.now_ms) - seen.now_ms
        return min(left_ms / 1000, _LOOK_AGAIN_S)
