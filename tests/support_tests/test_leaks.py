"""A test with a leak fails, and its report names the leak. Checked in an inner run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.program import ROOT

INNER = """
import asyncio

import pytest

from jobwire.valkey import Connection
from tests.support import leaks
from tests.support.servers import plain_client

leaks._GRACE_S = 0.3
kept = []


def test_key_without_ttl(plain):
    plain.set("forgotten", "1")


def test_key_with_ttl_is_fine(plain):
    plain.set("remembered", "1", ex=60)


def test_keys_are_gone_afterwards(plain):
    assert plain.dbsize() == 0


def test_raw_client_left_open(valkey):
    client = plain_client(valkey, "forgotten-client")
    client.ping()
    kept.append(client)


async def test_connection_left_open(valkey):
    kept.append(await Connection.open(valkey.url, name="forgotten-connection"))


@pytest.fixture(scope="module")
def shared_program(valkey):
    with plain_client(valkey, "shared") as client:
        client.ping()
        yield


def test_readers_of_a_program_from_before_are_fine(shared_program, valkey):
    kept.append(plain_client(valkey, "shared-own"))
    kept[-1].ping()


def test_reader_of_no_program(valkey):
    kept.append(plain_client(valkey, "alone-own"))
    kept[-1].ping()


async def test_task_left_running():
    kept.append(asyncio.create_task(asyncio.Event().wait(), name="forgotten-task"))


async def test_task_that_just_ends_is_fine():
    kept.append(asyncio.create_task(asyncio.sleep(0.05)))


async def test_a_closed_connection_is_fine(connection):
    await connection.call("PING")


def test_setting_changed(plain):
    plain.config_set("slowlog-max-len", "7")


def test_setting_is_back_afterwards(plain):
    assert plain.config_get("slowlog-max-len") == {"slowlog-max-len": "128"}


def test_setting_changed_for_the_test_is_fine(server_setting, plain):
    server_setting("slowlog-max-len", "7")
    assert plain.config_get("slowlog-max-len") == {"slowlog-max-len": "7"}


def test_shared_server_killed(valkey):
    valkey.kill()


def test_shared_server_is_back(plain):
    assert plain.ping()

"""


def inner_run(folder: Path, source: str, **variables: str) -> str:
    """Run a folder's tests in a separate pytest with the project's rules; returns its output."""
    (folder / "test_inner.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", "pyproject.toml"]
    command += [
        "--rootdir",
        str(ROOT),
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        "-rA",
        "--continue-on-collection-errors",
    ]
    output = subprocess.run(
        [*command, str(folder)],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return output.stdout + output.stderr


def outcomes(output: str) -> dict[str, set[str]]:
    """Test name → how it was reported (a test may pass and its clean-up fail)."""
    found: dict[str, set[str]] = {}
    for outcome, name in re.findall(
        r"^(PASSED|FAILED|ERROR|XFAIL) \S*::(\w+)", output, re.MULTILINE
    ):
        found.setdefault(name, set()).add(outcome)
    return found


def test_a_leak_fails_the_test(tmp_path: Path) -> None:
    output = inner_run(tmp_path, INNER)
    failed = {name for name, how in outcomes(output).items() if how & {"FAILED", "ERROR"}}
    assert failed == {
        "test_key_without_ttl",
        "test_raw_client_left_open",
        "test_connection_left_open",
        "test_reader_of_no_program",
        "test_task_left_running",
        "test_setting_changed",
        "test_shared_server_killed",
    }, output
    assert "key forgotten has no TTL and is on no wire's permanent list" in output
    assert "1 open connection(s) named 'forgotten-client'" in output
    # Its task is found first, and ending the task may close the socket before the check.
    assert (
        "open connection(s) named 'forgotten-connection'" in output
        or "task forgotten-connection: connection still runs" in output
    )
    assert "task forgotten-task still runs" in output
    assert "setting slowlog-max-len was '128', now '7'" in output
    assert "the test ended the shared server; use `own_valkey`" in output


def test_what_is_missing_is_skipped_and_fails_with_jobwire_test_all(tmp_path: Path) -> None:
    source = """
import pytest

from tests.support.thirdparty import NotInstalled

def test_missing():
    pytest.skip("something is missing")

def test_not_installed():
    raise NotInstalled("no network")

@pytest.fixture
def package():
    raise NotInstalled("no network")

def test_fixture_not_installed(package):
    pass

def test_elsewhere():
    pytest.skip("expected: another platform")

@pytest.mark.skip(reason="switched off")
def test_off():
    pass

@pytest.mark.xfail(reason="known")
def test_known_failure():
    assert False
"""
    (tmp_path / "test_whole_file.py").write_text(
        "import pytest\npytest.importorskip('no_such_library')"
    )
    output = inner_run(tmp_path, source, JOBWIRE_TEST_ALL="0")
    assert outcomes(output) == {"test_known_failure": {"XFAIL"}}, output
    assert "\n    2  it cannot be installed here: no network\n" in output
    assert "\n    1  could not import 'no_such_library'" in output
    output = inner_run(tmp_path, source, JOBWIRE_TEST_ALL="1")
    assert outcomes(output) == {
        "test_missing": {"FAILED"},
        "test_not_installed": {"FAILED"},
        "test_fixture_not_installed": {"ERROR"},
        "test_off": {"ERROR"},
        "test_known_failure": {"XFAIL"},
    }, output
    assert "something is missing" in output
    assert "could not import 'no_such_library'" in output
    assert "3 errors" in output
    assert "JOBWIRE_TEST_ALL=1 allows no skip: install what is missing" in output


def test_an_unknown_clause_stops_the_run(tmp_path: Path) -> None:
    source = """
from tests.support import clause

@clause("T-2", "T-999")
def test_promise():
    pass
"""
    output = inner_run(tmp_path, source)
    assert "claims T-999, which is in no page of docs/contracts" in output
    assert "passed" not in output
