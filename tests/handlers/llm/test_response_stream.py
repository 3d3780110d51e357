"""Reading the stream of an answer: it is complete only with a finish reason and never with a piece
missing; other deviations of servers are tolerated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from jobwire.job.errors import Retry
from tests.handlers.llm.recorder import Bench
from tests.handlers.llm.upstream import (
    DONE,
    USAGE,
    Act,
    Line,
    Upstream,
    delta,
    ends_without_length,
    event,
    says,
    streams,
    waits,
)
from tests.support import clause, wait_until

BenchAt = Callable[..., Bench]
HI = {"prompt": "Hi", "max_tokens": 8}

BROKEN: dict[str, tuple[Act, str]] = {
    "cut in the middle": (streams(delta("Hello wor"), cut=True), "backend_stream_cut"),
    "a clean end without a reason": (streams(delta("Hello wor")), "backend_stream_cut"),
    "[DONE] without a reason": (streams(delta("Hello wor"), DONE), "backend_stream_cut"),
    "a last line that is half": (
        ends_without_length(delta("Hello wor"), delta("ld", "stop")[:-20]),
        "backend_stream_cut",
    ),
    "a stall": (streams(delta("Hello wor"), then=waits), "backend_timeout"),
    "an ended reason": (
        streams(delta("Hello wor"), delta("", "error"), DONE),
        "backend_stream_cut",
    ),
}

IDLE = {True: timedelta(seconds=0.3), False: timedelta(seconds=60)}
"""Short only where it is to be reached."""
ROLE = event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})


@clause("J-51")
@pytest.mark.parametrize("way", BROKEN)
async def test_j51_a_broken_answer_starts_over(bench_at: BenchAt, way: str) -> None:
    act, code = BROKEN[way]
    async with Upstream(act, says("Good ", "day")) as upstream:
        bench = bench_at(upstream.url, idle_timeout=IDLE[way == "a stall"])
        record = await bench.run("chat", HI)
    assert record.result["text"] == record.text() == "Good day"
    (reset,) = record.of("reset")
    assert (reset["attempt"], reset["reason"]) == (1, code)
    kinds = [event.kind for event in record.events]
    assert kinds.index("token") < kinds.index("reset") < len(kinds) - 1
    assert len(upstream.requests) == 2


@clause("J-51")
@pytest.mark.parametrize("way", BROKEN)
async def test_j51_the_partial_answer_is_kept_after_the_last_retry(
    bench_at: BenchAt, way: str
) -> None:
    act, code = BROKEN[way]
    async with Upstream(act) as upstream:
        bench = bench_at(upstream.url, idle_timeout=IDLE[way == "a stall"])
        context, _ = bench.context("chat", HI)
        with pytest.raises(Retry) as failed:
            await bench.handle(context)
    assert failed.value.code == code
    assert context.partial == "Hello wor"
    assert len(upstream.requests) == 2


@clause("J-51")
async def test_j51_slow_headers_are_retried_once(bench_at: BenchAt) -> None:
    async with Upstream(waits) as upstream:
        bench = bench_at(upstream.url, first_token_timeout=timedelta(seconds=0.3))
        with pytest.raises(Retry) as failed:
            await bench.run("chat", HI)
        assert failed.value.code == "backend_timeout"
        assert len(upstream.requests) == 2
        await wait_until(lambda: upstream.left == 2, "both connections to be closed")


@clause("K-3")
@pytest.mark.parametrize("sign", [b": still here\n\n", ROLE])
async def test_k3_any_bytes_are_a_sign_of_life(bench_at: BenchAt, sign: bytes) -> None:
    """A reasoning model may think for minutes: comments and role chunks come meanwhile."""

    def act(count: float) -> Act:
        async def thinks(line: Line) -> None:
            await line.head(content_type="text/event-stream", transfer_encoding="chunked")
            sent = 0
            while sent < count:
                sent += 1
                await line.chunk(sign)
                await asyncio.sleep(0.5)
            for chunk in (delta("Hello", "stop"), DONE, b""):
                await line.chunk(chunk)

        return thinks

    limits = {
        "first_token_timeout": timedelta(seconds=4),
        "idle_timeout": timedelta(seconds=0.3),
    }
    async with Upstream(act(9)) as upstream:
        record = await bench_at(upstream.url, **limits).run("chat", HI)
    assert (record.result["text"], len(upstream.requests)) == ("Hello", 1)
    async with Upstream(act(float("inf"))) as upstream:  # until the time of the whole answer
        with pytest.raises(Retry, match="longer than 2 s"):
            await bench_at(upstream.url, **limits).run("chat", {**HI, "timeout_s": 2})


@clause("K-3")
async def test_k3_without_a_callers_limit_none_is_sent(bench_at: BenchAt) -> None:
    async with Upstream(says("Hello")) as upstream:
        bench = bench_at(upstream.url)
        await bench.run("chat", {"prompt": "Hi"})
        await bench.run("chat", {"prompt": "Hi", "max_tokens": 7})
    assert [each.body.get("max_tokens") for each in upstream.requests] == [None, 7]


@clause("K-3")
async def test_k3_reasoning_that_only_ends_is_held_back_once_it_is_known(bench_at: BenchAt) -> None:
    """Its template has the opening tag, so the text begins with reasoning."""
    thinks = says("Let me see.\nYes.\n", "</think>\n", "Hello")
    async with Upstream(thinks, thinks, says("Plain ", "text"), says("More ", "text")) as upstream:
        bench = bench_at(upstream.url)
        first = await bench.run("chat", HI)
        assert [len(first.of("reset")), first.text()] == [1, "Hello"]
        second = await bench.run("chat", HI)
        assert [len(second.of("reset")), second.text()] == [0, "Hello"]
        assert second.result["reasoning"] == first.result["reasoning"] == "Let me see.\nYes.\n"
        for text in ("Plain text", "More text"):
            assert (await bench.run("chat", HI)).text() == text


@clause("K-3")
async def test_k3_a_model_that_is_named_for_reasoning_is_held_back_at_once(
    bench_at: BenchAt,
) -> None:
    """What a client was sent as the answer cannot be taken back."""
    model = "DeepSeek-R1-Distill-Qwen-7B"
    thinks = says("Let me see.\nYes.\n", "</think>\n", "Hello")
    async with Upstream(thinks, says("Plain ", "text")) as upstream:
        bench = bench_at(upstream.url)
        first = await bench.run("chat", {**HI, "model": model})
        assert [len(first.of("reset")), first.text()] == [0, "Hello"]
        assert first.result["reasoning"] == "Let me see.\nYes.\n"
        assert (await bench.run("chat", {**HI, "model": model})).text() == "Plain text"


WELL: dict[str, Act] = {
    "a reason, but no [DONE]": streams(delta("Hello"), delta("", "stop")),
    "a reason, then a cut": streams(delta("Hello"), delta("", "stop"), cut=True),
    "the end of the connection": ends_without_length(delta("Hello"), delta("", "stop")),
    "a last line without its end": ends_without_length(delta("Hello"), delta("", "stop")[:-2]),
    "comments": streams(b": ping\n\n", delta("Hel"), b": ping\n\n", delta("lo", "stop"), DONE),
    "CRLF": streams((delta("Hello") + delta("", "stop") + DONE).replace(b"\n", b"\r\n")),
    "no space": streams((delta("Hello") + delta("", "stop")).replace(b"data: ", b"data:"), DONE),
    "no empty lines": streams((delta("Hello") + delta("", "stop")).replace(b"\n\n", b"\n"), DONE),
    "other fields": streams(b"event: x\nid: 3\nretry: 5\n" + delta("Hello", "stop"), DONE),
    "bytes one by one": streams(*(bytes([each]) for each in delta("Hello", "stop") + DONE)),
    "chunks without choices": streams(event({"object": "x"}), delta("Hello", "stop"), DONE),
    "another choice beside it": streams(
        event({"choices": [{"index": 1, "delta": {"content": "no"}}]}), delta("Hello", "stop"), DONE
    ),
}


@clause("J-51")
@pytest.mark.parametrize("way", WELL)
async def test_j51_complete_answers_in_all_formats_are_read(bench_at: BenchAt, way: str) -> None:
    async with Upstream(WELL[way]) as upstream:
        record = await bench_at(upstream.url).run("chat", HI)
    assert record.result["text"] == record.text() == "Hello"
    assert record.result["finish_reason"] == "stop"
    assert record.of("reset") == []
    assert len(upstream.requests) == 1


@clause("J-51")
async def test_j51_characters_split_between_two_reads_stay_whole(bench_at: BenchAt) -> None:
    whole = event({"choices": [{"delta": {"content": "naïve 🙂"}}]}).replace(
        b"na\\u00efve \\ud83d\\ude42", "naïve 🙂".encode()
    )
    at = whole.index("🙂".encode()) + 2
    async with Upstream(streams(whole[:at], whole[at:], delta("", "stop"), DONE)) as upstream:
        record = await bench_at(upstream.url).run("chat", HI)
    assert record.text() == "naïve 🙂"


@clause("J-50")
async def test_j50_an_answer_cut_by_max_tokens_is_a_result(bench_at: BenchAt) -> None:
    async with Upstream(says("The cap", finish="length")) as upstream:
        record = await bench_at(upstream.url).run("chat", HI)
    assert record.result == {
        "text": "The cap",
        "finish_reason": "length",
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
        "model": "tester",
    }


@clause("J-50")
async def test_j50_a_server_without_usage(bench_at: BenchAt) -> None:
    async with Upstream(streams(delta("Yes", "stop"), DONE)) as upstream:
        record = await bench_at(upstream.url).run("chat", HI)
    assert record.result["usage"] is None


@clause("J-50")
async def test_j50_a_server_with_partial_usage(bench_at: BenchAt) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": None}
    act = streams(delta("Yes", "stop"), event({"choices": [], "usage": usage}), DONE)
    async with Upstream(act) as upstream:
        record = await bench_at(upstream.url).run("chat", HI)
    assert record.result["usage"] == {"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3}


@clause("J-51")
async def test_j51_a_finished_answer_is_not_delayed(bench_at: BenchAt) -> None:
    """The finish reason has arrived and the usage does not: this is not an error."""
    async with Upstream(streams(delta("Yes", "stop"), USAGE, then=_says_done_later)) as upstream:
        record = await bench_at(upstream.url, idle_timeout=timedelta(seconds=0.2)).run("chat", HI)
    assert record.result["usage"]["total_tokens"] == 7


async def _says_done_later(line: Line) -> None:
    await asyncio.sleep(0.4)
    await line.chunk(DONE)
    await line.chunk(b"")
