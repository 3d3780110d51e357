"""B-27: one engine serves many busy queues: a script for all of them, and a fair part for each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, cast

import pytest
import pytest_asyncio

from jobwire import App, Context
from jobwire.job.messages import Done
from jobwire.systems.queues.admin import QueueAdmin
from jobwire.systems.queues.announcement import seen_workers
from jobwire.systems.queues.contract import BullState
from jobwire.systems.queues.engine import BullEngine
from jobwire.systems.queues.options import BullJobOptions
from jobwire.systems.queues.queue import NewBullJob, QueueProducer
from jobwire.systems.queues.settings import BullSettings
from jobwire.systems.queues.worker_connections import WorkerConnections
from jobwire.valkey import Connection
from jobwire.worker import Worker
from tests.support import Plain, clause, wait_until
from tests.support.workers import started, stopped

SETTINGS = BullSettings(announce=False)
Serve = Callable[..., Coroutine[Any, Any, Worker]]


@pytest_asyncio.fixture
async def serve(connection: Connection) -> AsyncIterator[Serve]:
    """Start a worker for an App and its queues."""
    running: list[tuple[Worker, asyncio.Task[None]]] = []

    async def start(app: App, *queues: str, slots: int = 10) -> Worker:
        engine = BullEngine(WorkerConnections(connection, SETTINGS), *queues)
        worker = Worker(app, [engine], slots=slots)
        running.append((worker, await started(worker)))
        return worker

    yield start
    for worker, task in running:
        await stopped(worker, task)


async def fill(connection: Connection, queue: str, jobs: int) -> QueueProducer:
    producer = QueueProducer(connection, queue, SETTINGS)
    await producer.submit_many([NewBullJob("job") for _ in range(jobs)])
    return producer


async def completed(producer: QueueProducer, jobs: int) -> None:
    async def is_so() -> bool:
        return (await producer.counts())[BullState.COMPLETED] == jobs

    await wait_until(is_so, f"{jobs} completed jobs")


@clause("B-27")
async def test_b27_jobs_of_many_queues_share_their_scripts(
    connection: Connection, plain: Plain, serve: Serve
) -> None:
    names = [f"q{number}" for number in range(40)]
    queues = [await fill(connection, name, 5) for name in names]
    app, seen = App(), Counter[str]()

    @app.handler("job")
    async def job(ctx: Context) -> None:
        seen[ctx.job.source] += 1

    plain.call("CONFIG", "RESETSTAT")
    await serve(app, *names, slots=50)
    await wait_until(lambda: sum(seen.values()) == 200)
    stats = cast("dict[str, dict[str, int]]", plain.info("commandstats"))
    scripts = stats["cmdstat_evalsha"]["calls"]
    assert 2 <= scripts <= 40, f"{scripts} scripts for 200 jobs of 40 queues"
    for queue in queues:
        await completed(queue, 5)
    assert seen == dict.fromkeys(names, 5)


@clause("B-27")
async def test_b27_queues_with_work_have_equal_parts_of_the_slots(
    connection: Connection, serve: Serve
) -> None:
    """Jobs of one queue last; they do not gradually get all slots."""
    app, gate, running = App(), asyncio.Event(), Counter[str]()
    beside: list[int] = []

    @app.handler("job", queue="long", wire="bullmq")
    async def long(ctx: Context) -> None:
        running["long"] += 1
        await gate.wait()

    @app.handler("job", queue="short", wire="bullmq")
    async def short(ctx: Context) -> None:
        running["short"] += 1
        if running["short"] <= 250:
            beside.append(running["long"])

    await fill(connection, "long", 50)
    quick = await fill(connection, "short", 300)
    await serve(app, "long", "short", slots=10)
    await completed(quick, 300)
    assert max(beside) <= 5
    await wait_until(lambda: running["long"] == 10, "the slots that nobody else wants")
    gate.set()


@clause("B-27")
async def test_b27_a_queue_that_gets_work_is_served_while_another_is_never_empty(
    connection: Connection, serve: Serve
) -> None:
    app, ran = App(), asyncio.Event()
    busy = QueueProducer(connection, "busy", SETTINGS)

    @app.handler("job", queue="busy", wire="bullmq")
    async def again(ctx: Context) -> None:
        if not ran.is_set():
            await busy.submit_many([NewBullJob("job"), NewBullJob("job")])

    @app.handler("job", queue="quiet", wire="bullmq")
    async def quiet(ctx: Context) -> None:
        ran.set()

    await serve(app, "busy", "quiet", slots=2)
    await fill(connection, "busy", 5)
    await fill(connection, "quiet", 1)
    await wait_until(ran.is_set, "the job of the quiet queue")


@clause("B-19", "B-27")
@pytest.mark.parametrize("key", ["delayed", "meta", "wait"])
async def test_b27_a_queue_whose_keys_are_broken_does_not_stop_the_others(
    connection: Connection, plain: Plain, serve: Serve, key: str
) -> None:
    app = App()

    @app.handler("job")
    async def job(ctx: Context) -> None: ...

    plain.call("SET", f"bull:broken:{key}", "no such type")
    plain.call("ZADD", "bull:broken:marker", 0, "0")
    await serve(app, "broken", "sound", slots=2)
    sound = await fill(connection, "sound", 20)
    await completed(sound, 20)


@clause("B-27")
async def test_b27_an_error_while_a_queue_is_finished_is_that_of_its_jobs_alone(
    connection: Connection, plain: Plain, serve: Serve
) -> None:
    app, gate = App(), asyncio.Event()

    @app.handler("job")
    async def job(ctx: Context) -> None:
        await gate.wait()

    await fill(connection, "broken", 2)
    sound = await fill(connection, "sound", 2)
    worker = await serve(app, "broken", "sound", slots=4)
    await wait_until(lambda: worker.metrics.held == 4)
    plain.call("SET", "bull:broken:completed", "no such type")
    gate.set()
    await completed(sound, 2)


@clause("B-27")
async def test_b27_a_job_of_a_quiet_queue_is_next_beside_many_flooded_ones(
    connection: Connection, plain: Plain, serve: Serve
) -> None:
    app, permits, ran = App(), asyncio.Semaphore(0), list[str]()

    @app.handler("job")
    async def job(ctx: Context) -> None:
        await permits.acquire()
        ran.append(ctx.job.source)

    flooded = [f"flooded{number}" for number in range(40)]
    for name in flooded:
        await fill(connection, name, 5)
    worker = await serve(app, *flooded, "quiet", slots=3)
    for _ in range(50):  # each had its turn
        permits.release()
    await wait_until(lambda: len(ran) == 50 and worker.metrics.held == 3)
    await fill(connection, "quiet", 1)
    await wait_until(lambda: not plain.exists("bull:quiet:marker"), "the marker was seen")
    while "quiet" not in ran:
        already = len(ran) + 1
        permits.release()
        await wait_until(lambda most=already: len(ran) == most, "the next job")
    assert len(ran) <= 50 + 3 + 3, ran  # those that were running, and one take
    for _ in range(201 - len(ran)):
        permits.release()
    await wait_until(lambda: len(ran) == 201)


@clause("B-27")
async def test_b27_each_of_many_flooded_queues_has_its_turn(connection: Connection) -> None:
    """Regression: of more queues than there are parts, some were passed over at each take."""
    names = [f"q{number}" for number in range(100)]
    for name in names:
        await fill(connection, name, 5)
    engine = BullEngine(WorkerConnections(connection, SETTINGS), *names)
    await engine.register([], 50)
    seen = Counter[str]()
    try:
        for _ in range(4):  # 25 queues get two jobs each
            jobs = await engine.take(50)
            seen.update(leased.job.source for leased in jobs)
            await engine.settle([(leased, Done("null")) for leased in jobs], 0)
    finally:
        await engine.deregister()
    assert seen == dict.fromkeys(names, 2)


@clause("B-24", "B-27")
async def test_b27_a_refused_child_fails_its_own_job_and_none_of_another_queue(
    connection: Connection, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: a refused child of one queue's job failed the job of another with that id."""
    app, other_ends, parent_ends = App(), asyncio.Event(), asyncio.Event()

    @app.handler("job", queue="parent", wire="bullmq", uses={"children"})
    async def parent(ctx: Context) -> None:
        await ctx.add_child("children", "child", {}, job_id="7")  # no id for a child
        await parent_ends.wait()

    @app.handler("job", queue="other", wire="bullmq")
    async def other(ctx: Context) -> None:
        await other_ends.wait()

    queues = [await fill(connection, name, 1) for name in ("other", "parent")]
    await serve(app, "other", "parent", slots=4)
    await wait_until(lambda: "report dropped job_id=1" in caplog.text, "the refused child")
    ends: list[BullState] = []
    for queue, gate in zip(queues, (other_ends, parent_ends), strict=True):
        gate.set()

        async def has_ended(queue: QueueProducer = queue) -> bool:
            return await queue.state("1") is not BullState.ACTIVE

        await wait_until(has_ended, "its end")
        ends.append(await queue.state("1"))
    assert ends == [BullState.COMPLETED, BullState.FAILED]


@clause("B-8", "B-27")
async def test_b27_each_queue_keeps_its_own_limits_and_order(
    connection: Connection, plain: Plain, serve: Serve
) -> None:
    app, ran, at_once, most = App(), list[tuple[str, str]](), Counter[str](), Counter[str]()

    @app.handler("job")
    async def job(ctx: Context) -> None:
        queue = ctx.job.source
        ran.append((queue, ctx.job.id))
        at_once[queue] += 1
        most[queue] = max(most[queue], at_once[queue])
        await asyncio.sleep(0)
        at_once[queue] -= 1

    names = ("limited", "one-by-one", "ordered", "paused", "free")
    queues = {name: QueueProducer(connection, name, SETTINGS) for name in names}
    await QueueAdmin(queues["limited"]).set_rate_limit(2, 600_000)
    await QueueAdmin(queues["one-by-one"]).set_concurrency(1)
    await queues["paused"].pause()
    for name, queue in queues.items():
        options = [BullJobOptions(priority=9 - n if name == "ordered" else 0) for n in range(8)]
        await queue.submit_many([NewBullJob("job", "{}", each) for each in options])
    await serve(app, *names, slots=20)
    for name in ("one-by-one", "ordered", "free"):
        await completed(queues[name], 8)
    counts = Counter(queue for queue, _ in ran)
    assert counts == {"limited": 2, "one-by-one": 8, "ordered": 8, "free": 8}
    assert most["one-by-one"] == 1
    assert [job for queue, job in ran if queue == "ordered"] == list("87654321")
    await queues["paused"].resume()
    await completed(queues["paused"], 8)


@clause("B-20")
async def test_b20_a_worker_of_very_many_queues_is_announced_for_some(
    connection: Connection, plain: Plain, caplog: pytest.LogCaptureFixture
) -> None:
    """Two sockets for each of a thousand queues would be more than a process may usually open."""
    names = [f"q{number}" for number in range(1_000)]
    engine = BullEngine(WorkerConnections(connection, BullSettings()), *names)
    await engine.register([], 10)
    try:
        clients = [row["name"] for row in plain.client_list()]
        assert sum(name.startswith("bull:") for name in clients) == 200
        found = await seen_workers(connection, "bull", names)
        assert found is not None
        assert sum(found.values()) == 100
    finally:
        await engine.deregister()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("worker announced for some of its queues announced=100 others=900")
