"""A test that its time limit cannot stop is ended, named, and its stack is printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.program import ROOT

CONFTEST = """
from tests.support import watchdog
from tests.support.watchdog import *
watchdog._GRACE_S, watchdog._AGAIN_S = 0.5, {again_s}
"""
IN_A_LOOP = """
import asyncio, pytest, uvloop

async def patience():
    try:
        await asyncio.Event().wait()
    finally:
        print("cleaned up")

async def deaf_once():
    try:
        await patience()
    except asyncio.CancelledError:
        await patience()

@pytest.mark.timeout(0.5)
def test_deaf():
    uvloop.run(deaf_once())

def test_next():
    pass
"""
IN_NATIVE_CODE = """
import ctypes, pytest

@pytest.mark.timeout(0.5)
def test_deaf():
    lock, mutex = ctypes.PyDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)
    lock(mutex)
    lock(mutex)
"""

# Longer than the limit of the project with all grace periods.
LONG = """
import time

def test_long():
    time.sleep(2)
"""


def run(folder: Path, tests: str, again_s: float, *limits: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST.format(again_s=again_s))
    (folder / "test_it.py").write_text(tests)
    names = ("xdist", "randomly", "asyncio", "schemathesis", "cov", "anyio", "hypothesispytest")
    spare = [f"-pno:{name}" for name in names]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *spare, *(limits or ("-o", "timeout=60")), "test_it.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_a_test_whose_loop_ignores_its_limit_fails_and_the_others_continue(
    tmp_path: Path,
) -> None:
    done = run(tmp_path, IN_A_LOOP, again_s=2)
    assert "test_it.py::test_deaf is stuck" in done.stderr, done.stdout + done.stderr
    assert "in patience" in done.stderr
    assert done.stdout.count("cleaned up\n") == 2
    assert "1 failed, 1 passed" in done.stdout


def test_blocking_native_code_is_ended_with_its_process(tmp_path: Path) -> None:
    done = run(tmp_path, IN_NATIVE_CODE, again_s=0.1)
    assert done.returncode == 1
    assert "in test_deaf" in done.stderr, done.stderr


def test_a_limit_of_the_command_line_is_kept(tmp_path: Path) -> None:
    done = run(tmp_path, LONG, 0.1, "-o", "timeout=0.1", "--timeout=60")
    assert done.returncode == 0, done.stdout + done.stderr
