"""A-8: an answer that is interrupted in the middle of its text, on worker processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import pytest_asyncio

from jobwire.local import LocalValkey
from tests.handlers.llm.upstream import Stage, Upstream, delta, says, streams, waits
from tests.support import Plain, Program, clause, wait_until
from tests.support.jobs_http import ServedJobs
from tests.support.raw import Raw

WORDS = [f"word-{number} " for number in range(140)]
SHOWN = 104
"""Words that the first worker receives."""
CHAT: dict[str, Any] = {
    "model": "tester",
    "messages": [{"role": "user", "content": "Hi"}],
    "stream": True,
}


@pytest.fixture
def served(valkey: LocalValkey) -> Iterator[ServedJobs]:
    with ServedJobs(valkey.url) as started:
        yield started


@pytest_asyncio.fixture
async def model() -> AsyncIterator[Upstream]:
    """The first answer stops in the middle, later ones are whole."""
    half = streams(*map(delta, WORDS[:SHOWN]), then=waits)
    async with Stage({"tester": [half, says(*WORDS)]}) as stage:
        yield stage


Begin = Callable[[], Program]


@pytest.fixture
def begin(valkey: LocalValkey, model: Upstream, tmp_path: Path) -> Iterator[Begin]:
    """Starts worker processes, which give up a job soon after SIGTERM."""
    with ExitStack() as stack:

        def start() -> Program:
            env = {
                "JOBWIRE_VALKEY_URL": valkey.url,
                "JOBWIRE_WORKER_DRAIN": "200ms",
                "OPENAI_BASE_URL": model.url,
                "OPENAI_MODEL": "tester",
            }
            return stack.enter_context(Program("-m", "jobwire", "worker", env=env, cwd=tmp_path))

        yield start


async def ready(begin: Begin) -> Program:
    program = begin()
    await asyncio.to_thread(program.wait_for_line, "worker with 10 slots")
    return program


async def drained(program: Program) -> None:
    program.terminate()
    assert await asyncio.to_thread(program.wait) == 0


@clause("A-8", "K-5")
async def test_a08_a_drained_chat_is_never_streamed_twice(served: ServedJobs, begin: Begin) -> None:
    """Regression: the release took the delivery back, so that the next run said no `reset`: 244
    words of 140, without an error."""
    victim = await ready(begin)
    text, errors = "", list[Any]()
    async with (
        httpx.AsyncClient(base_url=served.url, trust_env=False, timeout=60) as http,
        http.stream("POST", "/v1/chat/completions", json=CHAT) as response,
    ):
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                chunk = json.loads(line[6:])
                if "error" in chunk:
                    errors.append(chunk["error"])
                    continue
                text += chunk["choices"][0]["delta"].get("content") or ""
                if text == "".join(WORDS[:SHOWN]) and victim.exit_code is None:
                    await drained(victim)
                    await ready(begin)
    assert text == "".join(WORDS[:SHOWN])
    (error,) = errors
    assert error["type"] == "server_error"
    assert "repeat the request" in error["message"]


@clause("A-8")
async def test_a08_a_drained_chat_says_reset_and_ends_with_its_result(
    served: ServedJobs, begin: Begin, plain: Plain
) -> None:
    victim = await ready(begin)
    job_id = str(served.submit("chat")["job_id"])

    def shown() -> bool:
        rows = Raw(plain).entries(f"job:{job_id}:events")
        texts = [json.loads(each["data"])["text"] for _, each in rows if each["type"] == "token"]
        return "".join(texts) == "".join(WORDS[:SHOWN])

    await wait_until(shown, "the first half of the text")
    with served.events(job_id, "?view=clean") as events:
        await asyncio.to_thread(events.until, "token")
        await drained(victim)
        await ready(begin)
        rest = await asyncio.to_thread(events.rest)
    assert Raw(plain).fields(f"job:{job_id}")["deliveries"] == "1", "the release took one back"
    names = [event.name for event in rest]
    at = names.index("rollback")
    assert names[at : at + 3] == ["rollback", "reset", "token"]
    pieces = [cast(Any, event.data)["data"]["text"] for event in rest[at:] if event.name == "token"]
    result = cast("dict[str, Any]", served.job(job_id)["result"])
    assert "".join(pieces) == result["text"] == "".join(WORDS)
