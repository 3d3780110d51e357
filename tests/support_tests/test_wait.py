"""Waiting ends with the condition; otherwise the error names the condition."""

from __future__ import annotations

import pytest

from tests.support import wait_until, wait_until_sync


async def test_wait_until_returns_the_value_of_the_condition() -> None:
    answers = iter([None, 0, "", "there"])
    assert await wait_until(lambda: next(answers)) == "there"


async def test_a_condition_may_be_async() -> None:
    answers = iter([False, True])

    async def ask() -> bool:
        return next(answers)

    assert await wait_until(ask)


async def test_the_error_names_the_condition() -> None:
    with pytest.raises(AssertionError, match=r"waited 0.01 s for a miracle; the last answer was 0"):
        await wait_until(lambda: 0, "a miracle", timeout_s=0.01)


def test_wait_until_sync_does_the_same_without_a_loop() -> None:
    answers = iter([None, 7])
    assert wait_until_sync(lambda: next(answers)) == 7
    with pytest.raises(AssertionError, match=r"test_wait.py:\d+; the last answer was None"):
        wait_until_sync(lambda: None, timeout_s=0.01)
