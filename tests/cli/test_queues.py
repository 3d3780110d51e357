"""`jobwire worker` on queues of the BullMQ wire, beside its other jobs (B-9, B-11)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from jobwire.local import LocalValkey
from jobwire.systems.queues.add_batcher import Added
from jobwire.systems.queues.codec import JobHash
from jobwire.systems.queues.contract import BullState
from jobwire.systems.queues.queue import QueueProducer
from jobwire.valkey import Connection
from tests.cli.runner import Up, clean_env, jobwire
from tests.support import Program, clause, wait_until
from tests.support.jobs_http import ServedJobs

APP = """
import asyncio
import json
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


async def add(queue: QueueProducer, name: str) -> str:
    answer = await queue.submit(name)
    assert isinstance(answer, Added)
    return answer.job_id


async def reached(queue: QueueProducer, job_id: str, state: BullState) -> JobHash:
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
        films, greetings = (
            QueueProducer(connection, "films"),
            QueueProducer(connection, "greetings"),
        )
        jobs = await add(films, "trailer"), await add(greetings, "greet")
        assert (
            await reached(films, jobs[0], BullState.COMPLETED)
        ).return_json == '"trailer on films"'
        done = await reached(greetings, jobs[1], BullState.COMPLETED)
        assert done.return_json == '"greet on greetings"'
        with ServedJobs(valkey.url) as served:
            (registered,) = served.client.get("/v1/workers").json()["workers"]
    assert registered["handlers"] == ["greet"]
    assert registered["serves"] == [
        {"wire": "streams", "queue": "films", "tasks": ["greet"]},
        {"wire": "bullmq", "queue": "films", "tasks": ["hang-once", "*"]},
        {"wire": "bullmq", "queue": "greetings", "tasks": ["greet"]},
    ]


@clause("B-6")
async def test_b6_a_job_of_a_killed_worker_runs_again(
    tmp_path: Path, valkey: LocalValkey, connection: Connection
) -> None:
    queue = QueueProducer(connection, "films")
    times = {"JOBWIRE_QUEUES_LOCK": "1s", "JOBWIRE_QUEUES_STALLED_INTERVAL": "1s"}
    job_id = await add(queue, "hang-once")
    with worker(tmp_path, valkey.url, **times) as first:
        await reached(queue, job_id, BullState.ACTIVE)
        await asyncio.to_thread(first.kill)
    with worker(tmp_path, valkey.url, **times):
        job = await reached(queue, job_id, BullState.COMPLETED)
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


PAYLOAD: dict[str, Any] = {
    "videoId": "550e8400-e29b-41d4-a716-446655440000",
    "userId": "user-123",
    "script": {
        "title": "My Video",
        "scenes": [
            {"sceneNumber": 1, "duration": 5, "voiceover": "Welcome", "imagePrompt": "Sunset"},
            {"sceneNumber": 2, "duration": 2, "voiceover": "Good bye", "imagePrompt": "Night"},
        ],
    },
    "userImageUrls": ["https://example.com/img1.jpg"],
}


def fetch(url: str) -> httpx.Response:
    return httpx.get(url, trust_env=False)


@clause("B-13", "B-9", "O-13")
async def test_b13_up_makes_clips_that_the_bucket_serves(tmp_path: Path) -> None:
    """Under both names of the queue: the document writes it with braces."""
    with Up(tmp_path, "--only", "queues") as up:
        await asyncio.to_thread(up.wait_until_up)
        assert up.ready()[1].keys() >= {"gateway", "valkey", "s3", "worker"}
        async with Connection.open(up.endpoints()["valkey"]) as connection:
            for name in ("video-generation", "{video-generation}"):
                queue = QueueProducer(connection, name)
                answer = await queue.submit("video-generation", json.dumps(PAYLOAD))
                bad = await queue.submit("video-generation", '{"videoId":"1"}')
                assert isinstance(answer, Added)
                assert isinstance(bad, Added)
                job = await reached(queue, answer.job_id, BullState.COMPLETED)
                assert (await queue.logs(answer.job_id)).lines == [
                    *("Generating scene 1", "Generating scene 2", "Uploading video", "Complete")
                ]
                assert job.progress_json == "100"
                result = json.loads(job.return_json)
                assert result.keys() == {"videoUrl", "duration"}
                assert result["duration"] == 7
                clip = await asyncio.to_thread(fetch, result["videoUrl"])
                assert (clip.status_code, clip.headers["content-type"]) == (200, "video/webm")
                assert clip.content.startswith(b"\x1a\x45\xdf\xa3"), "a Matroska file"
                failed = await reached(queue, bad.job_id, BullState.FAILED)
                assert "userId" in failed.failed_reason
        line = 'jobwire_queue_jobs{queue="video-generation",state="completed"} 1.0'

        async def is_counted() -> bool:
            return line in (await asyncio.to_thread(fetch, f"{up.url}/metrics")).text

        await wait_until(is_counted, "the gateway to find the queue", timeout_s=30)
        doctor = await asyncio.to_thread(jobwire, "doctor", "--json", cwd=tmp_path)
        assert "2 queues with 4 jobs" in doctor.stdout, doctor.stderr
        applied = await asyncio.to_thread(jobwire, "lifecycle", "apply", cwd=tmp_path)
        assert json.loads(applied.stdout)["applied"] == 0, "`up` has set the rules at its start"
