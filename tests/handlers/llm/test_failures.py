"""Every way in which a model's server fails, and every error code, over HTTP: submitted to a real
gateway, run by a real worker against a server that misbehaves on purpose, and watched as a browser
does (J-50, J-51). The finer points of each are in `test_upstream.py` and `test_streams.py`."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.fleet.runner import Fleet
from tests.handlers.llm.recorder import Event, text_of
from tests.handlers.llm.upstream import (
    DONE,
    Act,
    Stage,
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
from tests.support.jobs_http import EventReader
from tests.support.program import ROOT

HALF = delta("Hello wor")
WELL = says("Well ", "again")
PLAN = says('{"steps": ["Mix.", "Bake."]}')
TORN = "naïve 🙂".encode()
TOO_LONG = "maximum context length is 9 tokens"


def calls(name: str, **arguments: object) -> Act:
    return says(json.dumps({"call": {"tool": name, "arguments": arguments}}))


@dataclass(frozen=True)
class Row:
    """The server's behavior, the request, and the expected outcome."""

    acts: Sequence[Act] = ()
    code: str = ""
    """Code of the error; empty if the job succeeds."""
    retryable: bool = False
    tries: int = 1
    """Expected number of requests to the server."""
    text: str | None = None
    """The text that subscribers have at the end; `partial` of a failed job."""
    words: str = ""
    """In the error's message."""
    task: str = "chat"
    payload: dict[str, object] = field(default_factory=lambda: {"prompt": "Hi"})


def wrong(task: str, words: str, **payload: object) -> Row:
    """A payload that is refused before a request to the model; the error names the field."""
    return Row(code="invalid_payload", task=task, payload=payload, words=words, tries=0)


def own(code: str, task: str, acts: Sequence[Act] = (), tries: int = 0, **payload: object) -> Row:
    """An error of a task itself."""
    return Row(acts, code, tries=tries, task=task, payload=payload)


GO = {"prompt": "Go"}
ROWS: dict[str, Row] = {
    # Permanent errors
    "401": Row([refuses(401, "Incorrect key")], "backend_auth", words="OPENAI_API_KEY"),
    "403": Row([refuses(403, "Not for you")], "backend_auth", words="Not for you"),
    "404 of a model": Row([refuses(404, "no model x")], "model_not_found", words="no model x"),
    "404 of a page": Row(
        [answers(404, "<html>", "text/html")], "model_not_found", words="OPENAI_BASE_URL"
    ),
    "429 for the quota": Row(
        [refuses(429, "spent", "insufficient_quota")], "backend_quota", words="spent"
    ),
    "a prompt too long": Row(
        [refuses(400, TOO_LONG, "context_length_exceeded")], "context_too_long", words="9 tokens"
    ),
    "200 with HTML": Row(
        [answers(200, "<html>Hi", "text/html")], "backend_bad_response", words="text/html"
    ),
    "a line that is no JSON": Row(
        [streams(HALF, b"data: {oops\n\n", delta("", "stop"), DONE)],
        "backend_bad_response",
        text="Hello wor",
        words="{oops",
    ),
    "a filtered answer": Row(
        [streams(HALF, delta("", "content_filter"), DONE)], "content_filtered", text="Hello wor"
    ),
    "a filtered question": Row([refuses(400, "no", "content_filter")], "content_filtered"),
    # Temporary errors
    "429 with Retry-After": Row(
        [refuses(429, "slow down", retry_after="0.6"), WELL], tries=2, text="Well again"
    ),
    "429 for an hour": Row(
        [refuses(429, "slow down", retry_after="3600")],
        "backend_rate_limited",
        retryable=True,
        words="retry after 3600 s",
    ),
    "500": Row([refuses(500, "oops")], "backend_unavailable", retryable=True, tries=3),
    "502": Row(
        [answers(502, "<html>", "text/html")], "backend_unavailable", retryable=True, tries=3
    ),
    "503": Row([refuses(503, "loading")], "backend_unavailable", retryable=True, tries=3),
    "503 and well again": Row([refuses(503, "loading"), WELL], tries=2, text="Well again"),
    "a hang-up": Row([hangs_up], "backend_unavailable", retryable=True, tries=3),
    "slow headers": Row([waits], "backend_timeout", retryable=True, tries=2),
    "a stall": Row(
        [streams(HALF, then=waits)], "backend_timeout", retryable=True, tries=2, text="Hello wor"
    ),
    "a cut": Row(
        [streams(HALF, cut=True)], "backend_stream_cut", retryable=True, tries=2, text="Hello wor"
    ),
    "a cut and well again": Row([streams(HALF, cut=True), WELL], tries=2, text="Well again"),
    "a clean end without a reason": Row(
        [streams(HALF)], "backend_stream_cut", retryable=True, tries=2, text="Hello wor"
    ),
    "an error within": Row(
        [streams(HALF, event({"error": {"message": "overloaded", "code": 503}}))],
        "backend_unavailable",
        retryable=True,
        tries=3,
        text="Hello wor",
    ),
    # Repeated in a simpler form
    "501 on response_format": Row(
        [refuses(501, "response_format"), PLAN], task="plan", payload={"goal": "Bread"}, tries=2
    ),
    "400 on response_format": Row(
        [refuses(400, "response_format"), PLAN], task="plan", payload={"goal": "Bread"}, tries=2
    ),
    "400 in any way": Row([refuses(400, "temperature?")], "invalid_payload", tries=2),
    # Unusual, but complete
    "a reason but no [DONE]": Row([streams(delta("Well"), delta("", "stop"))], text="Well"),
    "comments, CRLF, no space, split characters": Row(
        [
            streams(
                b": ping\r\n\r\n",
                b'data:{"choices":[{"delta":{"content":"' + TORN[:-2],
                TORN[-2:] + b'"}}]}\r\n\r\n',
                delta("", "stop").replace(b"\n", b"\r\n"),
                DONE,
            )
        ],
        text="naïve 🙂",
    ),
    "cut by its length": Row([says("The cap", finish="length")], text="The cap"),
    "a plan cut by its length": own(
        "output_truncated", "plan", [says('{"steps": ["Mi', finish="length")], 1, goal="Bread"
    ),
    "a call cut by its length": own(
        "output_truncated", "tool", [says('{"call": {"to', finish="length")], 1, **GO
    ),
    # The tasks' own
    "no plan": own("output_invalid", "plan", [says("I would rather not.")], 1, goal="Bread"),
    "no such tool": own("tool_unknown", "tool", prompt="Go", tools=["rm"]),
    "no tool fits": own("tool_no_match", "tool", [calls("none")], 1, **GO),
    "wrong arguments": own("tool_bad_arguments", "tool", [calls("count_apples", n=1)], 1, **GO),
    "a tool that breaks": own("tool_failed", "tool", [calls("broken")], 1, **GO),
    "a tool that is slow": own("tool_timeout", "tool", [calls("slow")], 1, **GO),
    "no documents": own("rag_no_documents", "rag", question="Who?", documents=[]),
    "no such index": own("rag_index_unknown", "rag", question="Who?", index="nowhere"),
    "65 texts": own("embed_too_many", "embed", input=["x"] * 65),
    "a long text": own(
        "embed_text_too_long", "embed", [refuses(400, "input is too long")], 1, input="x"
    ),
    # Payloads
    "an unknown member": wrong("chat", "unknown field `temprature`", prompt="Hi", temprature=1),
    "neither prompt nor messages": wrong("chat", "either `prompt` or `messages`"),
    "a role that is none": wrong(
        "chat", "payload.messages[0].role", messages=[{"role": "king", "content": "Hi"}]
    ),
    "too many tokens": wrong("chat", "payload.max_tokens", prompt="Hi", max_tokens=9_999_999),
    "one step": wrong("plan", "payload.max_steps", goal="Bread", max_steps=1),
    "a language that is none": wrong("code", "payload.language", prompt="Hi", language="\n"),
    "no tool at all": wrong("tool", "payload.tools", prompt="Go", tools=[]),
    "two kinds of documents": wrong(
        "rag", "either `documents` or `index`", question="Who?", documents=["x"], index="y"
    ),
    "a way out of the folder": wrong("rag", "payload.index", question="Who?", index="../etc"),
    "an unknown encoding": wrong("embed", "payload.encoding", input="x", encoding="hex"),
}


@clause("J-50", "J-51", "J-6")
async def test_j51_every_failure_has_its_outcome_over_http(
    own_fleet: Fleet, subtests: pytest.Subtests
) -> None:
    async with Stage({name: row.acts for name, row in ROWS.items() if row.acts}) as stage:
        env = {
            "OPENAI_BASE_URL": stage.url,
            "OPENAI_MODEL": "unnamed",
            "JOBWIRE_LLM_EMBED_MODEL": "vectors",
            # The other rows, all at once on a busy machine, must not reach them.
            "JOBWIRE_LLM_FIRST_TOKEN_TIMEOUT": "5s",
            "JOBWIRE_LLM_IDLE_TIMEOUT": "5s",
            "JOBWIRE_LLM_TOOL_TIMEOUT": "5s",
            "JOBWIRE_WORKER_SLOTS": str(len(ROWS)),
        }
        # The worker's failures, also those of payloads that the gateway would refuse.
        unchecked = {"JOBWIRE_JOBS_CHECK_PAYLOADS": "false"}
        await asyncio.to_thread(own_fleet.start_gateway, **unchecked)
        await asyncio.to_thread(
            own_fleet.start_worker, "tests.handlers.llm.failing_tools:app", **env
        )
        async with httpx.AsyncClient(base_url=own_fleet.url, trust_env=False, timeout=90) as client:
            ids = {name: await _submit(client, name, row) for name, row in ROWS.items()}
            ended = await asyncio.gather(*(_end(client, each) for each in ids.values()))
        for (name, row), job in zip(ROWS.items(), ended, strict=True):
            with subtests.test(name):
                _check(row, job, len(stage.asked(name)), _events(own_fleet.port, ids[name]))


@clause("J-50")
def test_j50_every_documented_code_is_in_the_table() -> None:
    """The codes of the docs are exactly those of the table above."""
    promised = set(
        re.findall(
            r"`?\b((?:backend|output|content|context|model|tool|rag|embed|invalid)_[a-z_]+)\b",
            (ROOT / "docs" / "tasks.md").read_text().split("## When the model's server fails")[1],
        )
    ) - {"tool_min_score"}
    assert promised == {row.code for row in ROWS.values() if row.code}


async def _submit(client: httpx.AsyncClient, name: str, row: Row) -> str:
    body = {"task": row.task, "payload": {**row.payload, "model": name}}
    answer = await client.post("/v1/jobs", json=body)
    assert answer.status_code == 202, answer.text
    return answer.json()["job_id"]


async def _end(client: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    return (await client.get(f"/v1/jobs/{job_id}", headers={"Prefer": "wait=60"})).json()


def _events(port: int, job_id: str) -> list[Event]:
    with EventReader(port, f"/v1/jobs/{job_id}/events", {}) as reader:
        hello, *rest = reader.rest()
    assert hello.name == "hello"
    return [Event(each.name, each.data["data"], each.data["step"]) for each in rest]  # pyright: ignore[reportArgumentType, reportCallIssue, reportIndexIssue, reportOptionalSubscript] - J-15's shape


def _check(row: Row, job: dict[str, Any], tries: int, events: list[Event]) -> None:
    assert job["status"] == ("error" if row.code else "done"), job["error"]
    assert tries == row.tries
    resets = [each.data for each in events if each.kind == "reset"]
    if row.task != "plan":  # the simpler request has the same answer
        assert len(resets) == max(0, row.tries - 1) or row.code == "invalid_payload"
    assert all(reset["attempt"] == 1 for reset in resets)
    if row.text is not None:
        assert text_of(events) == row.text
    if not row.code:
        assert events[-1].kind == "done"
        assert row.text is None or job["result"]["text"] == row.text
        return
    error = job["error"]
    assert (error["code"], error["retryable"]) == (row.code, row.retryable), error
    assert error["attempt"] == 1
    assert row.words in error["message"]
    assert "\n" not in error["message"]
    assert "hush" not in error["message"]
    assert error.get("partial") == row.text
    assert (events[-1].kind, events[-1].data) == ("error", error)
