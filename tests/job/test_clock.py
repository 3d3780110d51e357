"""Time that stands still, and ids that cannot be guessed."""

import uuid

from jobwire.job.clock import (
    ManualClock,
    SystemClock,
    new_job_id,
    new_job_ids,
    new_tokens,
    random_fraction,
)


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(now_ms=1000)
    assert (clock.now_ms(), clock.monotonic_s()) == (1000, 0)
    clock.advance(1.5)
    assert (clock.now_ms(), clock.monotonic_s()) == (2500, 1.5)


def test_the_system_clock_does_not_run_backwards() -> None:
    clock = SystemClock()
    first = clock.monotonic_s()
    assert clock.monotonic_s() >= first
    assert clock.now_ms() > 1_700_000_000_000


def test_job_ids_are_random_uuids() -> None:
    first, second = new_job_id(), new_job_id()
    assert first != second
    assert uuid.UUID(first).version == 4


def test_many_job_ids_are_as_random_as_one() -> None:
    ids = new_job_ids(1000)
    assert len(set(ids)) == 1000
    assert {uuid.UUID(each).version for each in ids} == {4}
    assert {uuid.UUID(each).variant for each in ids} == {uuid.RFC_4122}
    assert new_job_ids(0) == []


def test_tokens_are_all_different_and_never_short() -> None:
    tokens = new_tokens(1000)
    assert len(set(tokens)) == 1000
    assert {len(token) for token in tokens} == {32}
    assert new_tokens(0) == []


def test_chance_lies_in_the_half_open_unit() -> None:
    assert all(0 <= random_fraction() < 1 for _ in range(1000))
