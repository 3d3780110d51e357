"""Which tests were skipped, counted by reason, at the end of a run.

A reason that begins with `EXPECTED` says that a test does not apply on this machine. Any other one
says what is missing; where `make test` could install everything, there is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import pytest

EXPECTED: Final = "expected: "


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the first line of the reason of a skip."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ").strip().partition("\n")[0]


def lines(reasons: Iterable[str]) -> list[str]:
    """Return a line per reason with its count: what is missing first, then what does not apply."""
    counted = Counter(reasons)
    found = sorted(counted, key=lambda each: (each.startswith(EXPECTED), -counted[each], each))
    return [f"{counted[reason]:>5}  {reason}" for reason in found]


def write_skips(terminalreporter: pytest.TerminalReporter) -> None:
    """Write these lines, if a test was skipped."""
    if skipped := terminalreporter.stats.get("skipped"):
        terminalreporter.section("skipped tests, by reason")
        for line in lines(map(reason_of, skipped)):
            terminalreporter.write_line(line)
