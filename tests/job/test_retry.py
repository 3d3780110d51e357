"""Backoff and retry rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwire.job.messages import Failed, JobError, RetryLater
from jobwire.job.retry import DEFAULT, Backoff, delay_s, exponential, fixed, outcome

TRANSIENT = JobError("handler_error", "transient", retryable=True)
FINAL = JobError("invalid_payload", "never")

fractions = st.floats(0, 1, exclude_max=True)


def test_fixed_waits_are_all_the_same() -> None:
    assert [delay_s(fixed(5), n, 0.7) for n in (1, 2, 9)] == [5, 5, 5]


def test_exponential_waits_double_up_to_the_cap() -> None:
    waits = [delay_s(exponential(1, 10, jitter=0), n, 0.7) for n in (1, 2, 3, 4, 5, 2000)]
    assert waits == [1, 2, 4, 8, 10, 10]


@given(attempt=st.integers(1, 10_000), fraction=fractions)
def test_full_jitter_lies_between_nothing_and_the_whole_wait(attempt: int, fraction: float) -> None:
    whole = delay_s(exponential(0.5, 60, jitter=0), attempt, fraction)
    assert 0 <= delay_s(exponential(0.5, 60), attempt, fraction) <= whole <= 60


def test_half_jitter_makes_half_of_the_delay_random() -> None:
    half = fixed(10, jitter=0.5)
    assert (delay_s(half, 1, 0), delay_s(half, 1, 0.5)) == (5, 7.5)


@pytest.mark.parametrize(
    "bad",
    [
        {"base_s": -1},
        {"base_s": 10, "cap_s": 5},
        {"cap_s": float("inf")},
        {"base_s": float("nan")},
        {"jitter": 1.5},
    ],
)
def test_an_invalid_backoff_is_refused_by_name(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="backoff: "):
        Backoff(**bad)  # pyright: ignore[reportArgumentType] - the point is what it does with them


def test_a_transient_error_is_retried_until_the_last_attempt() -> None:
    def becomes(attempt: int) -> RetryLater | Failed:
        return outcome(
            TRANSIENT, attempt=attempt, max_attempts=3, backoff=fixed(2), random_fraction=0.5
        )

    assert becomes(1) == RetryLater(2, TRANSIENT)
    assert becomes(2) == RetryLater(2, TRANSIENT)
    assert becomes(3) == Failed(TRANSIENT)


def test_a_permanent_error_is_never_retried() -> None:
    ended = outcome(FINAL, attempt=1, max_attempts=9, backoff=DEFAULT, random_fraction=0.5)
    assert ended == Failed(FINAL)


def test_the_delay_a_handler_requests_precedes_the_backoff() -> None:
    again = outcome(
        TRANSIENT, attempt=1, max_attempts=2, backoff=fixed(2), random_fraction=0.5, after_s=0.0
    )
    assert again == RetryLater(0.0, TRANSIENT)
