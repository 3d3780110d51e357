"""What stands at the end of the output of a failed run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.first_failure import MOST_LINES
from tests.support.program import ROOT

TESTS = """
from tests.support.program import Program

PROGRAM = "for n in range(1000): print('line', n)"

def test_a():
    with Program.script(PROGRAM) as program:
        program.wait()
    assert True

def test_b():
    with Program.script(PROGRAM + "; print('the reason')") as program:
        program.wait()
    assert "\\n".join(map(str, range(500))) == "other"

def test_c():
    assert not "a later failure"
"""


def test_the_first_failure_is_last_with_logs_seed_and_command(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    plugins = ["-p", "tests.support.distribution", "-p", "tests.support.first_failure"]
    pytest = [sys.executable, "-m", "pytest", *plugins, "-p", "no:schemathesis", "-n0"]
    # As in a continuous run, where pytest does not shorten a comparison.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CI": "true"}

    def run(*words: str) -> str:
        return subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        ).stdout

    output = run(*pytest, "-p", "no:randomly", "test_it.py")
    _, found, end = output.partition("the first failure")
    assert found, output
    assert len(end.splitlines()) <= MOST_LINES + 3
    assert "test_it.py::test_b (call)" in end
    assert "the reason" in end
    assert "other" in end
    assert "test_c" not in end
    assert "randomly-seed" not in end  # the order was that of the file
    repeated = run(sys.executable, "-m", "tools.rerun_failed", "test_it.py::test_b")
    assert "1 failed, 1 passed" in repeated
    in_random_order = run(*pytest, "--randomly-seed=7", "test_it.py")
    assert "make test ARGS=--randomly-seed=7" in in_random_order
