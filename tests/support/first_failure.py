"""A pytest plugin: what a person needs to know about the first failure stands last in the output.

Its error, the last lines of the logs of all processes that the test had started, the seed, and the
command that repeats it behind the tests which ran before it, in at most `MOST_LINES` lines. Later
failures often follow from the first one.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable
from typing import Final

import pytest

from tests.support import program

MOST_LINES: Final = 55
_ERROR_LINES: Final = 20
_LOG_LINES: Final = 8
_LONGEST: Final = 300


class FirstFailure:
    """Kept by the process that prints."""

    def __init__(self) -> None:
        self._report: pytest.TestReport | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self._report is None:
            self._report = report

    # Outermost, so that it comes behind the short summary.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, config: pytest.Config
    ) -> Generator[None]:
        yield
        if self._report:
            terminalreporter.section("the first failure")
            for line in summary(self._report, config.getoption("randomly_seed", None)):
                terminalreporter.write_line(line)


def summary(report: pytest.TestReport, seed: object) -> list[str]:
    """The error, logs and commands of a failed test."""
    process = getattr(report, "worker_id", "")
    commands = [
        f"repeat:  {sys.executable} -m tools.rerun_failed '{report.nodeid}'",
        f"alone:   make test ARGS=\"'{report.nodeid}'\"",
    ]
    if seed is not None:  # the order was random
        commands.append(f"all:     make test ARGS=--randomly-seed={seed}")
    lines = [
        f"{report.nodeid} ({report.when}{', process ' if process else ''}{process})",
        *_error(report.longreprtext.splitlines()),
    ]
    for name, text in report.sections:
        room = MOST_LINES - len(lines) - len(commands) - 1
        if text.strip() and room > 1:
            lines += [f"--- {name}", *_last(text.splitlines(), min(_LOG_LINES, room))]
    return [line[:_LONGEST] for line in (*lines, *commands)]


def _error(lines: list[str]) -> list[str]:
    """The place and the beginning of the error, and its end: a comparison may have many lines."""
    lines = [line for line in lines if line.strip()]
    first = next((at for at, line in enumerate(lines) if line.startswith("E ")), 0)
    lines = lines[max(0, first - 2) :] if len(lines) > _ERROR_LINES else lines
    if len(lines) <= _ERROR_LINES:
        return lines
    half = _ERROR_LINES // 2
    return [*lines[:half], "  …", *lines[-half:]]


def _last(lines: Iterable[str], count: int) -> list[str]:
    return [line for line in lines if line.strip()][-count:]


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FirstFailure(), "first-failure")


def pytest_runtest_setup() -> None:
    program.forget_closed()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections += program.logs()
    return report
