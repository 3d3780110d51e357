"""A pytest plugin: how many seconds the tests of each system took, and how much CPU.

Printed at the end of a run of the whole suite. The seconds of parallel workers are added, so their
sum is larger than the run's own time. CPU can be compared between busy and idle machines: that of a
child process counts for the test that ends it, that of servers which all tests share for none.
"""

from __future__ import annotations

import resource
from collections import Counter, defaultdict
from collections.abc import Generator, Mapping
from typing import Final, cast

import pytest

from tests.support.fork_server import used_cpu_s as forked_cpu_s

PLATFORM: Final = "platform"
_CPU_S: Final = "cpu_s"
# The beginning of a test's path → its system; the first that fits. All others are the platform's.
SYSTEM_OF: Final = (
    ("tests/page/", "page"),
    ("tests/handlers/video/", "queues"),
    ("tests/systems/queues/", "queues"),
    ("tests/interop/test_bullmq", "queues"),
    ("tests/systems/images/", "images"),
    ("tests/handlers/photo/", "images"),
    ("tests/systems/predictions/", "predictions"),
    ("tests/interop/test_predictions", "predictions"),
    ("tests/systems/jobs/", "jobs"),
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


def table(
    seconds: Mapping[str, float], cpu_s: Mapping[str, float], tests: Counter[str]
) -> list[str]:
    """Return one line per system, the longest first, and the sum."""
    by_seconds = sorted(seconds.items(), key=lambda row: -row[1])
    rows = [(name, tests[name], took, cpu_s[name]) for name, took in by_seconds]
    rows.append(("all", tests.total(), sum(seconds.values()), sum(cpu_s.values())))
    return [
        f"{name:<12} {count:>6} tests {took:>8.1f} s {cpu:>8.1f} s CPU"
        for name, count, took, cpu in rows
    ]


def _used_cpu_s() -> float:
    """The CPU of this process, and of its children and forked programs that have ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) + sum(forked_cpu_s)


class Seconds:
    """Adds up the reports of a run."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._cpu_s: defaultdict[str, float] = defaultdict(float)
        self._tests: Counter[str] = Counter()
        self._used_cpu_s = _used_cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when != "teardown":
            return report
        before, self._used_cpu_s = self._used_cpu_s, _used_cpu_s()
        report.user_properties.append((_CPU_S, self._used_cpu_s - before))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        system = system_of(report.nodeid)
        self._seconds[system] += report.duration
        for name, value in report.user_properties:
            if name == _CPU_S:
                self._cpu_s[system] += cast(float, value)
        self._tests[system] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if is_whole_suite(terminalreporter.config):
            terminalreporter.section("seconds per system")
            for line in table(self._seconds, self._cpu_s, self._tests):
                terminalreporter.write_line(line)


def is_whole_suite(config: pytest.Config) -> bool:
    """Whether the run was not restricted to some tests."""
    return config.args == config.getini("testpaths") and not config.option.keyword
