"""Skipped tests are counted by reason."""

from __future__ import annotations

from tests.support.skips import lines


def test_what_is_missing_comes_before_what_does_not_apply() -> None:
    reasons = [*["expected: another platform"] * 3, "no chromium", *["no faketime"] * 2]
    assert lines(reasons) == [
        "    2  no faketime",
        "    1  no chromium",
        "    3  expected: another platform",
    ]
