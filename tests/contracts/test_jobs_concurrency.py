"""J-36: a job of a handler that is at its limit waits on the server, seen by a plain client."""

from __future__ import annotations

import asyncio

import pytest

from jobwire import App, Context
from jobwire.job.messages import JobId
from jobwire.job.states import State
from jobwire.maintenance import Maintenance
from jobwire.settings import Settings
from jobwire.systems.jobs.app_queues import app_queues
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.worker import Worker
from tests.support import clause, wait_until
from tests.support.raw import Raw
from tests.support.streams import StreamsLab
from tests.support.workers import started, stopped


class Site:
    """An App `shop` with a handler that is limited to one job, and one without a limit."""

    def __init__(self, lab: StreamsLab, queue: str = "") -> None:
        self.lab = lab
        self.app = App("shop")
        self.gate = asyncio.Event()
        self.most = self.now = 0

        @self.app.handler("narrow", concurrency=1, queue=queue)
        async def narrow(ctx: Context) -> None:
            self.now += 1
            self.most = max(self.most, self.now)
            await self.gate.wait()
            await asyncio.sleep(0)
            self.now -= 1

        @self.app.handler("wide", queue=queue)
        async def wide(ctx: Context) -> None: ...

        self.found = app_queues(self.app, Settings())

    def worker(self, slots: int) -> Worker:
        found = self.found
        engine = StreamsEngine(
            self.lab.connection,
            self.lab.settings,
            queues=found.queues,
            task_queues=found.by_task,
        )
        maintenance = Maintenance(engine.maintenance())
        return Worker(self.app, [engine], slots=slots, background=[maintenance.run])

    async def submit(self, task: str, count: int) -> list[JobId]:
        queue = self.found.by_task[task]
        return [await self.lab.submit(task=task, queue=queue) for _ in range(count)]

    async def done(self, jobs: list[JobId]) -> bool:
        return {(await self.lab.snapshot(job)).state for job in jobs} == {State.DONE}


@clause("J-36", "J-53")
def test_j36_a_limited_handler_has_a_queue_of_its_own() -> None:
    app = App("shop")
    app.handler("resize", concurrency=2)(lambda ctx: None)
    app.handler("chat", concurrency=2)(lambda ctx: None)
    app.handler("named", concurrency=2, queue="media")(lambda ctx: None)
    app.handler("not a name", concurrency=2)(lambda ctx: None)
    app.handler("free")(lambda ctx: None)
    found = app_queues(app, Settings())
    assert found.by_task == {
        "resize": "shop.resize",
        "chat": "default",
        "named": "media",
        "not a name": "shop",
        "free": "shop",
    }
    assert found.queues == ("shop", "default", "media", "shop.resize")
    assert found.apart == {"shop.resize"}


@clause("J-36")
async def test_j36_jobs_of_a_handler_at_its_limit_are_not_delivered(
    lab: StreamsLab, raw: Raw
) -> None:
    site = Site(lab)
    jobs = await site.submit("narrow", 20)
    worker = site.worker(slots=4)
    running = await started(worker)
    await wait_until(lambda: site.now == 1, "the first of them")
    others = await site.submit("wide", 20)
    await wait_until(lambda: site.done(others), "the jobs of the other handler")
    assert len(raw.pending("jobs:stream:shop.narrow")) == 1, "the others are for any worker"
    assert [raw.fields(f"job:{job}")["status"] for job in jobs[1:]] == ["queued"] * 19
    site.gate.set()
    await wait_until(lambda: site.done(jobs), "the jobs that waited")
    assert site.most == 1
    for job in jobs:
        kinds = [event["type"] for _, event in raw.entries(f"job:{job}:events")]
        assert kinds == ["queued", "running", "done"], "none was started and put back"
    await stopped(worker, running)


@clause("J-36")
async def test_j36_a_second_worker_runs_what_waits_for_the_handler_of_the_first(
    lab: StreamsLab,
) -> None:
    first, second = Site(lab), Site(lab)
    jobs = await first.submit("narrow", 6)
    workers = [first.worker(slots=4)]
    runs = [await started(workers[0])]
    await wait_until(lambda: first.now == 1, "the first worker to be at its limit")
    second.gate.set()
    workers.append(second.worker(slots=4))
    runs.append(await started(workers[1]))
    await wait_until(lambda: second.done(jobs[1:]), "the second worker to run the others")
    first.gate.set()
    await wait_until(lambda: first.done(jobs), "the first job")
    assert (first.most, second.most) == (1, 1)
    for worker, run in zip(workers, runs, strict=True):
        await stopped(worker, run)


@clause("J-36")
@pytest.mark.parametrize("slots", [1, 4])
async def test_j36_jobs_at_their_limit_are_put_off_where_others_share_the_queue(
    lab: StreamsLab, raw: Raw, slots: int
) -> None:
    site = Site(lab, queue="media")
    worker = site.worker(slots)
    running = await started(worker)
    jobs = await site.submit("narrow", 6)
    others = await site.submit("wide", 6)
    if slots > 1:
        await wait_until(lambda: site.done(others), "the jobs of the other handler")
        assert sorted(raw.fields(f"job:{job}")["status"] for job in jobs) == [
            *["queued"] * 5,
            "running",
        ]
    site.gate.set()
    await wait_until(lambda: site.done([*jobs, *others]), "all jobs")
    assert site.most == 1
    for job in jobs:
        kinds = [event["type"] for _, event in raw.entries(f"job:{job}:events")]
        assert kinds == ["queued", "running", "done"]
    await stopped(worker, running)
