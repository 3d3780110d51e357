"""Parsing steps and code from a model's text."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from jobwire.handlers.llm.code import block, syntax_ok
from jobwire.handlers.llm.grammars import numbered_list
from jobwire.handlers.llm.plan import unique
from jobwire.job.errors import Fail
from tests.handlers.llm.recorder import Bench
from tests.handlers.llm.upstream import Upstream, delta, event, says, streams, waits
from tests.support import clause, wait_until

BenchAt = Callable[..., Bench]


def _in_pieces(text: str) -> list[str]:
    return [text[at : at + 7] for at in range(0, len(text), 7)]


# ── plan ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-50")
async def test_j50_a_plan_in_json_is_reported_step_by_step(bench_at: BenchAt) -> None:
    plan = json.dumps({"steps": ["1. Buy flour.", 'Say "go".', "3. Buy  Flour", "Bake."]})
    async with Upstream(says(*_in_pieces(plan))) as upstream:
        record = await bench_at(upstream.url).run(
            "plan", {"goal": "Bread", "max_steps": 4, "context": "No oven."}
        )
    assert record.result == {
        "goal": "Bread",
        "steps": [
            {"n": 1, "title": "Buy flour."},
            {"n": 2, "title": 'Say "go".'},
            {"n": 3, "title": "Bake."},
        ],
        "dropped_duplicates": 1,
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
        "model": "tester",
    }
    assert record.of("step") == record.result["steps"]
    asked = upstream.requests[0].body
    assert "No oven." in asked["messages"][1]["content"]
    assert asked["response_format"]["json_schema"]["strict"] is True


@clause("J-50")
@pytest.mark.parametrize("text", ["1. Mix.\n2. Bake.", "Here you are:\n- Mix.\n* Bake.\nEnjoy!"])
async def test_j50_a_plan_in_prose_is_parsed(bench_at: BenchAt, text: str) -> None:
    async with Upstream(says(text)) as upstream:
        record = await bench_at(upstream.url).run("plan", {"goal": "Bread"})
    assert [step["title"] for step in record.result["steps"]] == ["Mix.", "Bake."]


@clause("J-50")
@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        ({}, None),
        ({"timings": {"cache_n": 2, "prompt_n": 3, "predicted_n": 4}}, (5, 4, 9)),
        ({"usage": {"prompt_tokens": 5, "completion_tokens": 4}}, (5, 4, 9)),
    ],
    ids=["none", "llama.cpp", "with every chunk"],
)
async def test_j50_code_that_is_stopped_has_the_usage_so_far(
    bench_at: BenchAt, reported: dict[str, object], usage: tuple[int, ...] | None
) -> None:
    choice = {"delta": {"content": "```\nx = 1\n```\nThis code sets x to"}}
    chunk = event({"model": "tester", "choices": [choice], **reported})
    async with Upstream(streams(chunk, then=waits)) as upstream:
        record = await bench_at(upstream.url).run("code", {"prompt": "x?"})
    assert (record.result["code"], record.result["model"]) == ("x = 1", "tester")
    found = record.result["usage"]
    assert (found and tuple(found.values())) == usage


@clause("J-50")
@pytest.mark.parametrize(
    ("text", "finish", "code"),
    [
        ('{"steps": ["Mix.", "Ba', "length", "output_truncated"),
        ("I would rather not.", "stop", "output_invalid"),
        ('{"steps": []}', "stop", "output_invalid"),
    ],
)
async def test_j50_a_truncated_plan_is_an_error(
    bench_at: BenchAt, text: str, finish: str, code: str
) -> None:
    async with Upstream(says(text, finish=finish)) as upstream:
        bench = bench_at(upstream.url)
        context, _ = bench.context("plan", {"goal": "Bread"})
        with pytest.raises(Fail) as failed:
            await bench.handle(context)
    assert failed.value.code == code
    if code == "output_truncated":
        assert context.partial == ["Mix."]
        assert "max_tokens" in failed.value.message


@clause("J-50")
async def test_j50_more_steps_than_requested_are_cut(bench_at: BenchAt) -> None:
    plan = json.dumps({"steps": [f"Step {n}." for n in range(20)]})
    async with Upstream(says(*_in_pieces(plan))) as upstream:
        record = await bench_at(upstream.url).run("plan", {"goal": "Bread", "max_steps": 3})
    assert len(record.result["steps"]) == len(record.of("step")) == 3


def test_duplicate_steps_are_merged() -> None:
    assert unique(["Find a guitar.", "find a  guitar", "Play it."]) == [
        "Find a guitar.",
        "Play it.",
    ]


def test_a_list_has_at_least_two_lines_and_at_most_the_limit() -> None:
    rules = dict(line.split(" ::= ") for line in numbered_list(3).splitlines())
    assert rules["s1"] == '"1. " line "\\n" s2'
    assert rules["s2"] == '"2. " line ("\\n" s3)?'
    assert rules["s3"] == '"3. " line'


# ── code ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-50")
async def test_j50_the_model_is_stopped_at_the_end_of_the_code(bench_at: BenchAt) -> None:
    act = streams(delta("Sure!\n```python\nx = 1\n```\nThis code sets x to"), then=waits)
    async with Upstream(act) as upstream:
        record = await bench_at(upstream.url).run("code", {"prompt": "x?", "context": "y = 2"})
        await wait_until(lambda: upstream.left == 1, "the connection to be closed")
    assert record.result["code"] == "x = 1"
    assert record.result["syntax_ok"] is True
    assert "y = 2" in upstream.requests[0].body["messages"][1]["content"]


@clause("J-50")
@pytest.mark.parametrize(
    ("text", "finish", "code"),
    [
        ("```python\ndef half(", "length", "output_truncated"),
        ("  \n ", "stop", "output_invalid"),
    ],
)
async def test_j50_truncated_code_is_an_error(
    bench_at: BenchAt, text: str, finish: str, code: str
) -> None:
    async with Upstream(says(text, finish=finish)) as upstream:
        with pytest.raises(Fail) as failed:
            await bench_at(upstream.url).run("code", {"prompt": "x?"})
    assert failed.value.code == code


@clause("J-50")
async def test_j50_code_without_a_fence_is_taken_whole(bench_at: BenchAt) -> None:
    async with Upstream(says("def f(:\n  pass")) as upstream:
        record = await bench_at(upstream.url).run("code", {"prompt": "x?"})
    assert record.result["code"] == "def f(:\n  pass"
    assert record.result["syntax_ok"] is False


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```\na\n```", "a"),
        ("```python\na\n\nb\n```\nmore\n```\nc\n```", "a\n\nb"),
        ("```python\n```", ""),
        ("a list:\n  ```js\n  f()\n  ```", "f()"),
        ("```python\na", None),
        ("no fence", None),
        ("inline ```x``` only", None),
    ],
)
def test_the_first_fenced_block_is_the_code(text: str, code: str | None) -> None:
    assert block(text) == code


@pytest.mark.parametrize(
    ("source", "language", "verdict"),
    [
        ("x = '\\d'", "Python", True),
        ("x = ", "python", False),
        ("x = '\0'", "python", False),
        ("(" * 5000, "python", False),
        ("let x = 1", "javascript", None),
    ],
)
def test_syntax_is_checked_for_python_only(
    source: str, language: str, verdict: bool | None
) -> None:
    assert syntax_ok(source, language) is verdict


@clause("J-50")
async def test_j50_code_that_ends_early_has_its_usage(bench_at: BenchAt) -> None:
    async with Upstream(says("```python\nx = 1\n```\n", "That is all.")) as upstream:
        result = (await bench_at(upstream.url).run("code", {"prompt": "x"})).result
    assert (result["usage"]["total_tokens"], result["model"]) == (7, "tester")
