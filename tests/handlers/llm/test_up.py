"""`jobwire up` with default settings: all six tasks answer over HTTP with live events, on the local
models and on llama.cpp's own server."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.cli.runner import Up
from tests.handlers.llm.conftest import KEY
from tests.handlers.llm.recorder import Event, text_of
from tests.support import clause
from tests.support.jobs_http import EventReader
from tests.support.shared_server import Facts
from tests.support.variants import variants

EXPECTED = {
    "chat": ("token", "llm.generate"),
    "plan": ("step", "plan.step"),
    "code": ("token", "llm.generate"),
    "tool": ("tool_result", "tool.run"),
    "rag": ("sources", "rag.retrieve"),
}
SHORT: dict[str, dict[str, object]] = {"chat": {"max_tokens": 8}, "plan": {"max_steps": 2}}
"""Enough of an answer to see that it is one."""
MEMBERS = {
    "chat": {"text", "finish_reason", "usage", "model"},
    "plan": {"goal", "steps", "dropped_duplicates", "usage", "model"},
    "code": {"code", "language", "text", "syntax_ok", "usage", "model"},
    "tool": {
        "tool",
        "arguments",
        "chosen_by",
        "score",
        "ran",
        "output",
        "confirm",
        "usage",
        "model",
    },
    "rag": {"answer", "citations", "found", "usage", "model"},
    "embed": {"model", "dim", "vectors", "usage"},
}


@clause("J-50", "J-10", "J-15")
@pytest.mark.parametrize("driver", ["local", *variants("endpoint")])
def test_j50_up_has_all_six_tasks_working(
    request: pytest.FixtureRequest, tmp_path: Path, cache_dir: Path, driver: str
) -> None:
    env, only = {"JOBWIRE_LLM_CACHE_DIR": str(cache_dir)}, list[str]()
    if driver == "endpoint":
        only = ["--only", "jobs"]
        llama: Facts = request.getfixturevalue("llama")
        env |= {
            "OPENAI_BASE_URL": f"{llama['chat']}/v1",
            "OPENAI_API_KEY": KEY,
            "OPENAI_MODEL": "smollm2",
            "JOBWIRE_LLM_EMBED_BASE_URL": f"{llama['embed']}/v1",
            "JOBWIRE_LLM_EMBED_API_KEY": KEY,
            "JOBWIRE_LLM_EMBED_MODEL": "minilm",
        }
    with Up(tmp_path, *only, env=env) as up:
        up.wait_until_up()
        with httpx.Client(base_url=up.url, timeout=90, trust_env=False) as client:
            listed: dict[str, Any] = {
                each["name"]: each for each in client.get("/v1/tasks").json()["tasks"]
            }
            for task, members in MEMBERS.items():
                assert listed[task]["schema"]["$ref"].endswith(f"{task.title()}Payload")
                options = {"temperature": 0, "max_tokens": 96, **SHORT.get(task, {})}
                payload = {**listed[task]["example"], **options}
                job_id = client.post("/v1/jobs", json={"task": task, "payload": payload}).json()[
                    "job_id"
                ]
                events = _watched(up.url, job_id)
                job = client.get(f"/v1/jobs/{job_id}").json()
                assert (job["status"], job["error"]) == ("done", None), task
                assert job["result"].keys() == members
                _check(task, job["result"], events)


def _watched(url: str, job_id: str) -> list[Event]:
    """All events, from the first to the end of the stream."""
    port = urlsplit(url).port
    assert port is not None
    with EventReader(port, f"/v1/jobs/{job_id}/events", {}) as reader:
        hello, *rest = reader.rest()
    assert hello.name == "hello"
    events_data: list[Any] = [each.data for each in rest]
    assert [each.name for each in rest] == [data["type"] for data in events_data]
    return [Event(data["type"], data["data"], data["step"]) for data in events_data]


def _check(task: str, result: dict[str, Any], events: list[Event]) -> None:
    kinds = [event.kind for event in events]
    assert kinds[:2] == ["queued", "running"], task
    assert kinds[-1] == "done", task
    assert {"reset", "retrying", "log"}.isdisjoint(kinds), task
    if task in EXPECTED:
        assert EXPECTED[task] in [(event.kind, event.step) for event in events], task
    if task in ("chat", "code"):
        assert text_of(events) == result["text"] != ""
    if task == "plan":
        assert [event.data for event in events if event.kind == "step"] == result["steps"] != []
    if task == "rag":
        assert kinds.index("sources") < kinds.index("token")
        assert text_of(events) == result["answer"]
