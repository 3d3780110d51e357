"""`jobwire worker` on queues of the BullMQ wire, beside its other jobs (B-9, B-11)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from jobwire.local import LocalValkey
from jobwire.valkey import Connection
from jobwire.wires.bullmq.codec import Job
from jobwire.wires.bullmq.contract import State
from jobwire.wires.bullmq.queue import Added, BullQueue
from tests.cli.runner import clean_env, jobwire
from tests.support import Program, clause, wait_until

APP = """
import asyncio
from pathlib import Path
from jobwire import App, Context

app = App()

@app.handler("greet")
@app.handler("*", queue="films", wire="bullmq")
async def greet(ctx: Context) -> str:
    return f"{ctx.job.task} on {ctx.job.source}"

@app.handler("hang-once", queue="films", wire="bullmq")
async def hang_once(ctx: Context) -> int:
    if ctx.job.deliveries == 1:
        await asyncio.sleep(3600)
    return ctx.job.deliveries
"""


def worker(folder: Path, url: str, **variables: str) -> Program:
    (folder / "films.py").write_text(APP)
    env = clean_env(VALKEY_URL=url, JOBWIRE_LOGGING_FORMAT="text", **variables)
    return Program("-m", "jobwire", "worker", "films:app", env=env, cwd=folder)


async def add(queue: BullQueue, name: str) -> str:
    answer = await queue.submit(name)
    assert isinstance(answer, Added)
    return answer.job_id


async def reached(queue: BullQueue, job_id: str, state: State) -> Job:
    async def is_there() -> Any:
        return await queue.state(job_id) is state

    await wait_until(is_there, f"job {job_id} to be {state}")
    job = await queue.get(job_id)
    assert job is not None
    return job


@clause("B-11")
async def test_b11_a_worker_serves_the_queues_that_its_handlers_and_settings_name(
    tmp_path: Path, valkey: LocalValkey, connection: Connection
) -> None:
    with worker(tmp_path, valkey.url, JOBWIRE_QUEUES_NAMES="greetings"):
        films, greetings = BullQueue(connection, "films"), BullQueue(connection, "greetings")
        jobs = await add(films, "trailer"), await add(greetings, "greet")
        assert (await reached(films, jobs[0], State.COMPLETED)).return_json == '"trailer on films"'
        done = await reached(greetings, jobs[1], State.COMPLETED)
        assert done.return_json == '"greet on greetings"'


@clause("B-6")
async def test_b6_a_job_of_a_killed_worker_runs_again(
    tmp_path: Path, valkey: LocalValkey, connection: Connection
) -> None:
    queue = BullQueue(connection, "films")
    times = {"JOBWIRE_QUEUES_LOCK": "1s", "JOBWIRE_QUEUES_STALLED_INTERVAL": "1s"}
    job_id = await add(queue, "hang-once")
    with worker(tmp_path, valkey.url, **times) as first:
        await reached(queue, job_id, State.ACTIVE)
        await asyncio.to_thread(first.kill)
    with worker(tmp_path, valkey.url, **times):
        job = await reached(queue, job_id, State.COMPLETED)
    assert (job.return_json, job.stalled, job.attempts_made) == ("2", 1, 1)
    rows: Any = await connection.call("XRANGE", queue.keys.events, "-", "+")
    events = [fields[1] for _, fields in rows if job_id in fields]
    assert events == ["added", "waiting", "active", "waiting", "stalled", "active", "completed"]


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"JOBWIRE_QUEUES_NAMES": "a:b"}, "queues.names: the queue name 'a:b' must be"),
        ({"JOBWIRE_QUEUES_URL": "http://x"}, "queues.url: "),
        ({"JOBWIRE_QUEUES_LOCK": "10ms"}, "queues.lock: is 0.01 s, must be at least 1 s"),
    ],
)
def test_bad_settings_of_queues_are_one_clear_line(
    tmp_path: Path, valkey: LocalValkey, variables: dict[str, str], line: str
) -> None:
    (tmp_path / "films.py").write_text(APP)
    env = clean_env(VALKEY_URL=valkey.url, **variables)
    done = jobwire("worker", "films:app", cwd=tmp_path, env=env)
    assert done.returncode == 2, done.stderr
    assert line in done.stderr.splitlines()[-1]
