"""Submits the jobs of an App's cron entries, each due time once for the whole fleet (J-52).

Every worker runs one; there is no leader. The server keeps the time and the last handled due time,
so neither the number of schedulers, nor a wrong clock, nor a dead worker matters. Of the due times
that the whole fleet missed, the last one is submitted.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from jobwire.job import retry
from jobwire.job.engine import CronStore
from jobwire.job.errors import BackendUnavailable
from jobwire.job.ids import random_fraction
from jobwire.job.messages import AlreadyRun, CronState, Full, JobRequest, NotDue, Submitted

_log: Final = logging.getLogger("jobwire.worker.cron")
_MAX_SLEEP_S: Final = 60.0
"""The server's clock is read again after that long."""
_BACKOFF: Final = retry.fixed(1.5, jitter=2 / 3)


class Times(Protocol):
    """Due times; implemented by `cron.Cron`."""

    def next_ms(self, after_ms: int) -> int: ...
    def last_ms(self, until_ms: int) -> int: ...


@dataclass(frozen=True, slots=True)
class CronEntry:
    """A task and its due times."""

    name: str
    times: Times
    text: str
    """The schedule as text: with another text, the entry of this name has changed."""
    task: str
    payload_json: str
    queue: str = ""
    """The named queue of its handler; empty for the App's."""
    wire: str = ""
    """The wire of that queue, if the handler names one."""


def due_ms(times: Times, state: CronState) -> int | None:
    """The due time to handle now, if there is one: the last that was missed."""
    last_ms = times.last_ms(state.now_ms)
    return last_ms if last_ms > state.due_ms else None


class CronScheduler:
    """`await run()` in the background of a worker, until cancelled."""

    def __init__(self, entries: Sequence[CronEntry], store: CronStore) -> None:
        self._entries = tuple(entries)
        self._store = store

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for entry in self._entries:
                group.create_task(self._serve(entry), name=f"cron: {entry.name}")

    async def _serve(self, entry: CronEntry) -> None:
        failing = False
        while True:
            try:
                pause_s = await self._submit_if_due(entry)
                failing = False
            except BackendUnavailable as error:
                if not failing:
                    _log.warning(
                        "cron not submitted: server unavailable cron=%(cron)s error=%(error)s; "
                        "will retry",
                        {"cron": entry.name, "error": error.detail},
                    )
                failing, pause_s = True, _retry_delay_s()
            except Exception:  # noqa: BLE001 - an entry may not end the worker that has it
                _log.exception(
                    "cron failed cron=%(cron)s after_s=%(after_s)s; will retry",
                    {"cron": entry.name, "after_s": _MAX_SLEEP_S},
                )
                pause_s = _MAX_SLEEP_S
            await asyncio.sleep(pause_s)

    async def _submit_if_due(self, entry: CronEntry) -> float:
        """Submit the job if one is due; returns how long nothing is due."""
        request = JobRequest(entry.task, entry.payload_json)
        state = await self._store.enroll(entry.name, entry.text, request)
        due = due_ms(entry.times, state)
        if due is not None:
            answer = await self._store.submit_due(entry.name, entry.text, due, request)
            match answer:
                case Submitted(job_id, _):
                    _log.info(
                        "cron submitted cron=%(cron)s job_id=%(job_id)s due_ms=%(due_ms)s",
                        {"cron": entry.name, "job_id": job_id, "due_ms": due},
                    )
                case Full(waiting):
                    _log.warning(
                        "cron not submitted: queue full cron=%(cron)s waiting=%(waiting)s; will "
                        "retry",
                        {"cron": entry.name, "waiting": waiting},
                    )
                    return _retry_delay_s()
                case AlreadyRun() | NotDue():
                    pass
        left_ms = entry.times.next_ms(state.now_ms) - state.now_ms
        return min(left_ms / 1000, _MAX_SLEEP_S)


def _retry_delay_s() -> float:
    return retry.delay_s(_BACKOFF, 1, random_fraction())
