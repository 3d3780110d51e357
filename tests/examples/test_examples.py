"""Each example works."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.cli.runner import clean_env
from tests.examples.server import Site
from tests.fleet.runner import Fleet
from tests.support.program import ROOT

EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A gateway, and a worker with the handlers of the examples."""
    with Fleet(tmp_path_factory.mktemp("examples")) as fleet:
        fleet.start_gateway()
        fleet.start_worker("examples.worker:app")
        fleet.start_worker("examples.from_background_tasks.after:app")
        yield fleet


def test_a_worker_and_a_program_that_submits(running: Fleet) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "ask.py"],
        env=clean_env(**running.env),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == [
        *("queued", "running", *["progress"] * 5, "done")
    ]
    assert ast.literal_eval(lines[-1]) == {"counted": 5}


async def test_before_the_migration_the_web_process_does_the_work() -> None:
    from examples.from_background_tasks import before

    transport = httpx.ASGITransport(before.web)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as web:
        response = await web.post("/reports", params={"address": "a@example.com"})
    assert response.status_code == 202
    assert before.sent == ["a@example.com"]


def test_after_the_migration_a_worker_does_the_work(running: Fleet) -> None:
    with Site("examples.from_background_tasks.after:web", running.env) as site:
        body = httpx.post(
            f"{site.url}/reports", params={"address": "a@example.com"}, trust_env=False
        ).json()
    with running.client() as jobs:
        assert jobs.wait(body["job_id"]).result == {"sent_to": "a@example.com"}


def test_the_ten_line_examples_have_ten_lines() -> None:
    """Without docstrings and blank lines."""

    def lines(file: Path) -> list[str]:
        text = file.read_text()
        if file.suffix == ".py":
            text = text.partition('"""')[2].partition('"""')[2]
        return [line for line in text.splitlines() if line.strip()]

    assert len(lines(EXAMPLES / "worker.py")) <= 10
    _, _, script = (EXAMPLES / "page" / "page.html").read_text().partition("<script")
    assert len(script.splitlines()) <= 10


def test_every_example_is_in_the_list() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    for entry in EXAMPLES.iterdir():
        if entry.name not in ("README.md", "__init__.py", "__pycache__"):
            assert f"`{entry.name}{'/' if entry.is_dir() else ''}`" in listed
