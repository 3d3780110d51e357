"""The page about durable steps: its handler is killed in the middle of each step, its test runs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.cli.runner import clean_env
from tests.docs.pages import blocks
from tests.docs.runner import PYTEST_ENV
from tests.fleet.runner import Fleet
from tests.support import Program, clause, wait_until_sync
from tests.support.program import ROOT

_PAGE: Final = ROOT / "docs" / "durable.md"
_STEPS: Final = ("transcribe", "summarise")


def _write_files(folder: Path) -> None:
    for block in blocks(_PAGE):
        if block.language == "python" and block.text.startswith("# "):
            name = block.text.splitlines()[0].removeprefix("# ")
            (folder / name).write_text(block.text)


def _said_to_be_paid(killed: str) -> dict[str, int]:
    (row,) = re.findall(rf"^\| `{killed}` \| (\d) \| (\d) \|$", _PAGE.read_text(), re.MULTILINE)
    return dict(zip(_STEPS, map(int, row), strict=True))


@clause("D-20", "D-4a")
def test_the_pages_own_tests_pass(tmp_path: Path) -> None:
    _write_files(tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "test_podcast.py", "test_travel.py"]
    env = {**clean_env(**PYTEST_ENV), "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@clause("D-1", "D-21")
@pytest.mark.parametrize("killed", _STEPS)
def test_killed_in_the_middle_of_a_step_the_pages_job_pays_for_that_step_only(
    tmp_path: Path, killed: str
) -> None:
    _write_files(tmp_path)
    ledger = tmp_path / "paid.txt"

    def paid() -> Counter[str]:
        return Counter(ledger.read_text().split() if ledger.exists() else [])

    env = {"JOBWIRE_WORKER_LEASE": "2s", "PYTHONPATH": str(tmp_path)}
    with Fleet(tmp_path) as fleet:
        fleet.start_gateway()

        def worker() -> Program:
            program = fleet.start("worker", "podcast:app", env=env, cwd=tmp_path)
            program.wait_for_line("worker with")
            return program

        first = worker()
        body = {"task": "podcast", "payload": {"url": "talk.mp3"}}
        created = httpx.post(f"{fleet.url}/v1/jobs", json=body, trust_env=False)
        path = f"{fleet.url}/v1/jobs/{created.json()['job_id']}"
        wait_until_sync(lambda: paid()[killed], f"{killed} to begin")
        first.kill()
        worker()
        headers = {"Prefer": "wait=60"}
        job = httpx.get(path, headers=headers, trust_env=False, timeout=90).json()
    assert (job["status"], job["result"]) == ("done", {"summary": "THE WORDS OF TALK.MP3"})
    assert paid() == _said_to_be_paid(killed)


def test_the_table_of_cases_has_every_test_and_no_other() -> None:
    table = (ROOT / "docs" / "durable-cases.md").read_text()
    tests = "".join(
        file.read_text() for file in (ROOT / "tests" / "contracts").glob("test_durable_*.py")
    )
    named = set(re.findall(r"`([a-z_]{6,})`", table)) - {"on_failure"}
    cases = set(re.findall(r"def test_d\w+?_case_(\w+)", tests))
    assert cases - named == set(), "tests that are not in the table"
    known = cases | set(re.findall(r"def test_d\d+[a-z]?_(\w+)", tests))
    assert named - known == {"signal_invalid"}, "rows without a test"
    numbers = [int(row) for row in re.findall(r"^\| [^|]+ \| (\d+) \|", table, re.MULTILINE)]
    assert sum(numbers) >= 120
