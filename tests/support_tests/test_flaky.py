"""`make flaky` finds a test that fails now and then, and disturbs what it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.program import ROOT
from tools.flaky import Freezer, Unsupported

# Fails in each second run.
NOW_AND_THEN = """
from pathlib import Path

def test_sound():
    pass

def test_now_and_then():
    mark = Path(__file__).with_name("mark")
    if mark.exists():
        mark.unlink()
        raise AssertionError("this time")
    mark.touch()
"""

# Ends when one of the two processes was seen to stand still for a second.
STOPPED = """
import subprocess, sys, time

CHILD = "import time\\nwhile True: print(time.monotonic(), flush=True); time.sleep(0.02)"

def test_is_stopped():
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE)
    try:
        last = time.monotonic()
        while True:
            child.stdout.readline()
            now = time.monotonic()
            if now - last > 0.9:
                break
            last = now
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
"""


def flaky(folder: Path, source: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\n")
    plugins = ("-p", "tests.support.distribution", "-p", "no:schemathesis")
    return subprocess.run(
        [sys.executable, "-m", "tools.flaky", *options, *plugins, "-n0", "test_it.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_a_test_that_fails_in_each_second_run_is_named(tmp_path: Path) -> None:
    ended = flaky(tmp_path, NOW_AND_THEN, "--times", "2", "--load", "1")
    assert ended.returncode == 1, ended.stderr
    summary = ended.stdout.partition("failed at least once:")[2]
    assert "1 of 2  test_it.py::test_now_and_then" in summary
    assert "test_sound" not in summary
    assert [file.name for file in (tmp_path / ".pytest_cache/flaky").iterdir()] == ["2.log"]


def test_processes_of_a_run_are_stopped(tmp_path: Path) -> None:
    try:
        with Freezer.opened():
            pass
    except Unsupported as reason:
        pytest.skip(f"expected: only root can stop processes by control groups: {reason}")
    ended = flaky(tmp_path, STOPPED, "--times", "1", "--stops", "2", "--cpu", "80")
    assert "no test failed in 1 runs" in ended.stdout, ended.stdout + ended.stderr
