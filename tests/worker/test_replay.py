"""A-8: replayed code reports nothing again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from jobwire.job.messages import Report
from jobwire.testing import run
from jobwire.worker.replay import Replay, places
from tests.support import clause
from tests.worker import replay_handlers
from tests.worker.replay_handlers import SAID

KINDS = ("async", "thread", "process")


@clause("A-8", "D-9")
@pytest.mark.parametrize("kind", KINDS)
async def test_a08_a_job_that_was_suspended_reports_everything_once(kind: str) -> None:
    ran = await run(replay_handlers.app, kind, signals={"go": 1})
    assert ran.runs == 5
    assert ran.of("said") == SAID
    assert len(ran.of("log")) == 1


@clause("A-8", "D-1")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", ["one", "two", "three", "last"])
async def test_a08_a_run_after_a_crash_reports_what_comes_after_the_record(
    kind: str, step: str
) -> None:
    ran = await run(replay_handlers.app, kind, signals={"go": 1}, crash_after=step)
    assert ran.error is None
    assert ran.of("said") == SAID


@clause("A-8", "D-9")
async def test_a08_each_branch_reports_once() -> None:
    said = (await run(replay_handlers.app, "branches")).of("said")
    parts = ("begins", "goes on", "ends")
    each = [f"{name} {part}" for name in ("left", "right") for part in parts]
    assert sorted(map(str, said)) == sorted(["before", "after", *each])


@clause("A-8", "D-9")
@pytest.mark.parametrize("kind", ["waits in a step", "thread waits in a step"])
async def test_a08_a_step_that_waited_reports_once(kind: str) -> None:
    ran = await run(replay_handlers.app, kind, signals={"go": 1})
    assert (ran.runs, ran.calls["outer"]) == (2, 2)
    assert ran.of("said") == ["before", "in it", "after the wait", "after it"]


@clause("A-8")
async def test_a08_a_place_that_the_code_has_no_longer_holds_no_report_back() -> None:
    assert (await run(replay_handlers.app, "changed")).of("said") == ["before", "after"]


# ── branches, one by one ─────────────────────────────────────────────────────────────────────────


class Branches:
    """The reports of a run with these records, and those that were sent."""

    def __init__(self, *fields: str) -> None:
        self.replay = Replay(places(fields))
        self.sent: list[str] = []

    def say(self, text: str) -> None:
        if not self.replay.hold(Report(text, "{}"), self._send):
            self.sent.append(text)

    def _send(self, report: Report) -> None:
        self.sent.append(report.kind)


@clause("A-8")
async def test_a08_a_branch_that_goes_on_is_not_held_by_one_that_has_not_begun() -> None:
    """The wait of the first branch is over, the second still waits."""
    run = Branches("t:left", "t:signal:right")

    async def left() -> None:
        run.say("old left")
        run.replay.reach("t:left")
        run.say("new left")

    async def right() -> None:
        run.say("old right")
        run.replay.reach("t:signal:right")

    await asyncio.gather(left(), right())
    assert run.sent == ["new left"]
    run.say("later")
    assert run.sent == ["new left", "later"]


@clause("A-8")
async def test_a08_what_was_before_a_branch_was_before_its_records() -> None:
    run = Branches("s:a", "s:b")
    run.say("before all")

    async def branch(name: str) -> None:
        run.say(f"before {name}")
        run.replay.reach(f"s:{name}")

    await asyncio.gather(branch("a"), branch("b"))
    assert run.sent == []


def calls_nothing(run: Branches) -> None:
    run.replay.end()


def calls_a_new_step(run: Branches) -> None:
    run.replay.reach("s:new")


@clause("A-8")
@pytest.mark.parametrize("what", [calls_nothing, calls_a_new_step])
def test_a08_reports_are_sent_in_order_when_nothing_of_them_is_recorded(
    what: Callable[[Branches], None],
) -> None:
    run = Branches("s:removed", "g:early", "k:child", "c:child", "o:begun", "n:")
    run.say("one")
    run.say("two")
    assert run.sent == []
    what(run)
    run.say("three")
    assert run.sent == ["one", "two", "three"]


@clause("A-8", "O-15")
async def test_a08_a_run_that_never_comes_to_its_record_holds_a_bounded_number_of_reports() -> None:
    replay, sent = Replay(places(["s:gone"])), list[str]()
    reports = [Report("said", str(number), "s") for number in range(1_500)]
    for report in reports:
        if not replay.hold(report, lambda each: sent.append(each.data_json)):
            sent.append(report.data_json)
    assert sent == [report.data_json for report in reports]
