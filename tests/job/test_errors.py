"""Errors have a public message, and keep private details for the log."""

from datetime import timedelta

import pytest

from jobwire.job.errors import (
    BackendUnavailable,
    ContractError,
    Fail,
    HandlerSignal,
    JobwireError,
    RefusedError,
    Retry,
)


def test_each_kind_has_its_code_status_and_retryability() -> None:
    unavailable = BackendUnavailable("Valkey did not answer")
    refused = RefusedError("payload is too large", code="too_large", status=413)
    broken = ContractError("the status is unknown", clause="J-5")
    assert (unavailable.code, unavailable.status, unavailable.retryable) == (
        "unavailable",
        503,
        True,
    )
    assert (refused.code, refused.status, refused.retryable) == ("too_large", 413, False)
    assert (broken.code, broken.status, broken.clause) == ("contract_violated", 502, "J-5")
    assert str(broken) == "the status is unknown (J-5)"


def test_the_private_detail_is_not_in_the_public_message() -> None:
    error = JobwireError("something went wrong", detail="password=hunter2")
    assert "hunter2" not in str(error)
    assert error.detail == "password=hunter2"


def test_one_error_does_not_change_the_next_one_of_its_kind() -> None:
    RefusedError("no", code="too_large", status=413)
    assert RefusedError("no").code == "refused"


def test_signals_are_not_jobwire_errors() -> None:
    assert not issubclass(HandlerSignal, JobwireError)
    assert issubclass(Retry, HandlerSignal)
    assert issubclass(Fail, HandlerSignal)


def test_retry_takes_seconds_or_a_timedelta_or_nothing() -> None:
    assert Retry(after=2).after_s == 2
    assert Retry(timedelta(minutes=1)).after_s == 60
    assert Retry().after_s is None


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf")])
def test_retry_refuses_an_invalid_delay(after: float) -> None:
    with pytest.raises(ValueError, match="Retry"):
        Retry(after=after)


def test_fail_carries_the_public_code_and_message() -> None:
    signal = Fail("no_such_city", "there is no city of that name")
    assert (signal.code, signal.message) == ("no_such_city", "there is no city of that name")
