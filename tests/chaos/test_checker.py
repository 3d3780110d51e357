"""The checker reports each planted violation under its rule, and none in a good history."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from jobwire.systems.jobs.contract import CANCELED_TTL_S
from tests.chaos.checker import RULES, check_history
from tests.chaos.history import GAP, Answer, Ended, Event, History, Period, Run, Submission, Watch
from tests.chaos.plan import KINDS, faults


def good() -> History:
    """Two jobs that ended well, the first at its second attempt; a watcher; a refusal."""
    history = History(max_deliveries=3, listed=["one", "two"], calm=["one", "two"])
    for number, (job_id, fails) in enumerate({"one": 1, "two": 0}.items()):
        history.submissions[f"key-{job_id}"] = Submission(f"key-{job_id}", fails=fails, steps=2)
        history.answers.append(Answer("submit", f"key-{job_id}", 202, job_id=job_id))
        kinds = ["queued", "running", "retrying", "queued"][: 4 * fails]
        kinds = kinds or ["queued"]
        start = 100 * number + 10
        events = [Event(f"{start + at}-0", kind, start + at, {}) for at, kind in enumerate(kinds)]
        events.append(Event(f"{start + 5}-0", "running", start + 5, {}))
        events += [
            Event(f"{start + 6 + n}-0", "step", start + 6 + n, {"run": f"run-{job_id}", "n": n})
            for n in range(2)
        ]
        events.append(Event(f"{start + 9}-0", "done", start + 9, {}))
        history.jobs[job_id] = Ended(
            "done",
            {"run": f"run-{job_id}"},
            None,
            {
                "status": "done",
                "idempotency_key": f"key-{job_id}",
                "attempt": str(fails + 1),
                "deliveries": str(fails + 1),
                "created_ts": str(start),
            },
            tuple(events),
        )
        history.runs.append(Run(f"run-{job_id}", job_id, fails + 1, "7", 1, start + 5, start + 8))
        history.watches.append(Watch(job_id, tuple(event.id for event in events)))
    history.runs.append(Run("run-failed", "one", 1, "7", 1, 11, 12))
    history.submissions["key-bad"] = Submission("key-bad", valid=False)
    history.answers.append(Answer("submit", "key-bad", 400, "invalid_request"))
    return history


def change(history: History, job_id: str = "one", **fields: object) -> None:
    history.jobs[job_id] = dataclasses.replace(history.jobs[job_id], **fields)


def field(history: History, name: str, value: str) -> None:
    change(history, fields={**history.jobs["one"].fields, name: value})


def add_event(history: History, kind: str, ts: int = 999, **data: str | int) -> None:
    event = Event(f"{ts}-0", kind, ts, data)
    change(history, events=(*history.jobs["one"].events, event))


def drop_job(history: History) -> None:
    del history.jobs["one"]


def still_running(history: History) -> None:
    change(history, status="running", events=history.jobs["one"].events[:-1])


def answered_before(history: History) -> None:
    history.answers.append(Answer("look", "one", 200, job_id="one", state="error"))


def mixed_runs(history: History) -> None:
    (*before, end) = history.jobs["one"].events
    reports = [Event(f"18.{n}-0", "step", 18, {"run": run, "n": 3}) for n, run in enumerate("ab")]
    change(history, events=(*before, *reports, before[-1], end))


def zombie_result(history: History) -> None:
    change(history, result={"run": "run-without-end"})


def report_after_the_result(history: History) -> None:
    (*before, end) = history.jobs["one"].events
    change(history, events=(*before, Event("18-0", "step", 18, {"run": "x", "n": 0}), end))


def ran_unseen(history: History) -> None:
    history.runs += [Run(f"more-{n}", "one", 1, "8", 1, 11, 12) for n in range(2)]


def second_job(history: History) -> None:
    history.answers.append(Answer("submit", "key-one", 202, job_id="two"))


def cancel_without_effect(history: History) -> None:
    history.answers.append(Answer("cancel", "one", 200))


def started_after_cancel(history: History) -> None:
    field(history, "cancel_ts", "12")
    history.answers.append(Answer("cancel", "one", 202))


def watcher(**what: object) -> Callable[[History], None]:
    def plant(history: History) -> None:
        history.watches[0] = dataclasses.replace(history.watches[0], **what)

    return plant


def two_in_one_slot(history: History) -> None:
    history.runs.append(Run("run-parallel", "two", 1, "7", 1, 116, 117))
    add = Event("116-1", "running", 116, {})
    change(history, "two", events=(history.jobs["two"].events[0], add, *history.jobs["two"].events))


def tick_twice(history: History) -> None:
    for name in ("tick-1", "tick-2"):
        fields = {"task": "tick", "idempotency_key": "cron:tick:60000", "status": "done"}
        history.jobs[name] = Ended("done", None, None, fields, (Event("1-0", "done", 1, {}),))


def starts_early(history: History) -> None:
    history.submissions["key-one"] = dataclasses.replace(history.submissions["key-one"], delay_s=60)


def lost_report(history: History) -> None:
    job = history.jobs["one"]
    change(history, events=tuple(event for event in job.events if event.data.get("n") != 0))


def missing_reports(history: History) -> None:
    history.runs = [dataclasses.replace(run, reported=3) for run in history.runs]


def handed_out_twice(history: History) -> None:
    history.runs.append(Run("run-duplicate", "two", 1, "8", 1, 116, 117))


def began_after_the_end(history: History) -> None:
    history.runs = [run for run in history.runs if run.job_id != "two"]
    history.runs.append(Run("run-two", "two", 1, "7", 1, 200, 201))


def overlap(history: History) -> None:
    (queued, *rest) = history.jobs["two"].events
    change(history, "two", events=(queued, Event("111-0", "running", 111, {}), *rest))
    history.runs.append(Run("run-first", "two", 1, "7", 2, 112, 118))


def reclaimed_without_fault(history: History) -> None:
    (queued, *rest) = history.jobs["two"].events
    change(history, "two", events=(queued, Event("111-0", "running", 111, {}), *rest))


PLANTED: list[tuple[str, Callable[[History], object]]] = [
    ("R1", drop_job),
    ("R1", lambda history: history.lost.append("short-lived")),
    ("R2", still_running),
    ("R3", lambda history: add_event(history, "done")),
    ("R3", lambda history: add_event(history, "log")),
    ("R4", lambda history: field(history, "status", "error")),
    ("R4", lambda history: change(history, error={"code": "x"})),
    ("R4", answered_before),
    ("R5", mixed_runs),
    ("R5", lambda history: field(history, "attempt", "1")),
    ("R6", zombie_result),
    ("R6", report_after_the_result),
    ("R7", lambda history: history.misplaced.append("one")),
    ("R8", ran_unseen),
    ("R8", lambda history: history.runs.append(Run("r", "two", 9, "8", 1, 1, 2))),
    ("R9", second_job),
    ("R9", lambda history: history.listed.append("three")),
    ("R10", lambda history: history.left_behind.append("a key")),
    ("R11", cancel_without_effect),
    ("R11", started_after_cancel),
    ("R12", watcher(seen=("10-0",))),
    ("R12", lambda history: watcher(seen=(*history.watches[0].seen, GAP))(history)),
    ("R12", watcher(ended=False)),
    ("R13", two_in_one_slot),
    ("R14", tick_twice),
    ("R15", starts_early),
    ("R16", lambda history: history.calm.reverse()),
    ("R17", lambda history: field(history, "idempotency_key", "key-bad")),
    ("R18", lambda history: history.answers.append(Answer("look", "one", 500, "internal"))),
    ("R18", lambda history: history.answers.append(Answer("look", "one", 404))),
    ("R19", lost_report),
    ("R19", missing_reports),
    ("R20", handed_out_twice),
    ("R20", began_after_the_end),
    ("R20", overlap),
    ("R21", reclaimed_without_fault),
    ("F8", lambda history: history.failed_over.append("a job is gone")),
    ("F12", lambda history: history.failed_starts.append("a worker")),
    ("F9", lambda history: history.emptied.append("no response")),
]


def test_a_good_history_has_no_violation() -> None:
    assert check_history(good()) == []


@pytest.mark.parametrize(("rule", "plant"), PLANTED)
def test_a_planted_violation_is_reported(rule: str, plant: Callable[[History], object]) -> None:
    history = good()
    plant(history)
    assert rule in {violation.rule for violation in check_history(history)}


def test_a_job_that_was_canceled_long_ago_may_be_gone() -> None:
    history = good()
    drop_job(history)
    history.cancel_requested["one"], history.collected_ms = 10.0, 10.0 + 1000 * CANCELED_TTL_S
    assert "R1" not in {violation.rule for violation in check_history(history)}
    history.collected_ms /= 2
    assert "R1" in {violation.rule for violation in check_history(history)}


def test_a_server_that_is_full_after_the_handler_returned_may_drop_reports() -> None:
    history = good()
    lost_report(history)
    change(history, events=(*history.jobs["one"].events[:-1], Event("9000-0", "done", 9000, {})))
    history.full.append((8000, 8500))
    assert "R19" not in {violation.rule for violation in check_history(history)}
    history.full[:] = [(15_500, 16_000)]
    assert "R19" in {violation.rule for violation in check_history(history)}


def saw_a_lost_event(*then: str) -> Callable[[History], None]:
    """The watcher saw an event that is not there, and then these."""

    def plant(history: History) -> None:
        first, *rest = (event.id for event in history.jobs["one"].events)
        watcher(seen=(first, "10-7", *then, *rest))(history)

    return plant


def saw_a_lost_end(history: History) -> None:
    first, *_ = (event.id for event in history.jobs["one"].events)
    watcher(seen=(first, "12-7"))(history)


def key_used_again(history: History) -> None:
    history.answers.append(Answer("submit", "key-one", 202, job_id="three"))
    history.jobs["three"] = history.jobs.pop("one")


OF_LOST_WRITES: list[tuple[str, Callable[[History], object]]] = [
    ("R1", drop_job),
    ("R4", answered_before),
    ("R8", ran_unseen),
    ("R9", key_used_again),
    ("R11", cancel_without_effect),
    ("R12", saw_a_lost_event()),
    ("R12", saw_a_lost_event(GAP)),
    ("R12", saw_a_lost_end),
    ("R19", lost_report),
    ("R19", missing_reports),
    ("R20", handed_out_twice),
    ("R20", began_after_the_end),
]


@pytest.mark.parametrize(("rule", "plant"), OF_LOST_WRITES)
def test_a_write_that_a_failover_lost_is_no_violation(
    rule: str, plant: Callable[[History], object]
) -> None:
    """G-26: it was answered just before its own primary failed."""

    def broken(*losses: Period) -> bool:
        history = good()
        plant(history)
        history.losses += losses
        return rule in {violation.rule for violation in check_history(history)}

    assert not broken(Period(12, 119))
    assert broken()
    assert broken(Period(12, 119, frozenset({1}))), "another shard"
    assert broken(Period(-5000, -4000), Period(9000, 9000)), "at other times"


def test_what_was_known_after_a_failover_must_be_there() -> None:
    history = good()
    drop_job(history)
    history.losses.append(Period(0, 0))
    history.answers.append(Answer("look", "one", 200, job_id="one", at_ms=5000))
    assert "R1" in {violation.rule for violation in check_history(history)}


def test_a_gap_hides_no_event_that_was_not_lost() -> None:
    history = good()
    saw_a_lost_event(GAP)(history)
    first, lost, gap, _, *rest = history.watches[0].seen
    watcher(seen=(first, lost, gap, *rest[:1]))(history)
    history.losses.append(Period(10, 10))
    assert "R12" in {violation.rule for violation in check_history(history)}


def test_a_job_may_be_reclaimed_while_its_shard_has_no_primary() -> None:
    for outage, is_broken in (
        (Period(100, 120), False),
        (Period(100, 120, frozenset({1})), True),
        (Period(200, 300), True),
        (Period(-9000, -5000), True),
    ):
        history = good()
        reclaimed_without_fault(history)
        history.outages.append(outage)
        assert ("R21" in {each.rule for each in check_history(history)}) == is_broken


def test_a_job_may_be_reclaimed_from_the_worker_that_a_fault_hit() -> None:
    for hit, is_broken in (("7", False), ("8", True)):
        history = good()
        reclaimed_without_fault(history)
        history.runs.append(Run("run-first", "two", 1, "7", 2, 112, 113))
        history.worker_faults.append((113, hit))
        assert ("R21" in {each.rule for each in check_history(history)}) == is_broken


def test_a_blocked_worker_may_lose_a_job_that_it_has_not_begun() -> None:
    for blocked_until_ms, is_broken in ((120, False), (112, True)):
        history = good()
        reclaimed_without_fault(history)
        history.runs.append(Run("block-1", "x", 1, "9", 4, 110, 111, "block"))
        history.runs.append(Run("block-2", "y", 1, "9", 4, 111, blocked_until_ms, "block"))
        assert ("R21" in {each.rule for each in check_history(history)}) == is_broken


def test_every_rule_has_a_planted_violation() -> None:
    assert {rule for rule, _ in PLANTED} == set(RULES)


def test_the_same_seed_makes_the_same_plan() -> None:
    first, again, other = (faults(seed, KINDS) for seed in (1, 1, 2))
    plan = [next(first) for _ in range(40)]
    assert plan == [next(again) for _ in range(40)]
    assert plan != [next(other) for _ in range(40)]
    assert {fault.kind for fault in plan} == set(KINDS)
