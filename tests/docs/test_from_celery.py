"""The page for users of Celery: its files are written, its worker started, its programs run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.cli.runner import clean_env
from tests.docs.pages import blocks
from tests.docs.runner import PYTEST_ENV
from tests.fleet.runner import Fleet
from tests.support import clause
from tests.support.program import ROOT

_BLOCKS: Final = blocks(ROOT / "docs" / "from-celery.md")


def _write_files(folder: Path) -> None:
    for block in _BLOCKS:
        if block.language == "python":
            name = block.text.splitlines()[0].removeprefix("# ")
            (folder / name).write_text(block.text)


def _run(folder: Path, *args: str, env: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, *args],
        cwd=folder,
        env={**clean_env(**env), "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@clause("J-54", "O-12")
def test_the_pages_worker_serves_the_pages_producer(tmp_path: Path) -> None:
    _write_files(tmp_path)
    ((line,),) = [block.commands() for block in _BLOCKS if block.language == "sh"]
    program, *worker = line.split()
    assert program == "jobwire"
    with Fleet(tmp_path) as fleet:
        fleet.start_gateway()
        fleet.start(*worker, env={"PYTHONPATH": str(tmp_path)}).wait_for_line("worker with")
        printed = _run(tmp_path, "producer.py", env=fleet.env).split()
    assert printed == [
        *("1", "queued", "running", "log", "retrying"),
        *("running", "rollback", "log", "progress", "done"),
    ]


@clause("J-54", "O-12")
def test_the_pages_own_tests_pass(tmp_path: Path) -> None:
    _write_files(tmp_path)
    _run(tmp_path, "-m", "pytest", "-q", "test_tasks.py", env=PYTEST_ENV)
