"""Servers of models that refuse, fail or misbehave; see `behaviors.py`."""

from __future__ import annotations

from tests.handlers.llm.behaviors import (
    ANSWERS,
    ENDED,
    chunk,
    error_in_stream,
    message,
    prompt_refused,
)
from tests.handlers.llm.behaviors import Behavior as B
from tests.handlers.llm.upstream import (
    DONE,
    answers,
    delta,
    hangs_up,
    refuses,
    says,
    streams,
    waits,
)

FAILURES = [
    # ── the prompt is too long ────────────────────────────────────────────────────────────────────
    B(
        "too long, as OpenAI and vLLM report it",
        "context_too_long",
        message(
            400,
            "This model's maximum context length is 4096 tokens. You requested 5000 tokens",
        ),
    ),
    B(
        "too long, as Anthropic reports it",
        "context_too_long",
        prompt_refused(
            400,
            {
                "type": "error",
                "error": {
                    "type": "invalid_request_error",
                    "message": "prompt is too long: 208310 tokens > 200000 maximum",
                },
            },
        ),
    ),
    B(
        "too long, as Gemini reports it",
        "context_too_long",
        prompt_refused(
            400,
            [
                {
                    "error": {
                        "code": 400,
                        "message": "The input token count (1200000) exceeds the maximum number of "
                        "tokens allowed (1048576).",
                        "status": "INVALID_ARGUMENT",
                    }
                }
            ],
        ),
    ),
    B(
        "too long, as TGI reports it",
        "context_too_long",
        prompt_refused(
            422,
            {
                "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= "
                "4096. Given: 5000 `inputs` tokens",
                "error_type": "validation",
            },
        ),
    ),
    B(
        "too long, as llama.cpp reports it",
        "context_too_long",
        prompt_refused(
            400,
            {
                "error": {
                    "code": 400,
                    "message": "the request exceeds the available context size",
                    "type": "exceed_context_size_error",
                }
            },
        ),
    ),
    B("413", "context_too_long", [answers(413, "Payload Too Large", "text/plain")]),
    # ── errors of the server ──────────────────────────────────────────────────────────────────────
    B("401", "backend_auth", message(401, "Incorrect API key")),
    B("403", "backend_auth", message(403, "not allowed")),
    B("402", "backend_quota", message(402, "pay first")),
    B(
        "404 for the model",
        "model_not_found",
        message(404, "The model `x` does not exist", "model_not_found"),
    ),
    B(
        '404 as `{"detail": "Not Found"}`',
        "model_not_found",
        [answers(404, {"detail": "Not Found"})],
    ),
    B("429 for the quota", "backend_quota", message(429, "quota", "insufficient_quota")),
    B("429, then well", "done, 2 requests", [refuses(429, "slow down"), says("Hello there")]),
    B(
        "429 with an hour to wait",
        "backend_rate_limited, later",
        [refuses(429, "slow down", retry_after="3600")],
    ),
    B("500, then well", "done, 2 requests", [refuses(500, "oops"), says("Hello there")]),
    B("501, then well", "done, 2 requests", [refuses(501, "not now"), says("Hello there")]),
    B("507, then well", "done, 2 requests", [refuses(507, "full"), says("Hello there")]),
    B(
        "a page of a proxy (502), then well",
        "done, 2 requests",
        [answers(502, "<html>", "text/html"), says("Hello there")],
    ),
    B("503 at every request", "backend_unavailable, later, 3 requests", [refuses(503, "loading")]),
    B("a redirect", "backend_bad_response", [answers(308, "", location="/v2")]),
    B(
        "a connection closed without a response",
        "done, 2 requests",
        [hangs_up, says("Hello there")],
    ),
    B(
        "a stream cut off, then well",
        "done, 2 requests",
        [streams(delta("Hel"), cut=True), says("Hello there")],
    ),
    B(
        "a stream without a finish reason",
        "backend_stream_cut, later, 2 requests",
        [streams(delta("Hel"), DONE)],
    ),
    B(
        "an error inside the stream, 503",
        "done, 2 requests",
        [error_in_stream({"message": "overloaded", "code": 503}), says("Hello there")],
    ),
    B(
        "an error inside the stream, as text",
        "backend_bad_response",
        [error_in_stream("CUDA is out of memory")],
    ),
    B(
        "an error inside the stream about the context",
        "context_too_long",
        [error_in_stream({"message": "maximum context length exceeded"})],
    ),
    B(
        "`finish_reason: error`",
        "backend_stream_cut, later, 2 requests",
        [says("Hel", finish="error")],
    ),
    B(
        "a page instead of a stream",
        "backend_bad_response",
        [answers(200, "<html>Welcome", "text/html")],
    ),
    B(
        "an error with status 200",
        "model_not_found",
        message(200, "no such model", "model_not_found"),
    ),
    B(
        "invalid JSON in the stream",
        "backend_bad_response",
        [streams(delta("Hel"), b"data: {oops\n\n", *ENDED)],
    ),
    B("an event of two megabytes", "backend_bad_response", [streams(b"data: " + b"x" * 2_000_000)]),
    B(
        "an answer without end",
        "backend_bad_response",
        [streams(*[delta("x" * 200_000)] * 6, then=waits)],
    ),
    B("a filtered answer", "content_filtered", [says("I ", finish="content_filter")]),
    B("a filtered prompt", "content_filtered", message(400, "policy", "content_filter")),
    B("a refusal", "content_filtered", [streams(chunk(delta={"refusal": "I will not."}), *ENDED)]),
    B(
        "a call of the caller's function",
        "done",
        [
            streams(
                chunk(
                    delta={
                        "tool_calls": [
                            {"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"a"'}}
                        ]
                    }
                ),
                chunk(delta={"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}),
                delta("", "tool_calls"),
                DONE,
            )
        ],
        payload={"prompt": "Hi", "tools": [{"type": "function", "function": {"name": "f"}}]},
        text="",
    ),
]

BEHAVIORS = [*ANSWERS, *FAILURES]
