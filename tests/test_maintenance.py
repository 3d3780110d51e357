"""The maintenance runner: each task keeps its period, and a failure affects no other."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise

import pytest

from jobwire.job.engine import MaintenanceResult, MaintenanceTask
from jobwire.job.errors import BackendUnavailable
from jobwire.maintenance import Maintenance
from tests.support import clause, wait_until


class ScriptedTask:
    """A task with scripted results, and no work after them."""

    def __init__(self, name: str, *answers: MaintenanceResult | Exception | None) -> None:
        self.answers = list(answers)
        self.runs = 0
        self.task = MaintenanceTask(name, 0.001, self.run)

    async def run(self) -> MaintenanceResult | None:
        self.runs += 1
        answer = self.answers.pop(0) if self.answers else MaintenanceResult(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def run_until(maintenance: Maintenance, *scripted: ScriptedTask, runs: int = 5) -> None:
    task = asyncio.ensure_future(maintenance.run())
    await wait_until(lambda: all(each.runs >= runs for each in scripted), "the tasks to run")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_handled_items_are_counted() -> None:
    sweep = ScriptedTask("sweep", MaintenanceResult(3), None, MaintenanceResult(4))
    other = ScriptedTask("other", MaintenanceResult(1, more=True), MaintenanceResult(2))
    maintenance = Maintenance([sweep.task, other.task])
    await run_until(maintenance, sweep, other)
    assert maintenance.done == {"sweep": 7, "other": 3}


@clause("L-11")
async def test_l11_a_task_runs_when_it_has_something_to_do() -> None:
    """At the time that it has answered, or when this process has made work for it; else once in a
    period, which is too long here."""
    soon = asyncio.Event()
    runs: list[float | None] = []

    async def run() -> MaintenanceResult:
        runs.append(answers.pop(0) if answers else None)
        return MaintenanceResult(0, next_s=runs[-1])

    answers: list[float | None] = [0.15, None]
    task = MaintenanceTask("sweep", 3600, run, soon)
    running = asyncio.ensure_future(Maintenance([task], random_fraction=lambda: 0.0).run())
    await wait_until(lambda: len(runs) == 2, "the second run, when it is due")
    soon.set()
    await wait_until(lambda: len(runs) == 3, "the third run, which was asked for")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not soon.is_set()


async def test_an_unavailable_server_costs_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    unavailable = BackendUnavailable("the job server does not answer", detail="connection refused")
    sweep = ScriptedTask(
        "sweep", unavailable, unavailable, unavailable, MaintenanceResult(1), unavailable
    )
    maintenance = Maintenance([sweep.task])
    with caplog.at_level(logging.WARNING, "jobwire.maintenance"):
        await run_until(maintenance, sweep)
    line = "maintenance failed: server unavailable task=sweep error=connection refused; will retry"
    assert caplog.messages == [line] * 2
    assert maintenance.done["sweep"] == 1


async def test_a_failing_task_is_retried_and_affects_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken, sound = (
        ScriptedTask("broken", ValueError("a bug"), MaintenanceResult(1)),
        ScriptedTask("sound"),
    )
    maintenance = Maintenance([broken.task, sound.task])
    with caplog.at_level(logging.ERROR, "jobwire.maintenance"):
        await run_until(maintenance, broken, sound)
    assert maintenance.done["broken"] == 1
    assert "a bug" in caplog.text, "with its traceback"


@clause("J-41")
@pytest.mark.parametrize("fraction", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("period_s", [0.25, 1.0, 30.0])
async def test_j41_no_task_meets_a_guard_and_each_runs_at_the_start(
    fraction: float, period_s: float
) -> None:
    """A run that meets the guard of the one before is lost, and with it a whole period."""
    loop, now_s, guarded_until_s = asyncio.get_running_loop(), 1234.567, 0.0
    runs: list[float] = []

    async def run() -> MaintenanceResult:
        nonlocal now_s, guarded_until_s
        now_s += 0.003  # the call takes a moment
        if now_s < guarded_until_s:
            return MaintenanceResult(0, guard_s=guarded_until_s - now_s)
        if len(runs) == 4:
            raise asyncio.CancelledError
        runs.append(now_s)
        # Another process does it in the middle.
        guarded_until_s = now_s + period_s * (1.4 if len(runs) == 2 else 1)
        return MaintenanceResult(1, guard_s=period_s)

    async def asleep(delay_s: float) -> None:
        nonlocal now_s
        now_s += delay_s

    maintenance = Maintenance(
        [MaintenanceTask("sweep", period_s, run)], random_fraction=lambda: fraction
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "sleep", asleep)
        patch.setattr(loop, "time", lambda: now_s)
        await asyncio.gather(maintenance.run(), return_exceptions=True)
    gaps = [later - run for run, later in pairwise(runs)]
    assert runs[0] <= 1234.567 + 1.2
    assert period_s <= gaps[0] <= period_s + 0.3
    assert 1.4 * period_s <= gaps[1] <= 1.4 * period_s + 0.3
    assert period_s <= gaps[2] <= period_s + 0.3


async def test_processes_that_start_together_spread_their_load() -> None:
    """The first run comes in the first second, later ones after about a period."""
    waits: list[float] = []

    async def asleep(delay_s: float) -> None:
        waits.append(delay_s)
        if len(waits) == 3:
            raise asyncio.CancelledError

    fractions = iter((0.3, 0.0, 1.0))
    scripted = ScriptedTask("sweep")
    maintenance = Maintenance(
        [MaintenanceTask("sweep", 8.0, scripted.run)], random_fraction=lambda: next(fractions)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "sleep", asleep)
        await asyncio.gather(maintenance.run(), return_exceptions=True)
    assert waits == pytest.approx([0.3, 6.0, 10.0], abs=0.13)


@clause("L-11", "G-6")
async def test_l11_the_tasks_of_a_process_wake_up_together() -> None:
    """Whenever they were started: what they send then leaves in one write."""
    loop, wakeups = asyncio.get_running_loop(), list[float]()
    now_s = loop.time()

    async def asleep(delay_s: float) -> None:
        wakeups.append(now_s + delay_s)
        raise asyncio.CancelledError

    fractions = iter((0.2, 0.35, 0.58, 0.93))
    tasks = [MaintenanceTask(f"shard {n}", 8.0, ScriptedTask("").run) for n in range(4)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "sleep", asleep)
        patch.setattr(loop, "time", lambda: now_s)
        for task in tasks:
            maintenance = Maintenance([task], random_fraction=lambda: next(fractions))
            await asyncio.gather(maintenance.run(), return_exceptions=True)
    gaps = [(wakeup - wakeups[0]) * 4 for wakeup in wakeups]
    assert gaps == pytest.approx([round(gap) for gap in gaps], abs=0.01)
