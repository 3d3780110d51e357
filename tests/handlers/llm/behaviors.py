"""Correct and faulty behaviors of model servers, and the outcome of a job for each.

Each behavior is a real HTTP server that does this on purpose. `test_behaviors.py` runs a job
against each, and keeps the table in `docs/tasks.md`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.handlers.llm.upstream import (
    DONE,
    USAGE,
    Act,
    Line,
    answers,
    delta,
    ends_without_length,
    event,
    refuses,
    says,
    streams,
    waits,
)

PLAN = '{"steps": ["Mix the dough.", "Bake the bread."]}'


@dataclass(frozen=True)
class Behavior:
    """One behavior, and the outcome of a job."""

    what: str
    outcome: str
    """`done`, or an error code; with the number of requests if it is not one."""
    acts: Sequence[Act]
    task: str = "chat"
    payload: dict[str, Any] = field(default_factory=lambda: {"prompt": "Hi"})
    text: str = "Hello there"
    """The answer, if the job is done."""


def chunk(**choice: object) -> bytes:
    return event({"model": "tester", "choices": [{"index": 0, **choice}]})


def _complete(content: object = "Hello there", **message: object) -> dict[str, object]:
    choice = {"message": {"role": "assistant", "content": content, **message}}
    return {"model": "tester", "choices": [{"index": 0, "finish_reason": "stop", **choice}]}


def _streamed(content_type: str, *chunks: bytes) -> Act:
    return answers(200, b"".join(chunks).decode(), content_type)


GOOD = (delta("Hello "), delta("there"), delta("", "stop"), USAGE, DONE)
ENDED = (delta("", "stop"), DONE)


def _lines(separator: bytes) -> Act:
    return streams(*(each.replace(b"\n", separator) for each in GOOD))


def _several_lines() -> Act:
    """One event over several `data:` lines."""
    whole = {"choices": [{"index": 0, "delta": {"content": "Hello there"}}]}
    pretty = json.dumps(whole, indent=1)
    data = "".join(f"data: {line}\n" for line in pretty.split("\n")) + "\n"
    return streams(data.encode(), *ENDED)


async def _byte_by_byte(line: Line) -> None:
    await line.head(content_type="text/event-stream", transfer_encoding="chunked")
    for each in (b'data: {"choices":[{"delta":{"content":"Hello th\xc3\xa9re"}}]}\n\n',):
        for at in range(len(each)):
            await line.chunk(each[at : at + 1])
    for each in ENDED:
        await line.chunk(each)
    await line.chunk(b"")


def error_in_stream(error: object) -> Act:
    return streams(delta("Hello "), event({"error": error}))


def prompt_refused(status: int, body: object) -> tuple[Act]:
    return (answers(status, body),)


def message(status: int, message: str, code: str | None = None) -> tuple[Act]:
    return (refuses(status, message, code),)


B = Behavior
ANSWERS = [
    # ── complete answers, in all formats ──────────────────────────────────────────────────────────
    B("a stream as documented", "done", [streams(*GOOD)]),
    B("CRLF line ends", "done", [_lines(b"\r\n")]),
    B("CR line ends", "done", [_lines(b"\r")]),
    B("no empty line between events", "done", [streams(*(e[:-1] for e in GOOD))]),
    B("an event over several `data:` lines", "done", [_several_lines()]),
    B(
        "`data:` without a space",
        "done",
        [streams(*(e.replace(b"data: ", b"data:") for e in GOOD))],
    ),
    B(
        "comments and event names between events",
        "done",
        [streams(b": ping\n\n", b"event: message\n", GOOD[0], b": ping\n\n", *GOOD[1:])],
    ),
    B(
        "a byte order mark before the stream",
        "done",
        [streams(b"\xef\xbb\xbf" + GOOD[0], *GOOD[1:])],
    ),
    B("one byte at a time", "done", [_byte_by_byte], text="Hello thére"),
    B("no `[DONE]`", "done", [streams(*GOOD[:-1])]),
    B("no usage", "done", [streams(*GOOD[:3], DONE)]),
    B("usage that never comes", "done", [streams(*GOOD[:3], then=waits)]),
    B("cut off after the finish reason", "done", [streams(*GOOD[:3], cut=True)]),
    B(
        "odd numbers in the usage",
        "done",
        [
            streams(
                *GOOD[:3],
                event({"choices": [], "usage": {"prompt_tokens": "5", "total_tokens": -1.5}}),
                DONE,
            )
        ],
    ),
    B("usage that is no object", "done", [streams(*GOOD[:3], event({"usage": 7}), DONE)]),
    B("a body without a length, ended by the connection", "done", [ends_without_length(*GOOD)]),
    B("a stream with the content type `text/plain`", "done", [_streamed("text/plain", *GOOD)]),
    B(
        "a stream with the content type `application/json`",
        "done",
        [_streamed("application/json", *GOOD)],
    ),
    B("a complete reply instead of a stream", "done", [answers(200, _complete())]),
    B(
        "a complete reply with a byte order mark",
        "done",
        [answers(200, "\ufeff" + json.dumps(_complete()))],
    ),
    B(
        "a complete reply with the content type of a stream",
        "done",
        [answers(200, _complete(), "text/event-stream")],
    ),
    B(
        "`message` instead of `delta`",
        "done",
        [streams(chunk(message={"content": "Hello there"}), *ENDED)],
    ),
    B(
        "content as a list of parts",
        "done",
        [
            streams(
                chunk(
                    delta={
                        "content": [
                            {"type": "text", "text": "Hello "},
                            {"type": "text", "text": "there"},
                        ]
                    }
                ),
                *ENDED,
            )
        ],
    ),
    B(
        "a complete reply with a list of parts",
        "done",
        [answers(200, _complete([{"type": "text", "text": "Hello there"}]))],
    ),
    B(
        "a second choice",
        "done",
        [
            streams(
                delta("Hello there"),
                event({"choices": [{"index": 1, "delta": {"content": "other"}}]}),
                *ENDED,
            )
        ],
    ),
    B(
        "null content beside a role",
        "done",
        [streams(chunk(delta={"role": "assistant", "content": None}), *GOOD)],
    ),
    # ── reasoning ─────────────────────────────────────────────────────────────────────────────────
    B(
        "reasoning in `<think>`",
        "done",
        [says("<thi", "nk>Let me ", "see.</th", "ink>\n\nHello ", "there")],
    ),
    B(
        "reasoning in `reasoning_content`",
        "done",
        [streams(chunk(delta={"reasoning_content": "Let me see."}), *GOOD)],
    ),
    B(
        "reasoning in `reasoning`",
        "done",
        [streams(chunk(delta={"reasoning": "Let me see."}), *GOOD)],
    ),
    B(
        "`</think>` without an opening tag",
        "done",
        [says("Let me see.\n", "</think>\n\n", "Hello there")],
    ),
    B(
        "the tokens spent on reasoning",
        "output_truncated",
        [says("<think>Let me see", finish="length")],
    ),
    B(
        "`plan` by a model that reasons",
        "done",
        [says("<think>Hm.</think>", PLAN)],
        "plan",
        {"goal": "Bread"},
        PLAN,
    ),
    B(
        "`code` by a model that reasons",
        "done",
        [says("<think>```\nno\n```</think>```python\nx = 1\n```")],
        "code",
        {"prompt": "x"},
        "x = 1",
    ),
    # ── other forms of a plan and of code ─────────────────────────────────────────────────────────
    B(
        "plan steps as objects",
        "done",
        [says('{"steps": [{"n": 1, "title": "Mix the dough."}, {"step": "Bake the bread."}]}')],
        "plan",
        {"goal": "Bread"},
        PLAN,
    ),
    B(
        "a plan with a byte order mark",
        "done",
        [says("\ufeff" + PLAN)],
        "plan",
        {"goal": "Bread"},
        PLAN,
    ),
    B(
        "a plan inside prose",
        "done",
        [says("Sure!\n" + PLAN + "\nEnjoy.")],
        "plan",
        {"goal": "Bread"},
        PLAN,
    ),
    B(
        "a plan as a numbered list",
        "done",
        [says("1. Mix the dough.\n2. Bake the bread.")],
        "plan",
        {"goal": "Bread"},
        PLAN,
    ),
    B(
        "a plan that is prose",
        "output_invalid",
        [says("I would bake some bread.")],
        "plan",
        {"goal": "Bread"},
    ),
    B(
        "code in a fence of four backticks",
        "done",
        [says("````python\nx = 1\n````")],
        "code",
        {"prompt": "x"},
        "x = 1",
    ),
    B("code in `~~~`", "done", [says("~~~python\nx = 1\n~~~")], "code", {"prompt": "x"}, "x = 1"),
    B(
        "code in an indented fence",
        "done",
        [says("- here:\n  ```python\n  x = 1\n  ```")],
        "code",
        {"prompt": "x"},
        "x = 1",
    ),
    B(
        "code in a fence that is not closed",
        "done",
        [says("```python\nx = 1\n")],
        "code",
        {"prompt": "x"},
        "x = 1",
    ),
    B("code without a fence", "done", [says("x = 1")], "code", {"prompt": "x"}, "x = 1"),
    B(
        "code in a fence with CRLF",
        "done",
        [says("Sure:\r\n```python\r\nx = 1\r\n```\r\nDone.")],
        "code",
        {"prompt": "x"},
        "x = 1",
    ),
    B(
        "prose instead of code",
        "output_invalid",
        [says("I cannot help with that.")],
        "code",
        {"prompt": "x"},
    ),
    B("one word instead of code", "output_invalid", [says("Sorry")], "code", {"prompt": "x"}),
    B(
        "prose instead of Rust",
        "output_invalid",
        [says("Here is what I think.\nlet x = 1;")],
        "code",
        {"prompt": "x", "language": "rust"},
    ),
    B(
        "a plan cut by `max_tokens`",
        "output_truncated",
        [says('{"steps": ["Mix', finish="length")],
        "plan",
        {"goal": "Bread"},
    ),
    # ── requests that a server refuses ────────────────────────────────────────────────────────────
    B(
        "`max_completion_tokens` wanted",
        "done, 2 requests",
        [
            *message(
                400,
                "'max_tokens' is not supported here. Use 'max_completion_tokens' instead.",
            ),
            says("Hello there"),
        ],
    ),
    B(
        "no JSON mode",
        "done, 2 requests",
        [*message(400, "response_format is not supported"), says(PLAN)],
        "plan",
        {"goal": "Bread"},
        PLAN,
    ),
    B("a request refused for good", "invalid_payload, 2 requests", message(400, "no such thing")),
    B(
        "JSON that does not match the caller's schema, then does",
        "done, 2 requests",
        [says("{}"), says('{"a": 1}')],
        payload={
            "prompt": "Hi",
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "a", "schema": {"type": "object", "required": ["a"]}},
            },
        },
        text='{"a": 1}',
    ),
    B(
        "JSON that never matches the caller's schema",
        "output_invalid, 2 requests",
        [says("{}")],
        payload={
            "prompt": "Hi",
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "a", "schema": {"type": "object", "required": ["a"]}},
            },
        },
    ),
]
