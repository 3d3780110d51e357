"""The six tasks on real models: on the local model, and over HTTP on llama.cpp's own server.

The content of the answers of a model of 135 million parameters is not checked; their form and
events are.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.handlers.llm.recorder import Bench
from tests.support import clause

# One process loads the local model for all of these.
pytestmark = pytest.mark.xdist_group("local-model")
SURE = {"temperature": 0}
"""A server's default temperature may be random."""
MANUAL = [
    {"id": "pump", "text": "The pump needs service every 500 hours."},
    {"id": "terms", "text": "The warranty lasts 24 months from delivery."},
]


@pytest.fixture(params=["local", "over_http"])
def bench(request: pytest.FixtureRequest) -> Bench:
    made: Bench = request.getfixturevalue(request.param)
    return made


@clause("J-50")
async def test_j50_chat_streams_tokens(bench: Bench) -> None:
    # The model is sure of this answer: other instructions of the processor, or other prompts in its
    # cache, change the last digits, and with them an answer that it is less sure of.
    record = await bench.run(
        "chat", {"prompt": "What is the capital of Japan?", "max_tokens": 16, **SURE}
    )
    assert set(record.result) == {"text", "finish_reason", "usage", "model"}
    assert "Tokyo" in record.result["text"]
    assert record.text() == record.result["text"]
    assert record.result["finish_reason"] in ("stop", "length")
    assert record.result["usage"]["completion_tokens"] <= 16
    assert "smollm2" in record.result["model"]
    assert {event.step for event in record.events} == {"llm.generate"}
    assert all(set(data) == {"text", "at", "attempt"} for data in record.of("token"))


@clause("J-50")
async def test_j50_chat_takes_a_whole_conversation(bench: Bench) -> None:
    messages: list[dict[str, str]] = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "What is the capital of France?"},
        {"role": "assistant", "content": "The capital of France is Paris."},
        {"role": "user", "content": "And of Italy?"},
    ]
    record = await bench.run("chat", {"messages": messages, "max_tokens": 12, **SURE})
    assert record.text() == record.result["text"] != ""


@clause("J-50")
async def test_j50_plan_reports_each_step(bench: Bench) -> None:
    # Without a grammar a small model may use all of max_tokens: allow enough for two steps.
    record = await bench.run(
        "plan", {"goal": "Bake bread", "max_steps": 2, "max_tokens": 64, **SURE}
    )
    steps = record.result["steps"]
    assert record.result["goal"] == "Bake bread"
    assert 1 <= len(steps) <= 2
    assert [step["n"] for step in steps] == [*range(1, len(steps) + 1)]
    assert record.of("step") == steps
    assert record.result["dropped_duplicates"] >= 0
    assert record.of("token") == []


@clause("J-50")
async def test_j50_code_is_written_and_parsed_but_not_run(bench: Bench) -> None:
    record = await bench.run(
        "code", {"prompt": "Write a function is_even(n).", "max_tokens": 32, **SURE}
    )
    assert "def is_even(n)" in record.result["code"]
    assert "```" not in record.result["code"]
    assert record.result["language"] == "python"
    assert record.result["syntax_ok"] is True
    assert record.text() == record.result["text"]


@clause("J-50", "K-1")
async def test_j50_tool_finds_its_function_and_runs_it(bench: Bench) -> None:
    asked = {"prompt": "add_numbers(17, 25)", "run": True, "max_tokens": 64, **SURE}
    record = await bench.run("tool", asked)
    assert record.result["tool"] == "add_numbers"
    assert record.result["ran"] is True
    arguments: dict[str, Any] = record.result["arguments"]
    assert record.result["output"] == arguments["a"] + arguments["b"]
    assert record.of("tool_call") == [{"name": "add_numbers", "arguments": arguments}]
    (event,) = record.of("tool_result")
    assert (event["name"], event["ok"], event["result"]) == (
        "add_numbers",
        True,
        record.result["output"],
    )


@clause("J-50")
async def test_j50_rag_quotes_the_sources_verbatim(bench: Bench) -> None:
    question = {
        "question": "How long is the warranty?",
        "documents": MANUAL,
        "max_tokens": 96,
        **SURE,
    }
    record = await bench.run("rag", question)
    kinds = [event.kind for event in record.events]
    assert kinds[0] == "sources"
    (sources,) = record.of("sources")
    assert sources["items"][0]["id"] == "terms"
    assert sources["items"][0]["text"] == "The warranty lasts 24 months from delivery."
    everything = " ".join(document["text"] for document in MANUAL)
    for citation in record.result["citations"]:
        assert citation["quote"] in everything
    assert record.result["found"] is bool(record.result["citations"])


@clause("J-50")
async def test_j50_rag_on_the_local_model_answers_with_the_source(local: Bench) -> None:
    record = await local.run("rag", {"question": "How long is the warranty?", "documents": MANUAL})
    assert record.result["answer"] == "The warranty lasts 24 months from delivery."
    (citation,) = record.result["citations"]
    assert (citation["id"], citation["quote"]) == ("terms", record.result["answer"])
    assert record.result["found"] is True
    assert record.text() == record.result["answer"]


@clause("J-50")
async def test_j50_rag_reports_when_the_sources_have_no_answer(bench: Bench) -> None:
    record = await bench.run("rag", {"question": "Who won the world cup?", "documents": MANUAL})
    assert record.result["answer"] == "The sources do not say."
    assert (record.result["citations"], record.result["found"]) == ([], False)
    assert len(record.of("sources")) == 1


@clause("J-50")
async def test_j50_embed_returns_comparable_vectors(bench: Bench) -> None:
    texts = ["a cat sleeps", "a kitten is napping", "the stock market fell"]
    record = await bench.run("embed", {"input": texts})
    assert record.result["dim"] == 384
    cat, kitten, market = record.result["vectors"]
    assert _dot(cat, cat) == pytest.approx(1, abs=1e-3)
    assert _dot(cat, kitten) > _dot(cat, market) + 0.2
    assert record.result["usage"]["total_tokens"] > 0
    assert "minilm" in record.result["model"]


async def test_the_local_vectors_equal_published_values(local: Bench) -> None:
    """The first numbers for this sentence, as the model's authors print them."""
    record = await local.run("embed", {"input": "This is an example sentence"})
    first = record.result["vectors"][0][:4]
    assert first == pytest.approx([0.0677, 0.0635, 0.0487, 0.0793], abs=5e-4)


@clause("J-50")
def test_j50_every_task_has_a_schema_and_an_example(local: Bench) -> None:
    """That the examples work is shown by `test_up.py`, which submits them."""
    assert [card.name for card in local.app.task_definitions] == [
        "chat",
        "plan",
        "code",
        "tool",
        "rag",
        "embed",
    ]
    for card in local.app.task_definitions:
        assert msgspec.json.decode(card.example_json)
        assert msgspec.json.decode(card.schema_json)["$ref"].endswith(f"{card.name.title()}Payload")


def _dot(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
