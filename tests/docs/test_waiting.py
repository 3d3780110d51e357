"""The page about waiting: its example runs, and pays nothing twice after a crash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cli.runner import clean_env
from tests.docs.pages import blocks
from tests.docs.runner import PYTEST_ENV
from tests.support import clause
from tests.support.program import ROOT


@clause("D-20", "D-11", "D-12", "D-15")
def test_the_pages_example_passes_its_own_test(tmp_path: Path) -> None:
    for block in blocks(ROOT / "docs" / "waiting.md"):
        if block.language == "python" and block.text.startswith("# "):
            name = block.text.splitlines()[0].removeprefix("# ")
            (tmp_path / name).write_text(block.text)
    command = [sys.executable, "-m", "pytest", "-q", "test_studio.py"]
    env = {**clean_env(**PYTEST_ENV), "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
