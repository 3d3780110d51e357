"""OpenAI's API in front: it reads whatever clients send, and its answers have OpenAI's exact form.

Over plain HTTP, so that nothing of a client hides a fault; `tests/interop/openai_clients.py` has
the real packages.
"""

from __future__ import annotations

import asyncio
import base64
import json
from array import array
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from jobwire.gateway.settings import GatewaySettings
from jobwire.handlers.llm import LlmSettings, register
from jobwire.local import LocalValkey
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection
from jobwire.worker import App, Worker
from tests.handlers.llm.local_worker import StartFleet
from tests.handlers.llm.upstream import (
    DONE,
    USAGE,
    Act,
    Request,
    Stage,
    answers,
    delta,
    event,
    refuses,
    says,
    streams,
    vectors,
    waits,
)
from tests.support import clause, wait_until
from tests.support.jobs_http import ServedJobs, key
from tests.support.workers import started, stopped

HI: list[Any] = [{"role": "user", "content": "Hi"}]
CHAT = "/v1/chat/completions"


def call(name: str, arguments: str, **members: object) -> dict[str, object]:
    return {"function": {"name": name, "arguments": arguments}, **members}


def calls(*deltas: dict[str, object], finish: str = "tool_calls") -> Act:
    """A stream with these pieces of tool calls, one per chunk."""
    chunks = [event({"choices": [{"delta": {"tool_calls": [each]}}]}) for each in deltas]
    return streams(*chunks, delta("", finish), USAGE, DONE)


ACTS: dict[str, list[Act]] = {
    "good": [says("Hello ", "there")],
    "empty": [streams(delta("", "stop"), USAGE, DONE)],
    "thinks": [says("<think>Hm.</think>Hello there")],
    "qwq-32b": [says("Hm.\n", "</think>\n\n", "Hello there")],
    "no usage": [streams(delta("Hello"), delta("", "stop"), DONE)],
    "eos": [says("Hello", finish="eos_token")],
    "cut": [says("Hello", finish="max_tokens")],
    "calls": [calls(call("f", '{"a": 1}', index=0, id="c1"))],
    "calls ending with stop": [calls(call("f", "{}", index=0, id="c1"), finish="stop")],
    "two calls without indexes": [
        calls(call("f", '{"a": 1}', id="c1"), call("g", '{"b": 2}', id="c2"))
    ],
    "two calls with equal indexes": [
        calls(
            call("f", '{"a":', index=0, id="c1"),
            {"index": 0, "function": {"arguments": " 1}"}},
            call("g", '{"b": 2}', index=0, id="c2"),
        )
    ],
    "two calls without ids": [calls(call("f", '{"a": 1}'), call("g", '{"b": 2}'))],
    "complete calls": [
        answers(
            200,
            {
                "choices": [
                    {
                        "finish_reason": "tool_calls",
                        "message": {"tool_calls": [call("f", '{"a": 1}'), call("g", '{"b": 2}')]},
                    }
                ]
            },
        )
    ],
    "repairs": [says('{"a": "x"}'), says('{"a": 1}')],
    "busy": [refuses(429, "slow down", retry_after="3600")],
    "away": [refuses(404, "no such model", "model_not_found")],
    "slow": [streams(delta("Hello " * 8), then=waits)],
}
SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "a",
        "schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
}


@pytest.fixture
def served(valkey: LocalValkey) -> Iterator[ServedJobs]:
    with ServedJobs(valkey.url) as started:
        yield started


@pytest_asyncio.fixture
async def stage(start: StartFleet) -> AsyncIterator[Stage]:
    async with Stage(ACTS) as stage:
        await start(LlmSettings(base_url=stage.url, model="good", embed_model="vectors"))
        yield stage


@pytest_asyncio.fixture
async def http(served: ServedJobs) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=served.url, trust_env=False, timeout=20) as client:
        yield client


async def ask(http: httpx.AsyncClient, **members: Any) -> Any:
    """The answer to a request that is well."""
    response = await http.post(CHAT, json={"model": "good", "messages": HI, **members})
    assert response.status_code == 200, response.text
    return response.json()


async def chunks(http: httpx.AsyncClient, **members: Any) -> list[Any]:
    """The chunks of a stream that ends well."""
    body = {"model": "good", "messages": HI, "stream": True, **members}
    response = await http.post(CHAT, json=body)
    assert response.status_code == 200, response.text
    data = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]", data
    return [json.loads(each) for each in data[:-1]]


# ── tolerant in ──────────────────────────────────────────────────────────────────────────────────

ECHOED: dict[str, Any] = {
    "content": None,
    "refusal": None,
    "role": "assistant",
    "annotations": None,
    "audio": None,
    "function_call": None,
    "tool_calls": None,
    "reasoning_content": "Hm.",
}
"""`model_dump()` of an answer."""
REQUESTS: dict[str, dict[str, Any]] = {
    "an echoed answer": {"messages": [*HI, {**ECHOED, "content": "Hello"}, *HI]},
    "an echoed answer without text": {"messages": [*HI, ECHOED, *HI]},
    "an echoed refusal": {"messages": [*HI, {**ECHOED, "refusal": "I won't."}, *HI]},
    "an echoed call": {
        "messages": [
            *HI,
            {
                **ECHOED,
                "content": "",
                "tool_calls": [{"type": "function", **call("f", "{}", id="c")}],
            },
            {"role": "tool", "tool_call_id": "c", "content": ""},
        ]
    },
    "empty text": {"messages": [{"role": "system", "content": ""}, *HI]},
    "empty parts": {
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": ""}, {"type": "text", "text": "Hi"}],
            }
        ]
    },
    "no parts": {"messages": [*HI, {"role": "assistant", "content": []}, *HI]},
    "a part with a cache mark": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}},
                    {"type": "image_url", "image_url": {"url": "data:,", "detail": None, "x": 1}},
                ],
            }
        ]
    },
    "unknown members of a message": {"messages": [{**HI[0], "name": None, "id": "m1", "x": [1]}]},
    "unknown members": {"evil": {"a": [1]}, "prediction": None, "store": True, "x-y": ""},
    "eight stops": {"stop": ["a", "b", "c", "d", "e", "f", "g", ""]},
    "one empty stop": {"stop": ""},
    "a seed for no seed": {"seed": -1},
    "a large seed": {"seed": (1 << 62) + 1},
    "top_p 0": {"top_p": 0},
    "no limit": {"max_tokens": -1, "max_completion_tokens": None},
    "a huge limit": {"max_tokens": 1 << 40},
    "members without functions": {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True},
    "a plain format": {
        "response_format": {"type": "text"},
        "logprobs": False,
        "modalities": ["text"],
    },
    "nulls": dict.fromkeys(
        ["n", "stop", "seed", "tools", "stream", "stream_options", "temperature", "user"]
    ),
}


@clause("K-2")
async def test_k2_the_front_reads_what_clients_send(
    http: httpx.AsyncClient, stage: Stage, subtests: pytest.Subtests
) -> None:
    for what, members in REQUESTS.items():
        with subtests.test(what):
            answer = await ask(http, **members)
            assert answer["choices"][0]["message"]["content"] == "Hello there"
    sent = {what: asked.body for what, asked in zip(REQUESTS, stage.asked("good"), strict=True)}
    turns = {what: body["messages"] for what, body in sent.items()}
    hello = {"role": "assistant", "content": "Hello"}
    assert turns["an echoed answer"][2] == hello
    assert turns["an echoed answer without text"][2] == {"role": "assistant", "content": ""}
    assert turns["an echoed refusal"][2]["content"] == "I won't."
    assert turns["an echoed call"][2]["tool_calls"][0]["id"] == "c"
    assert turns["an echoed call"][3]["content"] == ""
    assert turns["empty parts"][1]["content"] == "Hi"
    image = turns["a part with a cache mark"][1]["content"][1]
    assert image == {"type": "image_url", "image_url": {"url": "data:,", "detail": "auto"}}
    assert turns["unknown members of a message"][1] == {"role": "user", "content": "Hi"}
    assert "evil" not in sent["unknown members"]
    assert sent["eight stops"]["stop"] == ["a", "b", "c", "d", "e", "f", "g"]
    assert sent["a large seed"]["seed"] == (1 << 62) + 1
    assert sent["top_p 0"]["top_p"] == 0
    for what, member in {
        "one empty stop": "stop",
        "a seed for no seed": "seed",
        "no limit": "max_tokens",
        "members without functions": "parallel_tool_calls",
        "a plain format": "response_format",
    }.items():
        assert member not in sent[what], what
    assert sent["members without functions"].keys().isdisjoint({"tools", "tool_choice"})


@clause("K-2")
async def test_k2_members_for_functions_are_passed_on(
    http: httpx.AsyncClient, stage: Stage
) -> None:
    tools: list[Any] = [
        {"type": "function", "function": {"name": "f", "parameters": {}, "strict": True}}
    ]
    await ask(http, model="calls", tools=tools, parallel_tool_calls=False, tool_choice="required")
    (asked,) = stage.asked("calls")
    assert asked.body["tools"] == tools
    assert asked.body["parallel_tool_calls"] is False
    assert asked.body["tool_choice"] == "required"


@clause("K-2", "K-5")
async def test_k2_what_would_be_answered_wrong_is_refused(
    http: httpx.AsyncClient, stage: Stage, subtests: pytest.Subtests
) -> None:
    refused: dict[str, dict[str, Any]] = {
        "n": {"n": 2},
        "logprobs": {"logprobs": True},
        "modalities": {"modalities": ["text", "audio"]},
        "functions": {"functions": [{"name": "f"}]},
        "messages[0].content[0]": {
            "messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]
        },
        "messages[1].function_call": {
            "messages": [
                *HI,
                {"role": "assistant", "function_call": {"name": "f", "arguments": ""}},
            ]
        },
        "messages[0].role": {"messages": [{"role": "function", "name": "f", "content": "1"}]},
        "messages": {"messages": []},
        "temperature": {"temperature": 9},
        "stop": {"stop": 7},
        "stream": {"stream": "yes"},
        "messages[0].content": {"messages": [{"role": "user", "content": 7}]},
        "response_format": {"response_format": "json"},
        "response_format.type": {"response_format": {"type": "xml"}},
    }
    for param, members in refused.items():
        with subtests.test(param):
            response = await http.post(CHAT, json={"messages": HI, **members})
            assert response.status_code == 400, response.text
            error = response.json()["error"]
            assert error["type"] == "invalid_request_error"
            assert error["param"] == param
            assert error["message"].startswith(f"{param}: ")
            assert "any of the schemas" not in error["message"]
    assert stage.requests == []


# ── exact out ────────────────────────────────────────────────────────────────────────────────────


@clause("K-5")
async def test_k5_a_complete_answer_has_every_member(http: httpx.AsyncClient, stage: Stage) -> None:
    answer = await ask(http, model="thinks")
    assert answer["object"] == "chat.completion"
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Hello there",
                "refusal": None,
                "reasoning_content": "Hm.",
            },
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    unknown = await ask(http, model="no usage")
    assert unknown["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    call_only = (await ask(http, model="calls"))["choices"][0]
    assert (call_only["message"]["content"], call_only["finish_reason"]) == (None, "tool_calls")


@clause("K-5")
@pytest.mark.parametrize("is_stream", [False, True])
async def test_k5_the_finish_reason_is_one_of_openais(
    http: httpx.AsyncClient, stage: Stage, is_stream: bool
) -> None:
    reasons: dict[str, str] = {}
    for model in ("eos", "cut", "calls ending with stop"):
        if is_stream:
            *_, last = await chunks(http, model=model)
        else:
            last = await ask(http, model=model)
        reasons[model] = last["choices"][0]["finish_reason"]
    assert reasons == {"eos": "stop", "cut": "length", "calls ending with stop": "tool_calls"}


@clause("K-5")
async def test_k5_the_first_chunk_has_the_role(http: httpx.AsyncClient, stage: Stage) -> None:
    for model in ("good", "empty", "thinks", "qwq-32b", "calls"):
        first, *rest = await chunks(http, model=model)
        assert first["choices"][0]["delta"]["role"] == "assistant", model
        deltas = [chunk["choices"][0]["delta"] for chunk in rest]
        assert all("role" not in each for each in deltas), model
        assert rest[-1]["choices"][0]["finish_reason"], model
        assert rest[-1]["choices"][0]["delta"] == {}, model
        assert len({chunk["id"] for chunk in (first, *rest)}) == 1
        if model == "calls":
            (calls,) = [each["tool_calls"] for each in deltas if "tool_calls" in each]
            function = {"name": "f", "arguments": '{"a": 1}'}
            assert calls == [{"index": 0, "id": "c1", "type": "function", "function": function}]
        if model in ("thinks", "qwq-32b"):
            assert "".join(each.get("reasoning_content", "") for each in deltas).strip() == "Hm."
            assert "".join(each.get("content") or "" for each in deltas) == "Hello there"
    *_, usage = await chunks(http, stream_options={"include_usage": True})
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == 7


@clause("K-5")
@pytest.mark.parametrize(
    "model",
    [
        "two calls without indexes",
        "two calls with equal indexes",
        "two calls without ids",
        "complete calls",
    ],
)
async def test_k5_parallel_calls_stay_apart(
    http: httpx.AsyncClient, stage: Stage, model: str
) -> None:
    (choice,) = (await ask(http, model=model))["choices"]
    first, second = choice["message"]["tool_calls"]
    assert first["function"] == {"name": "f", "arguments": '{"a": 1}'}
    assert second["function"] == {"name": "g", "arguments": '{"b": 2}'}
    assert first["type"] == second["type"] == "function"
    assert first["id"]
    assert second["id"]
    assert first["id"] != second["id"]


@clause("K-5")
async def test_k5_a_repaired_answer_is_streamed_once(http: httpx.AsyncClient, stage: Stage) -> None:
    found = await chunks(http, model="repairs", response_format=SCHEMA)
    texts = [chunk["choices"][0]["delta"].get("content", "") for chunk in found]
    assert "".join(texts) == '{"a": 1}'


# ── embeddings ───────────────────────────────────────────────────────────────────────────────────


@clause("K-4")
async def test_k4_many_texts_are_split_over_jobs(
    http: httpx.AsyncClient, start: StartFleet
) -> None:
    class Embedder(Stage):
        def act_for(self, request: Request) -> Act:
            body = request.body
            return vectors(
                *([len(each), 0.1, -1e-7] for each in body["input"]), model=body["model"]
            )

    async with Embedder({}) as stage:
        await start(LlmSettings(base_url=stage.url, model="good"))
        texts = ["x" * (1 + n % 500) for n in range(2_048)]
        body = {"model": "embedder", "input": texts}
        found = (await http.post("/v1/embeddings", json=body)).json()
        assert [each["index"] for each in found["data"]] == [*range(2_048)]
        assert [each["embedding"][0] for each in found["data"]] == [len(each) for each in texts]
        assert found["data"][0]["embedding"] == pytest.approx([1, 0.1, -1e-7], rel=1e-6)
        assert (found["model"], found["object"]) == ("embedder", "list")
        assert found["usage"]["total_tokens"] == 3 * len(stage.requests)
        stage.requests.clear()
        tokens = {**body, "dimensions": 3, "encoding_format": "base64"}
        for given, sent in (([1, 2], [[1, 2]]), ([[1, 2], [3]], [[1, 2], [3]]), ("a", ["a"])):
            data = (await http.post("/v1/embeddings", json={**tokens, "input": given})).json()[
                "data"
            ]
            numbers = array("f", base64.b64decode(data[0]["embedding"]))
            assert numbers[0] == len(sent[0])
            asked = stage.requests[-1].body
            assert (asked["input"], asked["dimensions"]) == (sent, 3)
        wrong_inputs: list[Any] = [["x"] * 2_049, [""], [[]], [1, "x"], [], None, [{}]]
        for wrong in wrong_inputs:
            refused = await http.post("/v1/embeddings", json={**body, "input": wrong})
            assert (refused.status_code, "input" in refused.text) == (400, True), refused.text


@clause("K-4")
async def test_k4_large_vectors_come_from_several_jobs(
    http: httpx.AsyncClient, start: StartFleet
) -> None:
    class Embedder(Stage):
        def act_for(self, request: Request) -> Act:
            return vectors(*([0.25] * 4_096 for _ in request.body["input"]))

    async with Embedder({}) as stage:
        await start(LlmSettings(base_url=stage.url, model="good", embed_model="large"))
        found = (await http.post("/v1/embeddings", json={"input": ["x"] * 80})).json()
    assert [len(each["embedding"]) for each in found["data"]] == [4_096] * 80


# ── errors ───────────────────────────────────────────────────────────────────────────────────────


@clause("K-5")
async def test_k5_errors_have_openais_form_and_status(
    http: httpx.AsyncClient, stage: Stage, subtests: pytest.Subtests
) -> None:
    large = "x" * 300_000
    for what, (method, path, content, status) in {
        "not JSON": ("POST", CHAT, "{", 400),
        "not an object": ("POST", CHAT, "[]", 400),
        "no messages": ("POST", CHAT, "{}", 400),
        "too large": ("POST", CHAT, large, 413),
        "no input": ("POST", "/v1/embeddings", "{}", 400),
        "a model that does not exist": (
            "POST",
            CHAT,
            json.dumps({"model": "away", "messages": HI}),
            404,
        ),
        "a busy server": ("POST", CHAT, json.dumps({"model": "busy", "messages": HI}), 429),
        "a wrong method": ("GET", CHAT, "", 405),
        "a wrong method for models": ("POST", "/v1/models", "{}", 405),
    }.items():
        with subtests.test(what):
            headers = {"content-type": "application/json"}
            response = await http.request(method, path, content=content, headers=headers)
            assert response.status_code == status, response.text
            assert response.headers["content-type"] == "application/json"
            error = response.json()["error"]
            assert error.keys() == {"message", "type", "code", "param"}
            if status == 429:
                assert 3590 <= int(response.headers["retry-after"]) <= 3601


@clause("K-5")
async def test_k5_a_missing_key_is_refused_in_openais_form(valkey: LocalValkey) -> None:
    settings = GatewaySettings(keys=(key("one", "submit", "read"),), rate_limit=1)
    with ServedJobs(valkey.url, gateway=settings) as served:
        async with httpx.AsyncClient(base_url=served.url, trust_env=False) as http:
            for path, method in ((CHAT, "POST"), ("/v1/embeddings", "POST"), ("/v1/models", "GET")):
                response = await http.request(method, path, json={"messages": HI})
                assert response.status_code == 401
                assert response.json()["error"]["type"] == "invalid_request_error"
            headers = {"authorization": "Bearer jw_one"}
            replies = [await http.get("/v1/models", headers=headers) for _ in range(40)]
    limited = next(each for each in replies if each.status_code == 429)
    assert limited.json()["error"]["type"] == "rate_limit_error"
    assert int(limited.headers["retry-after"]) >= 1


@clause("K-5")
@pytest.mark.parametrize("is_stream", [False, True])
async def test_k5_without_a_worker_it_is_503(http: httpx.AsyncClient, is_stream: bool) -> None:
    body = {"messages": HI, "stream": is_stream}
    response = await http.post(CHAT, json=body, timeout=5)
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "no_worker"
    assert int(response.headers["retry-after"]) >= 1
    jobs = (await http.get("/v1/jobs")).json()["jobs"]
    assert [job for job in jobs if job["status"] == "queued"] == []


@clause("K-5")
async def test_k5_a_worker_that_starts_meanwhile_answers(
    http: httpx.AsyncClient, start: StartFleet
) -> None:
    async with Stage(ACTS) as stage:
        asked = asyncio.ensure_future(ask(http))
        await start(LlmSettings(base_url=stage.url, model="good"))
        answer = await asked
    assert answer["choices"][0]["message"]["content"] == "Hello there"


@clause("K-5")
@pytest.mark.parametrize("is_stream", [False, True])
async def test_k5_a_job_that_no_worker_can_take_any_more_is_given_up(
    served: ServedJobs, http: httpx.AsyncClient, connection: Connection, is_stream: bool
) -> None:
    def jobs(status: str) -> object:
        return served.client.get(f"/v1/jobs?status={status}").json()["jobs"]

    app = App()
    register(app, LlmSettings(base_url="http://127.0.0.1:9/v1", model="good"))
    worker = Worker(app, [StreamsEngine(connection, StreamsSettings())])
    running = await started(worker)
    try:
        await http.post("/v1/jobs/queues/default/pause")
        body = {"messages": HI, "stream": is_stream}
        asked = asyncio.ensure_future(http.post(CHAT, json=body))
        await wait_until(lambda: asked.done() or jobs("queued"), "the job to wait")
    finally:
        await stopped(worker, running)
    response = await asked
    if is_stream:
        assert '"code":"no_worker"' in response.text
        assert "[DONE]" not in response.text
    else:
        assert (response.status_code, response.json()["error"]["code"]) == (503, "no_worker")
    await wait_until(lambda: jobs("canceled"), "the job to be canceled")
