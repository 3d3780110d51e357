"""Job ids and tokens cannot be guessed."""

import uuid

from jobwire.job.ids import new_job_id, new_job_ids, new_tokens, random_fraction


def test_job_ids_are_random_uuids() -> None:
    first, second = new_job_id(), new_job_id()
    assert first != second
    assert uuid.UUID(first).version == 4


def test_job_ids_generated_in_bulk_are_random() -> None:
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


def test_a_random_fraction_is_at_least_0_and_below_1() -> None:
    assert all(0 <= random_fraction() < 1 for _ in range(1000))
