"""A failure of a model server becomes a retry or an error with a code: each known failure, against
a real HTTP server that fails in this way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from jobwire.handlers.llm import LlmSettings
from jobwire.job.errors import Fail, Retry
from jobwire.local import free_port
from tests.handlers.llm.conftest import KEY
from tests.handlers.llm.recorder import Bench
from tests.handlers.llm.upstream import (
    DONE,
    Act,
    Upstream,
    answers,
    delta,
    event,
    hangs_up,
    refuses,
    says,
    streams,
    waits,
)
from tests.support import clause
from tests.support.tls import own_certificate

BenchAt = Callable[..., Bench]
HI = {"prompt": "Hi", "max_tokens": 8}


# ── permanent errors ─────────────────────────────────────────────────────────────────────────────

PERMANENT_FAILURES: dict[str, tuple[Act, str, str]] = {
    "401": (refuses(401, "Incorrect key"), "backend_auth", "OPENAI_API_KEY"),
    "403": (refuses(403, "Not for you"), "backend_auth", "Not for you"),
    "402": (refuses(402, "Pay first"), "backend_quota", "Pay first"),
    "404 of a model": (refuses(404, "no model x"), "model_not_found", "no model x"),
    "404 of a page": (answers(404, "<html>", "text/html"), "model_not_found", "OPENAI_BASE_URL"),
    "429 for the quota": (
        refuses(429, "You exceeded your quota", "insufficient_quota"),
        "backend_quota",
        "You exceeded your quota",
    ),
    "a prompt too long": (
        refuses(400, "This model's maximum context length", "context_length_exceeded"),
        "context_too_long",
        "maximum context length",
    ),
    "a prompt too long, in other words": (
        answers(
            400,
            {"object": "error", "message": "maximum context length is 9 tokens", "code": 400},
        ),
        "context_too_long",
        "9 tokens",
    ),
    "a filtered prompt": (refuses(400, "policy", "content_filter"), "content_filtered", "policy"),
    "a moved server": (
        answers(308, "", location="/elsewhere"),
        "backend_bad_response",
        "elsewhere",
    ),
    "200 with HTML": (
        answers(200, "<html>Welcome</html>", "text/html"),
        "backend_bad_response",
        "text/html",
    ),
    "200 with an error": (
        refuses(200, "no such thing", "model_not_found"),
        "model_not_found",
        "no such thing",
    ),
    "a line that is no JSON": (
        streams(delta("Hello"), b"data: {oops\n\n", delta("", "stop"), DONE),
        "backend_bad_response",
        "{oops",
    ),
    "a line without end": (
        streams(b"data: " + b"x" * 2_000_000),
        "backend_bad_response",
        "megabyte",
    ),
    "an answer without end": (
        streams(*[delta("x" * 200_000)] * 6, then=waits),
        "backend_bad_response",
        "longer than 1 MiB",
    ),
    "a filtered answer": (
        streams(delta("I "), delta("", "content_filter"), DONE),
        "content_filtered",
        "filtered",
    ),
    "a refusal": (
        streams(event({"choices": [{"delta": {"refusal": "I won't."}}]}), delta("", "stop"), DONE),
        "content_filtered",
        "I won't.",
    ),
    "an error about the question": (
        streams(
            delta("x"),
            event({"error": {"message": "too long", "type": "exceed_context_size_error"}}),
        ),
        "context_too_long",
        "too long",
    ),
    "an error in a word": (
        streams(event({"error": "unknown reason"})),
        "backend_bad_response",
        "unknown reason",
    ),
    "an unknown status": (answers(418, "teapot", "text/plain"), "backend_bad_response", "418"),
}


@clause("J-51")
@pytest.mark.parametrize("way", PERMANENT_FAILURES)
async def test_j51_permanent_errors_fail_at_once(bench_at: BenchAt, way: str) -> None:
    act, code, words = PERMANENT_FAILURES[way]
    async with Upstream(act) as upstream:
        with pytest.raises(Fail) as failed:
            await bench_at(upstream.url).run("chat", HI)
    assert failed.value.code == code
    assert words in failed.value.message
    assert "\n" not in failed.value.message
    assert len(upstream.requests) == 1


@clause("J-51")
async def test_j51_the_api_key_is_never_shown(bench_at: BenchAt) -> None:
    async with Upstream(refuses(401, f"wrong key {KEY}")) as upstream:
        with pytest.raises(Fail) as failed:
            await bench_at(upstream.url).run("chat", HI)
    assert upstream.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in failed.value.message
    assert "••••" in failed.value.message


# ── temporary errors ─────────────────────────────────────────────────────────────────────────────

TEMPORARY_FAILURES: dict[str, tuple[Act, str]] = {
    "500": (refuses(500, "oops"), "backend_unavailable"),
    "502 of a proxy": (answers(502, "<html>Bad Gateway", "text/html"), "backend_unavailable"),
    "503": (refuses(503, "loading the model"), "backend_unavailable"),
    "429": (refuses(429, "slow down"), "backend_rate_limited"),
    "a hang-up": (hangs_up, "backend_unavailable"),
    "an error within": (
        streams(delta("x"), event({"error": {"message": "overloaded", "code": 503}})),
        "backend_unavailable",
    ),
}


@clause("J-51")
@pytest.mark.parametrize("way", TEMPORARY_FAILURES)
async def test_j51_a_server_that_recovers_is_retried(bench_at: BenchAt, way: str) -> None:
    act, code = TEMPORARY_FAILURES[way]
    async with Upstream(act, says("Well again")) as upstream:
        record = await bench_at(upstream.url).run("chat", HI)
    assert record.text() == record.result["text"] == "Well again"
    (reset,) = record.of("reset")
    assert reset["reason"] == code
    assert set(reset) == {"attempt", "reason", "wait_s"}


@clause("J-51")
async def test_j51_after_three_requests_the_error_is_retryable(bench_at: BenchAt) -> None:
    async with Upstream(refuses(503, "loading")) as upstream:
        with pytest.raises(Retry) as failed:
            await bench_at(upstream.url).run("chat", HI)
    assert (failed.value.code, failed.value.after_s) == ("backend_unavailable", None)
    assert "loading" in failed.value.message
    assert len(upstream.requests) == 3


@clause("J-51")
async def test_j51_connection_refused(bench_at: BenchAt) -> None:
    with pytest.raises(Retry) as failed:
        await bench_at(f"http://127.0.0.1:{free_port()}/v1").run("chat", HI)
    assert failed.value.code == "backend_unavailable"
    assert "cannot be reached" in failed.value.message


@clause("J-51")
@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_j51_a_long_retry_after_becomes_a_retry_of_the_job(
    bench_at: BenchAt, form: str
) -> None:
    """The worker does not wait for an hour."""
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    asked = {"seconds": "3600", "date": later}[form]
    async with Upstream(refuses(429, "slow down", retry_after=asked)) as upstream:
        with pytest.raises(Retry) as failed:
            await bench_at(upstream.url).run("chat", HI)
    assert failed.value.code == "backend_rate_limited"
    assert failed.value.after_s is not None
    assert 3500 < failed.value.after_s <= 3600
    assert len(upstream.requests) == 1


@clause("J-51")
async def test_j51_a_short_retry_after_is_waited_for(bench_at: BenchAt) -> None:
    act = refuses(429, "slow down", retry_after="0.7")
    async with Upstream(act, says("Thank you")) as upstream:
        record = await bench_at(upstream.url).run("chat", HI)
    assert record.result["text"] == "Thank you"
    assert record.of("reset")[0]["wait_s"] == 0.7


@clause("J-51")
async def test_j51_no_retry_exceeds_the_time_limit(bench_at: BenchAt) -> None:
    act = refuses(429, "slow down", retry_after="50")
    async with Upstream(act) as upstream:
        with pytest.raises(Retry) as failed:
            await bench_at(upstream.url).run("chat", {**HI, "timeout_s": 20})
    assert failed.value.after_s == 50
    assert len(upstream.requests) == 1


@clause("J-51")
async def test_j51_the_time_limit_covers_the_whole_answer(bench_at: BenchAt) -> None:
    async with Upstream(streams(delta("Hello wor"), then=waits)) as upstream:
        bench = bench_at(upstream.url)
        context, _ = bench.context("chat", {**HI, "timeout_s": 4})
        with pytest.raises(Retry) as failed:
            await bench.handle(context)
    assert failed.value.code == "backend_timeout"
    assert "longer than 4 s" in failed.value.message
    assert context.partial == "Hello wor"
    assert len(upstream.requests) == 1


@clause("J-51")
async def test_j51_no_model_is_named(bench_at: BenchAt) -> None:
    async with Upstream(says("x")) as upstream:
        bench = Bench(LlmSettings(base_url=upstream.url))
        with pytest.raises(Fail, match="OPENAI_MODEL") as failed:
            await bench.run("chat", HI)
        assert failed.value.code == "model_not_found"
        await bench.run("chat", {**HI, "model": "named-by-the-job"})
    assert [each.body["model"] for each in upstream.requests] == ["named-by-the-job"]


# ── simpler requests ─────────────────────────────────────────────────────────────────────────────


@clause("J-51")
@pytest.mark.parametrize("status", [400, 422, 500, 501])
async def test_j51_a_server_without_json_mode_gets_a_plain_request(
    bench_at: BenchAt, status: int
) -> None:
    act = refuses(status, "response_format is not supported")
    async with Upstream(act, says('Sure! {"steps": ["Mix.", "Bake."]} Enjoy.')) as upstream:
        record = await bench_at(upstream.url).run("plan", {"goal": "Bread"})
    full, plain = (request.body for request in upstream.requests)
    assert full["response_format"]["type"] == "json_schema"
    assert "response_format" not in plain
    assert plain["messages"] == full["messages"]
    assert [step["title"] for step in record.result["steps"]] == ["Mix.", "Bake."]
    assert record.of("reset") == []


@clause("J-51")
async def test_j51_a_server_with_another_form_of_a_schema_gets_that(bench_at: BenchAt) -> None:
    """llama-cpp-python; one that knows neither gets a plain request."""
    form = refuses(422, "response_format.type: Input should be 'text' or 'json_object'")
    plain = refuses(400, "response_format.schema: unknown member")
    answer = says('{"steps": ["Mix.", "Bake."]}')
    async with Upstream(form, answer, form, plain, answer) as upstream:
        bench = bench_at(upstream.url)
        for _ in range(2):
            await bench.run("plan", {"goal": "Bread"})
    sent: list[Any] = [request.body.get("response_format") for request in upstream.requests]
    schema = sent[0]["json_schema"]["schema"]
    assert sent[1] == sent[3] == {"type": "json_object", "schema": schema}
    assert sent[2] == sent[0]
    assert sent[4] is None


SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}


def _form(**more: object) -> dict[str, object]:
    form = {"name": "a", "schema": SCHEMA, **more}
    return {**HI, "response_format": {"type": "json_schema", "json_schema": form}}


@clause("J-51")
async def test_j51_the_callers_strict_is_passed_on(bench_at: BenchAt) -> None:
    async with Upstream(says('{"a": 1}')) as upstream:
        for more in ({}, {"strict": False}, {"strict": True}):
            await bench_at(upstream.url).run("chat", _form(**more))
    sent = [each.body["response_format"]["json_schema"] for each in upstream.requests]
    assert [each.get("strict") for each in sent] == [None, False, True]


@clause("J-51")
async def test_j51_a_refused_schema_is_tried_again_and_other_members_are_remembered(
    bench_at: BenchAt,
) -> None:
    refusals = (refuses(400, "stream_options?"), refuses(400, "response_format?"))
    async with Upstream(*refusals, says('{"a": 1}')) as upstream:
        bench = bench_at(upstream.url)
        await bench.run("chat", _form())
        await bench.run("chat", _form())
    last = upstream.requests[-1].body
    assert len(upstream.requests) == 4
    assert ("response_format" in last, "stream_options" in last) == (True, False)


@clause("J-51")
async def test_j51_json_that_the_server_refuses_is_an_error_and_not_prose(
    bench_at: BenchAt,
) -> None:
    act = refuses(400, "response_format is not supported")
    async with Upstream(act, says("Some prose.")) as upstream:
        with pytest.raises(Fail, match="response_format") as failed:
            await bench_at(upstream.url).run(
                "chat", {**HI, "response_format": {"type": "json_object"}}
            )
    assert failed.value.code == "invalid_payload"


@clause("J-51")
async def test_j51_parts_of_text_are_sent_as_text(bench_at: BenchAt) -> None:
    parts = [{"type": "text", "text": each} for each in ("One.", "Two.")]
    async with Upstream(says("Yes")) as upstream:
        await bench_at(upstream.url).run("chat", {"messages": [{"role": "user", "content": parts}]})
    assert upstream.requests[0].body["messages"][1]["content"] == "One.\nTwo."


@clause("J-51")
async def test_j51_a_model_that_requires_max_completion_tokens_gets_it(bench_at: BenchAt) -> None:
    act = refuses(400, "'max_tokens' is not supported, use 'max_completion_tokens' instead")
    async with Upstream(act, says("Yes")) as upstream:
        record = await bench_at(upstream.url).run("chat", HI)
    assert record.result["text"] == "Yes"
    assert upstream.requests[1].body["max_completion_tokens"] == 8
    assert "max_tokens" not in upstream.requests[1].body


@clause("J-51")
async def test_j51_a_request_that_is_refused_in_both_forms_fails(bench_at: BenchAt) -> None:
    async with Upstream(refuses(400, "temperature must be 1")) as upstream:
        with pytest.raises(Fail, match="temperature must be 1") as failed:
            await bench_at(upstream.url).run("chat", {**HI, "temperature": 0.5})
    assert failed.value.code == "invalid_payload"
    assert len(upstream.requests) == 2


@clause("J-51")
async def test_j51_an_untrusted_certificate_is_permanent(bench_at: BenchAt) -> None:
    """A retry does not help: the message names the setting."""
    context = own_certificate().server_context()
    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Fail, match="SSL_CERT_FILE") as failed:
            await bench_at(f"https://localhost:{port}/v1").run("chat", HI)
    assert failed.value.code == "backend_unavailable"
