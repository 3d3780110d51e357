"""Each task the whole way: submitted, taken by a real worker from a real server, answered by a real
model, and seen by whoever reads the keys."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import urllib.request
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from jobwire.handlers.llm import LlmSettings, register
from jobwire.handlers.llm.models.choose import Models
from jobwire.handlers.llm.tasks import TASKS
from jobwire.job.messages import JobId, Order, Submitted
from jobwire.valkey import Connection
from jobwire.wires.streams.engine import StreamsEngine
from jobwire.wires.streams.queue import StreamsQueue
from jobwire.wires.streams.settings import StreamsSettings
from jobwire.worker import App, Worker
from tests.handlers.llm.conftest import KEY
from tests.handlers.llm.recording import Event, text_of
from tests.handlers.llm.upstream import Upstream, delta, refuses, says, streams
from tests.support import Plain, clause, wait_until
from tests.support.shared import Facts


class Fleet:
    """A worker with the six tasks, and a queue to submit to."""

    def __init__(self, connection: Connection, plain: Plain) -> None:
        self.queue = StreamsQueue(connection, StreamsSettings())
        self._plain = plain

    async def submit(self, task: str, payload: object, **order: Any) -> JobId:
        answer = await self.queue.submit(Order(task, json.dumps(payload), **order))
        assert isinstance(answer, Submitted)
        return answer.job_id

    def hash(self, job_id: JobId) -> dict[str, str]:
        return self._plain.hgetall(f"job:{job_id}")  # pyright: ignore[reportReturnType] - typed in part

    def events(self, job_id: JobId) -> list[Event]:
        """All events that the wire holds."""
        rows: Any = self._plain.xrange(f"job:{job_id}:events")
        return [Event(row["type"], json.loads(row["data"]), row["step"]) for _, row in rows]

    async def end(self, job_id: JobId) -> dict[str, str]:
        """The job's hash once it has come to its end."""
        ends = ("done", "error", "canceled")
        await wait_until(
            lambda: self.hash(job_id)["status"] in ends, "the end of the job", timeout_s=60
        )
        return self.hash(job_id)


StartFleet = Callable[..., Any]


@pytest_asyncio.fixture
async def start(connection: Connection, plain: Plain) -> AsyncIterator[StartFleet]:
    """Start a worker for these settings; it is stopped with the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def begin(
            settings: LlmSettings, models: Models | None = None, app: App | None = None
        ) -> Fleet:
            app = App() if app is None else app
            register(app, settings, models)
            worker = Worker(app, [StreamsEngine(connection, StreamsSettings())])
            task = asyncio.create_task(worker.run())

            async def stop() -> None:
                worker.stop()
                worker.stop()
                await asyncio.wait_for(task, 30)

            stack.push_async_callback(stop)
            await worker.ready.wait()
            return Fleet(connection, plain)

        yield begin


@clause("J-50")
@pytest.mark.parametrize("task", [task.name for task in TASKS])
async def test_j50_each_task_the_whole_way(
    start: StartFleet, llama_settings: LlmSettings, task: str
) -> None:
    (example,) = [each.example for each in TASKS if each.name == task]
    fleet = await start(llama_settings)
    job_id = await fleet.submit(task, {**example, "temperature": 0, "max_tokens": 96})
    ended = await fleet.end(job_id)
    assert (ended["status"], ended["error"]) == ("done", "")
    result = json.loads(ended["result"])
    kinds = [event.kind for event in fleet.events(job_id)]
    assert kinds[:2] == ["queued", "running"]
    assert kinds[-1] == "done"
    seen = {
        "chat": ("token", "text"),
        "plan": ("step", "steps"),
        "code": ("token", "code"),
        "tool": ("tool_result", "output"),
        "rag": ("sources", "answer"),
        "embed": ("queued", "vectors"),
    }
    event, member = seen[task]
    assert event in kinds
    assert result[member]
    if task == "chat":
        assert text_of(fleet.events(job_id)) == result["text"]


@clause("J-51")
async def test_j51_cancelling_stops_the_model_at_once(
    start: StartFleet, llama_settings: LlmSettings, llama: Facts
) -> None:
    fleet = await start(llama_settings)
    endless = {"prompt": "Count to ten thousand.", "max_tokens": 1500, "stop": ["never"]}
    job_id = await fleet.submit("chat", endless)
    await wait_until(
        lambda: "token" in [event.kind for event in fleet.events(job_id)], "the first token"
    )
    await fleet.queue.cancel(job_id)
    ended = await fleet.end(job_id)
    assert ended["status"] == "canceled"
    *_, last = fleet.events(job_id)
    assert last.kind == "canceled"
    assert last.data["partial"] == text_of(fleet.events(job_id))
    slot = await wait_until(lambda: _idle_slot(llama), "the model to be idle")
    assert slot is not None
    assert slot["next_token"][0]["n_decoded"] < 1500


def _idle_slot(llama: Facts) -> dict[str, Any] | None:
    request = urllib.request.Request(
        f"{llama['chat']}/slots", headers={"Authorization": f"Bearer {KEY}"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        (slot,) = json.load(answer)
    return None if slot["is_processing"] else slot


@clause("J-51", "J-6")
async def test_j51_an_error_has_its_code_and_what_there_was(start: StartFleet) -> None:
    async with Upstream(streams(delta("Hello wor"), cut=True)) as upstream:
        fleet = await start(LlmSettings(base_url=upstream.url, model="tester"))
        ended = await fleet.end(await fleet.submit("chat", {"prompt": "Hi"}))
    assert ended["status"] == "error"
    error = json.loads(ended["error"])
    assert error["code"] == "backend_stream_cut"
    assert (error["retryable"], error["attempt"], error["partial"]) == (True, 1, "Hello wor")


@clause("J-51", "J-35")
async def test_j51_a_job_with_attempts_left_is_tried_again_later(start: StartFleet) -> None:
    busy = refuses(429, "slow down", retry_after="16")
    async with Upstream(busy, says("Hello")) as upstream:
        fleet = await start(LlmSettings(base_url=upstream.url, model="tester"))
        job_id = await fleet.submit("chat", {"prompt": "Hi"}, max_attempts=2)
        await wait_until(
            lambda: "retrying" in [event.kind for event in fleet.events(job_id)], "the retry"
        )
        told = fleet.events(job_id)[-1].data
    assert told["error"]["code"] == "backend_rate_limited"
    assert told["delay_ms"] == 16_000
    assert len(upstream.requests) == 1


@clause("J-50")
async def test_j50_a_wrong_payload_is_refused_with_its_place(start: StartFleet) -> None:
    fleet = await start(LlmSettings(base_url="http://127.0.0.1:9", model="tester"))
    for payload, words in (
        ({"prompt": "Hi", "temprature": 1}, "unknown field `temprature`"),
        ({}, "give either `prompt` or `messages`"),
        ({"prompt": "Hi", "max_tokens": 9999}, "payload.max_tokens: expected `int` <= 2048"),
    ):
        error = json.loads((await fleet.end(await fleet.submit("chat", payload)))["error"])
        assert (error["code"], error["retryable"]) == ("invalid_payload", False)
        assert words in error["message"]


@clause("J-50", "J-36")
@pytest.mark.parametrize("end", ["time", "worker"])
async def test_j50_a_tool_is_not_run_again_after(
    start: StartFleet, connection: Connection, plain: Plain, end: str
) -> None:
    """The job has attempts left, but its function has begun: it fails instead."""
    begun: list[int] = []
    release = threading.Event()
    app = App()

    @app.tool
    def charge() -> None:
        """Charge a card."""
        begun.append(1)
        release.wait(60)

    call = says(json.dumps({"call": {"tool": "charge", "arguments": {}}}))
    async with Upstream(call) as upstream:
        settings = LlmSettings(base_url=upstream.url, model="tester")
        register(app, settings)
        worker = Worker(app, [StreamsEngine(connection, StreamsSettings())], drain_s=0.1)
        task = asyncio.create_task(worker.run())
        await worker.ready.wait()
        fleet = Fleet(connection, plain)
        timeout = 1.0 if end == "time" else None
        job_id = await fleet.submit("tool", {"prompt": "Go"}, max_attempts=3, timeout_s=timeout)
        await wait_until(lambda: begun, "the function to begin")
        if end == "worker":
            worker.stop()
        ended = await fleet.end(job_id)
        worker.stop()
        worker.stop()
        await asyncio.wait_for(task, 30)
        release.set()
    assert (ended["status"], len(begun)) == ("error", 1)
    assert json.loads(ended["error"])["code"] == "tool_failed"
