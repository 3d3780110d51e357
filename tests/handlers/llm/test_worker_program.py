"""`jobwire worker` with the six tasks, as a program: without an app, and for an app with tools."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from jobwire.job.messages import JobId, JobRequest, Submitted
from jobwire.local import LocalValkey
from jobwire.systems.jobs.queue import StreamsQueue
from jobwire.valkey import Connection
from tests.handlers.llm.upstream import Upstream, says
from tests.support import Program, clause, wait_until

TOOLS = '''
from jobwire import App

app = App()

@app.handler("greet")
async def greet(payload: dict) -> str:
    return "hello"

@app.tool
def open_door(floor: int) -> str:
    """Open the door on a floor."""
    return f"door {floor} is open"
'''


async def result_of(connection: Connection, task: str, payload: object) -> object:
    answer = await StreamsQueue(connection).submit(JobRequest(task, json.dumps(payload)))
    assert isinstance(answer, Submitted)
    return await _end_of(connection, answer.job_id)


async def _end_of(connection: Connection, job_id: JobId) -> object:
    """The job's result, or its error."""

    async def ended() -> str:
        record = await StreamsQueue(connection).record(job_id)
        assert record is not None
        return record.result_json or record.error_json

    return json.loads(await wait_until(ended, "the end of the job"))


def start(valkey: LocalValkey, folder: Path, *args: str, **variables: str) -> Program:
    env = {"JOBWIRE_VALKEY_URL": valkey.url, **variables}
    return Program("-m", "jobwire", "worker", *args, env=env, cwd=folder)


@clause("J-50")
async def test_j50_a_worker_without_an_app_has_the_six_tasks(
    valkey: LocalValkey, connection: Connection, tmp_path: Path
) -> None:
    async with Upstream(says("Hello")) as upstream:
        env = {"OPENAI_BASE_URL": upstream.url, "OPENAI_MODEL": "tester", "OPENAI_API_KEY": "k"}
        with start(valkey, tmp_path, **env) as program:
            line = "worker with 10 slots; default → chat, code, embed, plan, rag, tool"
            await asyncio.to_thread(program.wait_for_line, line)
            result = await result_of(connection, "chat", {"prompt": "Hi"})
            program.terminate()
            assert await asyncio.to_thread(program.wait) == 0
    assert isinstance(result, dict)
    assert result["text"] == "Hello"
    assert upstream.requests[0].headers["authorization"] == "Bearer k"


@clause("J-50")
async def test_j50_an_app_with_tools_gets_the_task_that_calls_them(
    valkey: LocalValkey, connection: Connection, tmp_path: Path
) -> None:
    (tmp_path / "house.py").write_text(TOOLS)
    call = json.dumps({"call": {"tool": "open_door", "arguments": {"floor": 3}}})
    async with Upstream(says(call)) as upstream:
        env = {"OPENAI_BASE_URL": upstream.url, "OPENAI_MODEL": "tester"}
        with start(valkey, tmp_path, "house", **env) as program:
            line = "house → greet; default → chat, code, embed, plan, rag, tool"
            await asyncio.to_thread(program.wait_for_line, line)
            result = await result_of(connection, "tool", {"prompt": "Let me in on the third"})
            program.terminate()
            assert await asyncio.to_thread(program.wait) == 0
    assert isinstance(result, dict)
    assert result["output"] == "door 3 is open"


CHARGE = '''
import time
from pathlib import Path
from jobwire import App

app = App()

@app.tool
def charge() -> str:
    """Charge a card."""
    with Path("charged").open("a") as file:
        file.write("once\\n")
    time.sleep(120)
    return "charged"
'''


@clause("J-50", "J-34")
async def test_j50_a_tool_is_not_run_again_after_kill_9(
    valkey: LocalValkey, connection: Connection, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(CHARGE)
    call = json.dumps({"call": {"tool": "charge", "arguments": {}}})
    async with Upstream(says(call)) as upstream:
        env = {
            "OPENAI_BASE_URL": upstream.url,
            "OPENAI_MODEL": "tester",
            "JOBWIRE_WORKER_LEASE": "1s",
        }
        with start(valkey, tmp_path, "shop", **env) as first:
            await asyncio.to_thread(first.wait_for_line, "worker with")
            payload = {"prompt": "Charge my card"}
            answer = await StreamsQueue(connection).submit(
                JobRequest("tool", json.dumps(payload), max_attempts=3)
            )
            assert isinstance(answer, Submitted)
            charged = tmp_path / "charged"
            await wait_until(lambda: charged.exists() and charged.read_text(), "the charge")
            first.kill()
        with start(valkey, tmp_path, "shop", **env) as second:
            error = await _end_of(connection, answer.job_id)
            second.terminate()
            assert await asyncio.to_thread(second.wait) == 0
    assert isinstance(error, dict)
    assert error["code"] == "tool_failed"
    assert "a worker was lost" in error["message"]
    assert (tmp_path / "charged").read_text() == "once\n"
