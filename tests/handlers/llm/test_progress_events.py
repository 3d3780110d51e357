"""Events while a model answers: joined tokens, prompt progress, steps, resets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobwire.handlers.llm.coalescing import MAX_CHARACTERS, MAX_DELAY_S, Coalescer
from jobwire.handlers.llm.json_extraction import closed_items, growing_string, json_object
from tests.handlers.llm.recorder import Bench, Event
from tests.handlers.llm.upstream import (
    DONE,
    Line,
    Upstream,
    delta,
    event,
    says,
    streams,
    waits,
)
from tests.support import clause, wait_until

BenchAt = Callable[..., Bench]


@clause("J-50")
def test_j50_tokens_are_flushed_after_24_characters_or_50_milliseconds() -> None:
    assert (MAX_CHARACTERS, MAX_DELAY_S) == (24, 0.05)
    waiting = Coalescer()
    assert waiting.due is None
    assert not waiting.add("12345678901234567890123", now=1.0)
    assert waiting.due == 1.05
    assert waiting.add("4", now=1.01)
    waiting.flush()
    assert waiting.due is None
    assert not waiting.add("a", now=2.0)
    assert not waiting.add("b", now=2.049)
    assert waiting.add("c", now=2.051)


@clause("J-50")
async def test_j50_many_pieces_make_few_events(bench_at: BenchAt) -> None:
    pieces = ["word "] * 200
    async with Upstream(says(*pieces)) as upstream:
        record = await bench_at(upstream.url).run("chat", {"prompt": "Hi"})
    assert record.text() == "word " * 200
    assert len(record.of("token")) <= 1 + 1000 / MAX_CHARACTERS


@clause("J-50")
async def test_j50_a_token_is_published_without_waiting_for_the_next(bench_at: BenchAt) -> None:
    """A token is published although the next one does not arrive."""
    heard: list[Event] = []

    async def when_heard(line: Line) -> None:
        await wait_until(lambda: heard, "the first token to be published")
        await line.chunk(delta(" there", "stop") + DONE)
        await line.chunk(b"")

    async with Upstream(streams(delta("Hi"), then=when_heard)) as upstream:
        bench = bench_at(upstream.url)
        record = await bench.run("chat", {"prompt": "Hi"}, hear=heard.append)
    assert heard[0].data == {"text": "Hi", "at": 0, "attempt": 1}
    assert record.text() == "Hi there"
    assert len(upstream.requests) == 1, "published only because the response broke off"


@clause("J-50")
async def test_j50_a_very_long_token_is_split_into_events(bench_at: BenchAt) -> None:
    async with Upstream(says("\x07" * 100_000)) as upstream:
        record = await bench_at(upstream.url).run("chat", {"prompt": "Hi"})
    assert record.text() == "\x07" * 100_000


@clause("J-50")
async def test_j50_a_further_delivery_starts_with_a_reset(bench_at: BenchAt) -> None:
    """A worker died in the middle of an answer: its tokens are in the job's events already."""
    async with Upstream(says("Hello")) as upstream:
        bench = bench_at(upstream.url)
        taken_over = await bench.run("chat", {"prompt": "Hi"}, deliveries=2)
        retried = await bench.run("chat", {"prompt": "Hi"}, attempt=2, deliveries=2)
        fresh = await bench.run("chat", {"prompt": "Hi"})
    assert [each.kind for each in taken_over.events] == ["reset", "token"]
    assert retried.of("reset")[0]["attempt"] == 2
    assert retried.of("token") == [{"text": "Hello", "at": 0, "attempt": 2}]
    assert fresh.of("reset") == []


@clause("J-50")
async def test_j50_reading_a_long_prompt_reports_progress(bench_at: BenchAt) -> None:
    def read(done: int, total: int) -> bytes:
        return event({"choices": [], "prompt_progress": {"processed": done, "total": total}})

    act = streams(read(0, 512), read(128, 512), read(512, 512), delta("Yes", "stop"), DONE)
    async with Upstream(act) as upstream:
        record = await bench_at(upstream.url).run("chat", {"prompt": "Hi"})
    assert [(each["percent"], each["done"], each["total"]) for each in record.of("progress")] == [
        (25, 128, 512),
        (100, 512, 512),
    ]


@clause("J-50")
@pytest.mark.xdist_group("local-model")
async def test_j50_the_local_model_reports_prompt_progress(local: Bench) -> None:
    prompt = "The quick brown fox jumps over the lazy dog. " * 28
    record = await local.run("chat", {"prompt": prompt, "max_tokens": 4})
    read = [each["done"] for each in record.of("progress")]
    assert len(read) >= 2
    assert read == sorted(read)
    assert {each.step for each in record.events if each.kind == "progress"} == {"llm.prompt"}


@clause("J-51")
async def test_j51_only_llama_cpp_gets_return_progress(bench_at: BenchAt) -> None:
    """A strict server refuses members that it does not know."""

    async def as_llama(line: Line) -> None:
        await line.head(server="llama.cpp", content_type="text/event-stream", connection="close")
        await line.raw(delta("Yes", "stop") + DONE)

    async with Upstream(says("Yes"), as_llama, says("Yes")) as upstream:
        bench = bench_at(upstream.url)
        for _ in range(3):
            await bench.run("chat", {"prompt": "Hi"})
    asked = [request.body.get("return_progress") for request in upstream.requests]
    assert asked == [None, None, True]


@clause("J-51")
async def test_j51_cancelling_closes_the_connection_at_once(bench_at: BenchAt) -> None:
    async with Upstream(streams(delta("Hello wor"), then=waits)) as upstream:
        bench = bench_at(upstream.url)
        context, outlet = bench.context("chat", {"prompt": "Hi"})
        job = asyncio.ensure_future(bench.handle(context))
        await wait_until(lambda: outlet.events, "the first token")
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        await wait_until(lambda: upstream.left == 1, "the connection to be closed")
    assert context.partial == "Hello wor"


@clause("J-51")
@pytest.mark.parametrize("moment", ["before the headers", "between two tries"])
async def test_j51_cancelling_never_waits(bench_at: BenchAt, moment: str) -> None:
    acts = {"before the headers": waits, "between two tries": streams(delta("x"), cut=True)}
    async with Upstream(acts[moment]) as upstream:
        bench = bench_at(upstream.url)
        context, outlet = bench.context("chat", {"prompt": "Hi"})
        job = asyncio.ensure_future(bench.handle(context))
        reached = {
            "before the headers": lambda: upstream.requests,
            "between two tries": lambda: "reset" in [each.kind for each in outlet.events],
        }
        await wait_until(reached[moment], moment)
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
    assert len(upstream.requests) == 1


# ── parsing incomplete JSON ──────────────────────────────────────────────────────────────────────


@settings(max_examples=40)
@given(st.lists(st.text(max_size=30), max_size=5), st.text(max_size=30), st.booleans())
def test_a_partial_object_is_parsed_as_a_prefix_of_the_whole(
    steps: list[str], answer: str, ascii_only: bool
) -> None:
    whole = json.dumps({"answer": answer, "steps": steps}, ensure_ascii=ascii_only)
    shown = answer.encode("utf-8", "replace").decode()
    before = ""
    for end in range(len(whole) + 1):
        half = whole[:end]
        now = growing_string(half, "answer")
        assert shown.startswith(now)
        assert now.startswith(before), "parsed values never change"
        before = now
        closed = closed_items(half, "steps")
        assert closed == [each.encode("utf-8", "replace").decode() for each in steps[: len(closed)]]
    assert before == shown
    assert len(closed_items(whole, "steps")) == len(steps)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Sure:\n```json\n{"a": {"b": 2}}\n```\nEnjoy', {"a": {"b": 2}}),
        ("[1, 2]", None),
        ("no object", None),
        ("}{", None),
        ('{"a": ', None),
    ],
)
def test_an_object_is_found_in_prose(text: str, found: object) -> None:
    assert json_object(text) == found
