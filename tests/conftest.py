"""Rules of the whole suite: markers and forbidden skips."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from collections.abc import Generator
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from tests.support.clauses import written_clauses
from tests.support.machine import raise_open_files
from tests.support.seconds import Seconds
from tests.support.skips import EXPECTED, reason_of, write_skips
from tests.support.thirdparty import NotInstalled

pytest_plugins = [
    "tests.support.distribution",
    "tests.support.first_failure",
    "tests.support.watchdog",
    "tests.support.patience",
    "tests.support.http_clients",
    "tests.support.fixtures",
    "tests.support.shared_server",
    "tests.support.s3",
    "tests.support.postgres",
    "tests.support.browser",
    "tests.fleet.fixtures",
    "tests.standins.cog",
]

# Collecting makes some hundred thousand objects that live until the end: not worth a search for
# garbage, neither now nor in any later one.
gc.disable()

# No deadline per example: a busy machine must not fail a test.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# With JOBWIRE_TEST_ALL a skip is a failure, unless the test does not apply on this machine.
ALL: Final = "JOBWIRE_TEST_ALL"


def pytest_configure(config: pytest.Config) -> None:
    # A shell that runs the suite in the background ignores SIGINT for it, and child programs
    # inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    raise_open_files()
    config.pluginmanager.register(Seconds(), "seconds-per-system")
    config.addinivalue_line("markers", "clause(*ids): the clauses of the contracts it proves")
    config.addinivalue_line(
        "markers", "keeps(*patterns): keys without TTL that are right for what it tests"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    written = written_clauses()
    for item in items:
        for mark in item.iter_markers("clause"):
            if unknown := [each for each in mark.args if each not in written]:
                raise pytest.UsageError(
                    f"{item.nodeid} claims {', '.join(unknown)}, which is in no page of "
                    "docs/contracts; add the clause there or correct the test"
                )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    with _skipped_where_not_installed():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    with _skipped_where_not_installed():
        return (yield)


@contextlib.contextmanager
def _skipped_where_not_installed() -> Generator[None]:
    try:
        yield
    except NotInstalled as error:
        pytest.skip(f"it cannot be installed here: {error}")


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # Logs and output may quote raw bytes; parallel workers can only pass on what is text.
    report.sections = [
        (name, text.encode(errors="replace").decode()) for name, text in report.sections
    ]
    if os.environ.get(ALL) == "1" and report.skipped and not hasattr(report, "wasxfail"):
        reason = reason_of(report)
        if not reason.startswith(EXPECTED):
            report.outcome = "failed"
            report.longrepr = f"{reason}\n{ALL}=1 allows no skip: install what is missing"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    skipped = os.environ.get(ALL) == "1" and report.skipped
    if skipped and not reason_of(report).startswith(EXPECTED):
        report.outcome = "failed"
        report.longrepr = f"{report.longrepr}\n{ALL}=1 allows no skip: install what is missing"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    write_skips(terminalreporter)
