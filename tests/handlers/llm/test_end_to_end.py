"""Jobs of the six tasks on a real queue: consecutive attempts, and tools that are not
run twice. All six, the whole way from HTTP to the model and back, are in `test_up.py`."""

from __future__ import annotations

import json
import threading

import pytest

from jobwire.handlers.llm import LlmSettings, register
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection
from jobwire.worker import App, Worker
from tests.handlers.llm.local_worker import Fleet, StartFleet
from tests.handlers.llm.recorder import text_of
from tests.handlers.llm.upstream import Upstream, delta, refuses, says, streams
from tests.support import Plain, clause, wait_until
from tests.support.workers import started, stopped


@clause("J-51", "J-35")
async def test_j51_a_job_with_attempts_left_is_retried_later(start: StartFleet) -> None:
    busy = refuses(429, "slow down", retry_after="16")
    async with Upstream(busy, says("Hello")) as upstream:
        fleet = await start(LlmSettings(base_url=upstream.url, model="tester"))
        job_id = await fleet.submit("chat", {"prompt": "Hi"}, max_attempts=2)
        await wait_until(
            lambda: "retrying" in [event.kind for event in fleet.events(job_id)], "the retry"
        )
        data = fleet.events(job_id)[-1].data
    assert data["error"]["code"] == "backend_rate_limited"
    assert data["delay_ms"] == 16_000
    assert len(upstream.requests) == 1


@clause("J-51", "J-35")
async def test_j51_each_attempt_begins_with_a_reset(start: StartFleet) -> None:
    """A reader that discards its text at each reset has the answer once at the end."""
    cut = streams(delta("Hello wor"), cut=True)
    async with Upstream(cut, cut, says("Good day")) as upstream:
        fleet = await start(LlmSettings(base_url=upstream.url, model="tester"))
        job_id = await fleet.submit("chat", {"prompt": "Hi"}, max_attempts=2)
        ended = await fleet.end(job_id)
    assert json.loads(ended["result"])["text"] == "Good day"
    events = fleet.events(job_id)
    assert [(each.kind, each.data.get("attempt")) for each in events] == [
        ("queued", None),
        ("running", 1),
        ("token", 1),
        ("reset", 1),
        ("token", 1),
        ("retrying", 1),
        ("running", 2),
        ("reset", 2),
        ("token", 2),
        ("done", None),
    ]
    assert text_of(events) == "Good day"


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
        task = await started(worker)
        fleet = Fleet(connection, plain)
        timeout = 1.0 if end == "time" else None
        job_id = await fleet.submit("tool", {"prompt": "Go"}, max_attempts=3, timeout_s=timeout)
        await wait_until(lambda: begun, "the function to begin")
        if end == "worker":
            worker.stop()
        ended = await fleet.end(job_id)
        await stopped(worker, task)
        release.set()
    assert (ended["status"], len(begun)) == ("error", 1)
    assert json.loads(ended["error"])["code"] == "tool_failed"
