"""The runner of duties: everybody's rhythm kept, nobody's failure spread."""

from __future__ import annotations

import asyncio
import logging

import pytest

from jobwire.job.engine import MaintenanceResult, MaintenanceTask
from jobwire.job.errors import BackendUnavailable
from jobwire.maintenance import Maintenance
from tests.support import wait_until


class Chore:
    """A duty that answers what it is told to, then that there was nothing to do."""

    def __init__(self, name: str, *answers: MaintenanceResult | Exception | None) -> None:
        self.answers = list(answers)
        self.runs = 0
        self.duty = MaintenanceTask(name, 0.001, self.run)

    async def run(self) -> MaintenanceResult | None:
        self.runs += 1
        answer = self.answers.pop(0) if self.answers else MaintenanceResult(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def run_until(duties: Maintenance, *chores: Chore, runs: int = 5) -> None:
    task = asyncio.ensure_future(duties.run())
    await wait_until(lambda: all(chore.runs >= runs for chore in chores), "the duties to run")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_was_put_right_is_counted() -> None:
    sweep = Chore("sweep", MaintenanceResult(3), None, MaintenanceResult(4))
    other = Chore("other", MaintenanceResult(1, more=True), MaintenanceResult(2))
    duties = Maintenance([sweep.duty, other.duty])
    await run_until(duties, sweep, other)
    assert duties.done == {"sweep": 7, "other": 3}


async def test_a_server_that_is_away_costs_one_line(caplog: pytest.LogCaptureFixture) -> None:
    away = BackendUnavailable("the job server does not answer", detail="connection refused")
    sweep = Chore("sweep", away, away, away, MaintenanceResult(1), away)
    duties = Maintenance([sweep.duty])
    with caplog.at_level(logging.WARNING, "jobwire.maintenance"):
        await run_until(duties, sweep)
    assert caplog.messages == ["duty sweep waits for the server: connection refused"] * 2
    assert duties.done["sweep"] == 1


async def test_a_duty_that_breaks_is_tried_again_and_harms_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken, sound = Chore("broken", ValueError("a bug"), MaintenanceResult(1)), Chore("sound")
    duties = Maintenance([broken.duty, sound.duty])
    with caplog.at_level(logging.ERROR, "jobwire.maintenance"):
        await run_until(duties, broken, sound)
    assert duties.done["broken"] == 1
    assert "a bug" in caplog.text, "with its traceback"


async def test_processes_that_start_together_come_apart() -> None:
    """The first turn comes after a random part of the period, later ones after about one."""
    waits: list[float] = []

    async def asleep(delay_s: float) -> None:
        waits.append(delay_s)
        if len(waits) == 3:
            raise asyncio.CancelledError

    chances = iter((0.3, 0.0, 1.0))
    chore = Chore("sweep")
    duties = Maintenance([MaintenanceTask("sweep", 8.0, chore.run)], chance=lambda: next(chances))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "sleep", asleep)
        await asyncio.gather(duties.run(), return_exceptions=True)
    assert waits == [8.0 * 0.3, 6.0, 10.0]
