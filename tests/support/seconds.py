"""A pytest plugin: how many seconds the tests of each system took.

Printed at the end of a run of the whole suite. The seconds of parallel workers are added, so their
sum is larger than the run's own time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

import pytest

PLATFORM: Final = "platform"
# The beginning of a test's path → its system; the first that fits. All others are the platform's.
SYSTEM_OF: Final = (
    ("tests/wires/bullmq/", "queues"),
    ("tests/interop/test_bullmq", "queues"),
    ("tests/wires/images/", "images"),
    ("tests/handlers/photo/", "images"),
    ("tests/wires/predictions/", "predictions"),
    ("tests/interop/test_predictions", "predictions"),
    ("tests/wires/streams/", "jobs"),
    ("tests/interop/test_streams", "jobs"),
    ("tests/contracts/test_jobs", "jobs"),
    ("tests/conformance/", "jobs"),
    ("tests/handlers/llm/", "jobs"),
    ("tests/worker/", "jobs"),
    ("tests/stories/", "jobs"),
    ("tests/fleet/", "jobs"),
    ("tests/chaos/", "jobs"),
    ("tests/client/", "jobs"),
)


def system_of(node_id: str) -> str:
    """Return the system that a test belongs to."""
    return next((name for start, name in SYSTEM_OF if node_id.startswith(start)), PLATFORM)


def table(seconds: Mapping[str, float], tests: Counter[str]) -> list[str]:
    """Return one line per system, the longest first, and the sum."""
    by_seconds = sorted(seconds.items(), key=lambda row: -row[1])
    rows = [(name, tests[name], took) for name, took in by_seconds]
    rows.append(("all", tests.total(), sum(seconds.values())))
    return [f"{name:<12} {count:>6} tests {took:>8.1f} s" for name, count, took in rows]


class Seconds:
    """Adds up the reports of a run."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        system = system_of(report.nodeid)
        self._seconds[system] += report.duration
        self._tests[system] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if is_whole_suite(terminalreporter.config):
            terminalreporter.section("seconds per system")
            for line in table(self._seconds, self._tests):
                terminalreporter.write_line(line)


def is_whole_suite(config: pytest.Config) -> bool:
    """Whether the run was not restricted to some tests."""
    return config.args == config.getini("testpaths") and not config.option.keyword
