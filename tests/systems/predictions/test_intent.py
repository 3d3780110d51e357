"""The merge rules and the next step, as pure code (P-15)."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwire.systems.predictions import intent as rules
from jobwire.systems.predictions.contract import TaskErrorCode
from jobwire.systems.predictions.intent import (
    Disagreement,
    FlowTimes,
    Intent,
    Lease,
    Merged,
    News,
    OtherPrediction,
    Outcome,
    Output,
    Photo,
    StoredInput,
    Unchanged,
    merge,
    next_step,
)
from tests.support import clause

NOW = 1_790_000_000_000
POLICY = FlowTimes()
PHOTO = Photo(chat_id=1, user_id=2, message_id=3, file_id="f", date_s=NOW // 1000)
WON = Outcome("succeeded", outputs=(Output(url="https://x/a"),))
LOST = Outcome("failed", code="provider_failed")


def intent(**given: Any) -> Intent:
    members: dict[str, Any] = {
        "tid": "a" * 32,
        "created_ms": NOW,
        "updated_ms": NOW,
        "photo": PHOTO,
        **given,
    }
    return Intent(**members)


def started(**given: Any) -> Intent:
    return intent(
        **{
            "state": "started",
            "prediction_id": "p",
            "submit_ms": NOW,
            "attempts": 1,
            "input": StoredInput("k", "image/png", 1),
            **given,
        }
    )


def merged(before: Intent, news: News) -> Intent:
    answer = merge(before, news)
    return answer.intent if isinstance(answer, Merged) else before


@clause("P-15")
def test_p15_updates_of_another_prediction_never_change_a_task() -> None:
    for outcome in (None, WON, LOST):
        assert merge(started(), News(prediction_id="q", outcome=outcome)) == OtherPrediction()


@clause("P-15", "P-5")
def test_p15_a_published_end_never_changes() -> None:
    for state in ("settled", "delivered"):
        ended = started(state=state, outcome=WON)
        for outcome in (None, WON, LOST):
            assert merge(ended, News(prediction_id="p", outcome=outcome)) == Unchanged()
            assert rules.overruled(ended, News(prediction_id="p", outcome=LOST)) == ended


@clause("P-15")
def test_p15_two_conflicting_ends_are_fetched_until_published() -> None:
    ended = merged(started(), News(prediction_id="p", outcome=WON))
    assert (ended.state, ended.outcome) == ("finished", WON)
    assert merge(ended, News(prediction_id="p", outcome=WON)) == Unchanged()
    assert merge(ended, News(prediction_id="p", running=True)) == Unchanged()
    contrary = News(prediction_id="p", outcome=LOST)
    assert merge(ended, contrary) == Disagreement()
    assert rules.overruled(ended, contrary).outcome == LOST
    assert rules.overruled(ended, News(prediction_id="p")) == ended
    assert rules.overruled(ended, News(prediction_id="q", outcome=LOST)) == ended
    assert rules.failed(ended, TaskErrorCode.TIMEOUT) == ended


@clause("P-14")
def test_p14_a_driver_waits_while_another_has_the_lease() -> None:
    leased = started(lease=Lease("first", NOW + 1000))
    assert leased.held_by_other("second", NOW)
    assert not leased.held_by_other("first", NOW)
    assert not leased.held_by_other("second", NOW + 1000), "it has expired"


@clause("P-15")
def test_p15_an_id_is_adopted_once() -> None:
    asked = intent(state="submitting", submit_ms=NOW, attempts=1)
    adopted = merged(asked, News(prediction_id="p"))
    assert (adopted.state, adopted.prediction_id, adopted.running) == ("started", "p", False)
    running = merged(adopted, News(prediction_id="p", running=True))
    assert (running.status, adopted.status) == ("processing", "queued")
    assert merge(running, News(prediction_id="p", running=False)) == Unchanged()


@clause("P-15")
def test_p15_any_order_of_updates_ends_the_same() -> None:
    news = [
        News(prediction_id="p"),
        News(prediction_id="p", running=True),
        News(prediction_id="p", outcome=WON),
        News(prediction_id="q", outcome=LOST),
    ]
    for order in permutations(news):
        if order[0].prediction_id == "q":
            continue
        now = intent(state="submitting", submit_ms=NOW, attempts=1)
        for each in order:
            now = merged(now, each)
        assert (now.state, now.outcome, now.prediction_id) == ("finished", WON, "p")


outcomes = st.sampled_from([None, WON, LOST])
all_news = st.builds(
    News, prediction_id=st.sampled_from(["p", "q"]), running=st.booleans(), outcome=outcomes
)
states = st.sampled_from(["stored", "submitting", "started"])


@clause("P-15")
@given(states, st.lists(all_news, max_size=8))
def test_p15_a_state_never_goes_back_and_the_first_end_stays(
    state: str, arriving: list[News]
) -> None:
    now = intent(state=state, prediction_id="p" if state == "started" else None)
    for news in arriving:
        after = merged(now, news)
        assert after.rank >= now.rank
        assert now.outcome is None or after.outcome == now.outcome
        assert now.prediction_id is None or after.prediction_id == now.prediction_id
        now = after


@clause("P-13", "P-16")
@pytest.mark.parametrize(
    ("what", "after_s", "step"),
    [
        (intent(), 0, "accept"),
        (intent(), 1200, "expire"),
        (intent(not_before_ms=NOW + 5000), 4, "wait"),
        (intent(state="stored", submit_ms=NOW), 0, "create"),
        (intent(state="submitting", submit_ms=NOW), 9, "wait"),
        (intent(state="submitting", submit_ms=NOW), 10, "find"),
        (started(), 29, "wait"),
        (started(), 30, "poll"),
        (started(), 1200, "expire"),
        (started(state="finished", outcome=WON), 5000, "settle"),
        (started(state="settled", outcome=WON), 5000, "deliver"),
        (started(state="settled", outcome=WON, not_before_ms=NOW + 9000), 5, "wait"),
        (started(state="delivered", outcome=WON), 0, "close"),
    ],
)
def test_p13_the_next_step_follows_from_state_and_time(
    what: Intent, after_s: int, step: str
) -> None:
    assert next_step(what, NOW + after_s * 1000, POLICY) == step


@clause("P-13")
def test_p13_a_second_create_waits_for_the_list_and_one_lease() -> None:
    assert POLICY.grace_s > POLICY.lease_s
    asked = intent(state="submitting", submit_ms=NOW, attempts=1)
    assert not rules.may_create_again(asked, NOW + POLICY.grace_s * 1000 - 1, POLICY)
    assert rules.may_create_again(asked, NOW + POLICY.grace_s * 1000, POLICY)
    twice = intent(state="submitting", submit_ms=NOW, attempts=2)
    assert not rules.may_create_again(twice, NOW + 10**9, POLICY)


@clause("P-16")
def test_p16_a_lease_excludes_other_processes_until_it_expires() -> None:
    leased = intent(lease=Lease("me", NOW + 1000))
    assert leased.held_by_other("you", NOW)
    assert not leased.held_by_other("me", NOW)
    assert not leased.held_by_other("you", NOW + 1000)


@clause("P-16")
def test_p16_temporary_problems_are_retried_with_growing_backoff() -> None:
    now, waits = intent(), list[int]()
    for _ in range(12):
        now = rules.schedule_retry(now, NOW, POLICY)
        waits.append((now.not_before_ms - NOW) // 1000)
    assert waits[:4] == [15, 30, 60, 120]
    assert waits[-1] == POLICY.longest_backoff_s
    asked = rules.schedule_retry(intent(), NOW, POLICY, after_s=7)
    assert asked.not_before_ms == NOW + 7000
    longest = rules.schedule_retry(intent(), NOW, POLICY, after_s=1e9)
    assert longest.not_before_ms == NOW + POLICY.delivery_life_s * 1000
