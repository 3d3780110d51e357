"""The README: every command and program of it works."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cli.runner import clean_env
from tests.docs.pages import Block, blocks
from tests.fleet.runner import Fleet
from tests.support import clause
from tests.support.program import ROOT

_BLOCKS: Final = blocks(ROOT / "README.md")
_PYTHON: Final = [block for block in _BLOCKS if block.language == "python"]


def _with(text: str, among: list[Block]) -> Block:
    return next(block for block in among if text in block.text)


def _short(text: str) -> str:
    """The same, for a few words of answer: one whole answer of the small model is enough."""
    whole, short = 'sky blue?"}', 'sky blue?", "max_tokens": 8}'
    assert whole in text
    return text.replace(whole, short)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A gateway, and a worker with the page's own handler and the six tasks."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "shop.py").write_text(_with("App()", _PYTHON).text)
    with Fleet(folder) as fleet:
        fleet.start_gateway()
        args = ("worker", "shop:app", "--tasks")
        fleet.start(*args, env={"PYTHONPATH": str(folder)}).wait_for_line("worker with")
        yield fleet


def _shell(line: str, fleet: Fleet) -> str:
    """Run a line of the page in a shell."""
    here = Path(sys.executable).parent
    env = clean_env(**fleet.env)
    done = subprocess.run(
        line.replace("localhost:8080", f"127.0.0.1:{fleet.port}"),
        shell=True,
        env={**env, "PATH": f"{here}:{env['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    return done.stdout


@clause("O-12")
def test_the_first_commands_of_the_readme_work(running: Fleet) -> None:
    submit, post, watch = _with("--follow", _BLOCKS).commands()
    assert json.loads(_shell(submit, running).splitlines()[-1])["result"]["text"]
    job_id = json.loads(_shell(_short(post).replace("curl", "curl -s"), running))["job_id"]
    output = _shell(watch.replace("JOB_ID", job_id), running)
    assert output.startswith("event: hello\n")
    assert "\nevent: done\n" in output


@clause("O-12")
def test_the_program_of_the_readme_prints_an_answer(running: Fleet) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _short(_with("Client()", _PYTHON).text)],
        env=clean_env(**running.env),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.strip()


@clause("O-12")
def test_the_handler_of_the_readme_runs(running: Fleet) -> None:
    output = _shell("""jobwire submit resize '{"file": "cat.jpg"}' --follow""", running)
    events = [json.loads(line) for line in output.splitlines()]
    assert {"percent": 50, "message": "half way"} in [event.get("data") for event in events]
    assert events[-1]["result"] == {"file": "cat.jpg"}


@clause("O-12")
def test_the_curl_commands_of_the_readme_work(running: Fleet) -> None:
    curls = [line for line in _with("/readyz", _BLOCKS).commands() if line.startswith("curl")]
    assert len(curls) == 3
    for line in curls:
        assert _shell(line.replace("curl", "curl -sf"), running)
