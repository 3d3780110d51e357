"""`jobwire doctor` checks the models: local weights, or a server that answers (O-7, J-51)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from jobwire.local import free_port
from tests.cli.runner import jobwire
from tests.handlers.llm.conftest import KEY
from tests.handlers.llm.no_model import without_models
from tests.handlers.llm.upstream import Act, Upstream, answers, refuses, says, vectors
from tests.support import clause
from tests.support.shared_server import Facts

Finding = dict[str, str]


def doctor(folder: Path, **env: str) -> tuple[int, dict[str, Finding], str]:
    """The exit code, the findings by name, and all that was printed."""
    done = jobwire("doctor", cwd=folder, env=env)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, {line["check"]: line for line in lines}, done.stdout + done.stderr


@clause("O-7", "J-51")
def test_o7_weights_on_this_machine_are_found(tmp_path: Path) -> None:
    code, found, _ = doctor(tmp_path)
    assert code == 0
    assert found["model"]["found"] == "smollm2-135m-instruct, in a child process of the worker"
    assert found["embeddings"]["found"] == "all-minilm-l6-v2, in a child process of the worker"
    assert {found[name]["verdict"] for name in ("model", "embeddings")} == {"ok"}


@clause("O-7", "J-51")
def test_o7_unused_weights_are_a_note(tmp_path: Path) -> None:
    """A machine that only submits jobs, or runs other handlers, does not need them."""
    code, found, _ = doctor(tmp_path, **without_models(tmp_path / "bare"))
    assert code == 0
    for name in ("model", "embeddings"):
        assert found[name]["verdict"] == "note"
        assert "is not installed" in found[name]["found"]
        assert "cannot run" in found[name]["why"]
        assert found[name]["fix"].startswith("pip install 'jobwire[llm]'")


@clause("O-7", "J-51")
@pytest.mark.parametrize(("content", "text"), [(None, "is not a file"), (b"PK", "is no GGUF file")])
def test_o7_a_configured_file_that_is_no_model_is_a_fault(
    tmp_path: Path, content: bytes | None, text: str
) -> None:
    if content is not None:
        (tmp_path / "mine.gguf").write_bytes(content)
    code, found, _ = doctor(tmp_path, JOBWIRE_LLM_MODEL_PATH="mine.gguf")
    assert (code, found["model"]["verdict"]) == (1, "fault")
    assert text in found["model"]["found"]
    assert "correct it" in found["model"]["fix"]


ANSWERS: dict[str, tuple[Act, int, str, str, str]] = {
    "well": (says("Hello"), 0, "ok", "its server responds", ""),
    "a wrong key": (
        refuses(401, f"wrong key {KEY}"),
        1,
        "fault",
        "rejected the API key",
        "llm.api_key",
    ),
    "an unknown model": (refuses(404, "no such model"), 1, "fault", "no such model", "llm.model"),
    "a wrong address": (answers(404, "<html>", "text/html"), 1, "fault", "(404)", "ends in /v1"),
    "a page": (answers(200, "<html>", "text/html"), 1, "fault", "text/html", "llm.base_url"),
    "no money": (refuses(429, "empty", "insufficient_quota"), 1, "fault", "used up", "another key"),
    "trouble": (refuses(503, "loading"), 3, "unreachable", "loading", "see the log of its server"),
}


@clause("O-7", "J-51")
@pytest.mark.parametrize("way", ANSWERS)
async def test_o7_a_chat_server_is_probed_with_a_request(tmp_path: Path, way: str) -> None:
    act, code, verdict, text, fix = ANSWERS[way]
    async with Upstream(act) as upstream:
        env = {"OPENAI_BASE_URL": upstream.url, "OPENAI_API_KEY": KEY, "OPENAI_MODEL": "tester"}
        output = await asyncio.to_thread(doctor, tmp_path, **env)
    exit_code, found, printed = output
    assert (exit_code, found["model"]["verdict"]) == (code, verdict)
    assert text in found["model"]["found"]
    assert fix in found["model"].get("fix", "")
    assert KEY not in printed
    assert [request.body["max_tokens"] for request in upstream.requests] == [16]


@clause("O-7", "J-51")
async def test_o7_an_embedding_server_is_probed_too(tmp_path: Path) -> None:
    async with Upstream(vectors([1.0, 2.0, 3.0]), refuses(403, "no")) as upstream:
        env = {"JOBWIRE_LLM_EMBED_BASE_URL": upstream.url, "JOBWIRE_LLM_EMBED_MODEL": "e"}
        code, found, _ = await asyncio.to_thread(doctor, tmp_path, **env)
        assert (code, found["embeddings"]["verdict"]) == (0, "ok")
        assert found["embeddings"]["found"] == "its server returns vectors of 3 numbers"
        code, found, _ = await asyncio.to_thread(doctor, tmp_path, **env)
    assert (code, found["embeddings"]["verdict"]) == (1, "fault")
    assert found["embeddings"]["fix"] == "set llm.embed_api_key"


@clause("O-7", "J-51")
def test_o7_an_unreachable_model_server_is_exit_3(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    code, found, _ = doctor(tmp_path, OPENAI_BASE_URL=url, OPENAI_MODEL="tester")
    assert (code, found["model"]["verdict"]) == (3, "unreachable")
    assert "cannot be reached" in found["model"]["found"]
    assert "llm.base_url (OPENAI_BASE_URL)" in found["model"]["fix"]
    code, found, _ = doctor(tmp_path, OPENAI_BASE_URL=url)
    assert (code, found["model"]["fix"]) == (1, "set llm.model (OPENAI_MODEL)")


@clause("O-7", "J-51")
def test_o7_a_real_server_and_its_key(tmp_path: Path, llama: Facts) -> None:
    env = {
        "OPENAI_BASE_URL": f"{llama['chat']}/v1",
        "OPENAI_MODEL": "smollm2",
        "OPENAI_API_KEY": KEY,
        "JOBWIRE_LLM_EMBED_BASE_URL": f"{llama['embed']}/v1",
        "JOBWIRE_LLM_EMBED_MODEL": "minilm",
        "JOBWIRE_LLM_EMBED_API_KEY": KEY,
    }
    code, found, _ = doctor(tmp_path, **env)
    assert (code, found["model"]["verdict"], found["embeddings"]["verdict"]) == (0, "ok", "ok")
    assert found["embeddings"]["found"] == "its server returns vectors of 384 numbers"
    code, found, _ = doctor(tmp_path, **env | {"OPENAI_API_KEY": "not-it"})
    assert (code, found["model"]["verdict"], found["embeddings"]["verdict"]) == (1, "fault", "ok")
    assert found["model"]["fix"] == "set llm.api_key (OPENAI_API_KEY)"
