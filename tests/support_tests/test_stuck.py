"""A test that its limit cannot reach ends all the same, is named, and shows where it stands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.program import ROOT

CONFTEST = """
from tests.support import stuck
from tests.support.stuck import *
stuck._GRACE_S = stuck._LAST_S = 0.5
"""
DEAF = {
    "an event loop that takes the limit for a callback's failure": """
async def patience():
    await asyncio.Event().wait()

def test_deaf():
    uvloop.run(patience())
""",
    "native code that holds everything up": """
def test_deaf():
    lock, mutex = ctypes.PyDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)
    lock(mutex)
    lock(mutex)
""",
}


@pytest.mark.parametrize("why", DEAF)
def test_a_test_that_hears_nothing_is_ended_and_named(tmp_path: Path, why: str) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    head = "import asyncio, ctypes, uvloop\n"
    (tmp_path / "test_it.py").write_text(head + DEAF[why])
    spare = [f"-pno:{name}" for name in ("xdist", "randomly", "asyncio", "schemathesis", "cov")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *spare, "-o", "timeout=0.5", "test_it.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "in test_deaf" in done.stderr, done.stderr
    if "loop" in why:
        assert "in patience" in done.stderr
