"""The OpenAI-compatible routes, used with OpenAI's own client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from jobwire.gateway.settings import GatewaySettings
from jobwire.handlers.llm import LlmSettings
from jobwire.local import LocalValkey
from tests.handlers.llm.local_worker import StartFleet
from tests.handlers.llm.upstream import (
    Stage,
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

# Imported in the tests that use it: the import takes a second in every test process.
if TYPE_CHECKING:
    import openai

HI: list[Any] = [{"role": "user", "content": "Hi"}]
CALL: dict[str, Any] = {"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"a": 1}'}}
TURNS: list[Any] = [
    {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    {"role": "assistant", "tool_calls": [{"id": "c0", "type": "function", **CALL}]},
    {"role": "tool", "tool_call_id": "c0", "content": "1"},
]


@pytest.fixture
def served(valkey: LocalValkey) -> Iterator[ServedJobs]:
    with ServedJobs(valkey.url) as started:
        yield started


@pytest_asyncio.fixture
async def stage(start: StartFleet) -> AsyncIterator[Stage]:
    """A worker whose model server behaves by the name of the model."""
    acts = {
        "good": [says("Hello ", "there")],
        "thinks": [says("<think>Hm.</think>Hello there")],
        "calls": [
            streams(
                event({"choices": [{"delta": {"tool_calls": [CALL]}}]}), delta("", "tool_calls")
            )
        ],
        "away": [refuses(404, "no such model", "model_not_found")],
        "slow": [streams(delta("Hello " * 8), then=waits)],
        "breaks": [streams(delta("Hello " * 8), cut=True), says("again")],
        "vectors": [vectors([0.5, 0.25])],
    }
    async with Stage(acts) as stage:
        settings = LlmSettings(base_url=stage.url, model="good", embed_model="vectors")
        await start(settings)
        yield stage


@pytest_asyncio.fixture
async def client(served: ServedJobs, stage: Stage) -> AsyncIterator[openai.AsyncOpenAI]:
    import openai

    url = f"{served.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="unused", max_retries=0) as client:
        yield client


@clause("J-50")
async def test_j50_an_openai_client_gets_an_answer(
    client: openai.AsyncOpenAI, served: ServedJobs
) -> None:
    raw = await client.chat.completions.with_raw_response.create(
        model="default", messages=HI, temperature=0.5, user="u-1"
    )
    answer = raw.parse()
    assert answer.choices[0].message.content == "Hello there"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 7
    job = served.job(raw.headers["x-job-id"])
    assert (job["status"], job["task"]) == ("done", "chat")


@clause("J-50")
async def test_j50_an_openai_client_streams(client: openai.AsyncOpenAI, served: ServedJobs) -> None:
    stream = await client.chat.completions.create(
        model="thinks", messages=HI, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    *chunks, usage = chunks
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello there"
    reasoning = [getattr(chunk.choices[0].delta, "reasoning_content", None) for chunk in chunks]
    assert "Hm." in reasoning
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert usage.usage is not None


@clause("J-50")
async def test_j50_an_openai_client_gets_calls_of_its_functions(
    client: openai.AsyncOpenAI, stage: Stage
) -> None:
    answer = await client.chat.completions.create(
        model="calls",
        messages=TURNS,
        tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}],
        top_p=0.5,
        reasoning_effort="low",
    )
    calls = answer.choices[0].message.tool_calls
    assert calls is not None
    assert calls[0].to_dict()["function"] == {"name": "f", "arguments": '{"a": 1}'}
    asked = stage.asked("calls")[0].body
    assert (asked["top_p"], asked["reasoning_effort"]) == (0.5, "low")
    assert [turn["role"] for turn in asked["messages"]] == ["system", "user", "assistant", "tool"]


@clause("J-50")
async def test_j50_errors_have_the_form_of_openai(client: openai.AsyncOpenAI) -> None:
    import openai

    with pytest.raises(openai.NotFoundError) as missing:
        await client.chat.completions.create(model="away", messages=HI)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="must be 1") as refused:
        await client.chat.completions.create(model="good", messages=HI, n=2)
    assert refused.value.param == "n"


@clause("J-50")
async def test_j50_a_stream_that_starts_anew_is_an_error(client: openai.AsyncOpenAI) -> None:
    """Text that was sent cannot be taken back."""
    import openai

    stream = await client.chat.completions.create(model="breaks", messages=HI, stream=True)
    with pytest.raises(openai.APIError, match="mid-answer"):
        _ = [chunk async for chunk in stream]


@clause("J-50", "J-16")
@pytest.mark.parametrize("is_stream", [True, False])
async def test_j50_closing_the_connection_stops_the_model(
    client: openai.AsyncOpenAI, served: ServedJobs, stage: Stage, is_stream: bool
) -> None:
    import openai

    if is_stream:
        stream = await client.chat.completions.create(model="slow", messages=HI, stream=True)
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        await stream.close()
    else:
        impatient = client.with_options(timeout=0.5)
        with pytest.raises(openai.APITimeoutError):
            await impatient.chat.completions.create(model="slow", messages=HI)
    await wait_until(lambda: stage.left == 1, "the model's server to see the disconnect")
    await wait_until(
        lambda: served.client.get("/v1/jobs?status=canceled").json()["jobs"], "the cancel"
    )


@clause("J-50")
async def test_j50_an_openai_client_gets_vectors_and_models(client: openai.AsyncOpenAI) -> None:
    answer = await client.embeddings.create(model="default", input="a", encoding_format="float")
    assert answer.data[0].embedding == [0.5, 0.25]
    # The client's own default is base64, which it decodes.
    answer = await client.embeddings.create(model="default", input=["a"])
    assert answer.data[0].embedding == [0.5, 0.25]
    assert [model.id for model in (await client.models.list()).data] == ["default"]


@clause("J-57")
async def test_j57_a_key_without_read_gets_no_answer(valkey: LocalValkey) -> None:
    import openai

    settings = GatewaySettings(keys=(key("writer", "submit"),))
    with ServedJobs(valkey.url, gateway=settings) as served:
        url = f"{served.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="jw_writer", max_retries=0) as client:
            with pytest.raises(openai.PermissionDeniedError, match="submit and read"):
                await client.chat.completions.create(model="good", messages=HI)
