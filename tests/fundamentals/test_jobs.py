"""What a program does with jobs: submit, follow, retry, cancel, repeat safely, schedule."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import httpx
import pytest

from jobwire import App, AsyncClient, Context, Fail, Retry
from jobwire.client import JobFailed, NewJob
from jobwire.testing import run
from tests.fundamentals.conftest import RunWorker
from tests.support import wait_until


@dataclass
class Person:
    name: str


async def test_submit_a_job_and_get_its_result(
    app: App, worker: RunWorker, jobs: AsyncClient
) -> None:
    @app.handler("greet")
    async def greet(ctx: Context, person: Person) -> str:
        return f"Hello, {person.name}!"

    async with worker():
        assert await jobs.run("greet", Person("Ada")) == "Hello, Ada!"


async def test_submit_now_and_look_later(app: App, worker: RunWorker, jobs: AsyncClient) -> None:
    @app.handler("double")
    def double(payload: dict[str, int]) -> int:  # a plain function runs in a thread
        return 2 * payload["number"]

    async with worker():
        submitted = await jobs.submit("double", {"number": 21})
        job = await jobs.wait(submitted.job_id)
        assert (job.status, job.result, job.attempt) == ("done", 42, 1)


async def test_submit_many_jobs_at_once(app: App, worker: RunWorker, jobs: AsyncClient) -> None:
    @app.handler("square")
    async def square(ctx: Context, payload: dict[str, int]) -> int:
        return payload["of"] ** 2

    async with worker():
        ids = await jobs.batch([NewJob("square", {"of": number}) for number in range(20)])
        ended = [await jobs.wait(str(job_id)) for job_id in ids]
        assert [job.result for job in ended] == [number**2 for number in range(20)]


async def test_watch_the_events_of_a_job_live_over_sse(
    app: App, worker: RunWorker, jobs: AsyncClient
) -> None:
    @app.handler("count")
    async def count(ctx: Context) -> None:
        await ctx.progress(50, "half of it")

    async with worker(), httpx.AsyncClient(trust_env=False) as browser:
        job = await jobs.submit("count")
        async with browser.stream("GET", f"{jobs.url}/v1/jobs/{job.job_id}/events") as response:
            lines = [line async for line in response.aiter_lines()]
        events = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
        assert events == ["hello", "queued", "running", "progress", "done"]


async def test_an_event_stream_resumes_after_the_last_event_seen(
    app: App, worker: RunWorker, jobs: AsyncClient
) -> None:
    @app.handler("talk")
    async def talk(ctx: Context) -> None:
        for word in ("one", "two", "three"):
            await ctx.emit("word", {"text": word})

    async with worker():
        job = await jobs.wait((await jobs.submit("talk")).job_id)
        events = [event async for event in jobs.events(job.job_id)]
        rest = [event async for event in jobs.events(job.job_id, after=events[2].id)]
        assert rest == events[3:]


async def test_a_job_that_fails_for_now_is_retried(
    app: App, worker: RunWorker, jobs: AsyncClient
) -> None:
    @app.handler("unsteady", retries=3)
    async def unsteady(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise Retry(after=0.01)
        return "done in the second attempt"

    async with worker():
        job = await jobs.wait((await jobs.submit("unsteady")).job_id)
        assert (job.result, job.attempt) == ("done in the second attempt", 2)


async def test_a_job_that_cannot_succeed_fails_at_once(
    app: App, worker: RunWorker, jobs: AsyncClient
) -> None:
    @app.handler("weather", retries=3)
    async def weather(ctx: Context) -> None:
        raise Fail("no_such_city", "there is no city of that name")

    async with worker():
        with pytest.raises(JobFailed, match="there is no city of that name"):
            await jobs.run("weather")


async def test_a_running_job_is_canceled(app: App, worker: RunWorker, jobs: AsyncClient) -> None:
    began = asyncio.Event()

    @app.handler("endless")
    async def endless(ctx: Context) -> None:
        began.set()
        await asyncio.Event().wait()

    async with worker():
        job = await jobs.submit("endless")
        await began.wait()
        await jobs.cancel(job.job_id)
        assert (await jobs.wait(job.job_id)).status == "canceled"


async def test_an_idempotency_key_makes_a_repeated_request_one_job(
    app: App, worker: RunWorker, jobs: AsyncClient
) -> None:
    runs: list[str] = []

    @app.handler("charge")
    async def charge(ctx: Context) -> None:
        runs.append(ctx.job.id)

    async with worker():
        first = await jobs.submit("charge", {"order": 7}, idempotency_key="order-7")
        second = await jobs.submit("charge", {"order": 7}, idempotency_key="order-7")
        await jobs.wait(second.job_id)
        assert runs == [first.job_id] == [second.job_id]


async def test_a_cron_entry_submits_a_job_at_each_due_time(
    app: App, worker: RunWorker, jobs: AsyncClient
) -> None:
    runs: list[str] = []

    @app.cron("* * * * * *")  # six fields: every second
    @app.handler("tick")
    async def tick(ctx: Context) -> None:
        runs.append(ctx.job.id)

    async with worker():
        await wait_until(lambda: runs, "a due time")
        assert (await jobs.wait(runs[0])).task == "tick"


async def test_a_handler_is_tested_in_memory_without_any_server(app: App) -> None:
    @app.handler("greet")
    async def greet(ctx: Context, person: Person) -> str:
        await ctx.progress(100, "ready")
        return f"Hello, {person.name}!"

    ran = await run(app, "greet", Person("Ada"))
    assert ran.result == "Hello, Ada!"
    assert ran.of("progress") == [{"percent": 100, "message": "ready"}]
