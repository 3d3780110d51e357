"""B-21: scenarios of BullMQ's own suites, with our worker or producer in place of Node's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from jobwire import App, Context
from jobwire.job.messages import RateLimited
from jobwire.systems.queues.add_batcher import Added
from jobwire.systems.queues.admin import QueueAdmin
from jobwire.systems.queues.contract import BullState
from jobwire.systems.queues.engine import BullEngine
from jobwire.systems.queues.flows import FlowJobs, FlowNode, add_flow
from jobwire.systems.queues.options import BullBackoff, BullJobOptions, Deduplication
from jobwire.systems.queues.queue import NewBullJob, QueueProducer
from jobwire.systems.queues.settings import BullSettings, QueuesSettings
from jobwire.systems.queues.worker_connections import WorkerConnections
from jobwire.valkey import Connection
from jobwire.worker import Worker
from tests.support import Plain, clause, wait_until
from tests.support.raw import Raw
from tests.support.workers import started, stopped

QUEUE = "work"
KEY = f"bull:{QUEUE}:"

Serve = Callable[..., Coroutine[Any, Any, Worker]]


@pytest_asyncio.fixture
async def serve(connection: Connection) -> AsyncIterator[Serve]:
    """Start a worker with handlers `ok` and `fail`; arguments are its settings."""
    running: list[tuple[Worker, asyncio.Task[None]]] = []
    app = App()

    @app.handler("ok")
    async def ok(ctx: Context) -> str:
        return "fine"

    @app.handler("fail")
    async def fail(ctx: Context) -> None:
        raise OSError("no disk")

    async def start(slots: int = 1, **settings: Any) -> Worker:
        hub = WorkerConnections(connection, BullSettings(announce=False, **settings))
        worker = Worker(app, [BullEngine(hub, QUEUE)], slots=slots)
        running.append((worker, await started(worker)))
        return worker

    yield start
    for worker, task in running:
        await stopped(worker, task)


@pytest.fixture
def queue(connection: Connection) -> QueueProducer:
    return QueueProducer(connection, QUEUE)


async def add(queue: QueueProducer, name: str = "ok", **options: Any) -> str:
    answer = await queue.submit(name, "{}", BullJobOptions(**options))
    assert isinstance(answer, Added)
    return answer.job_id


async def counted(queue: QueueProducer, **expected: int) -> None:
    async def is_so() -> bool:
        counts = await queue.counts()
        return all(counts[BullState(state)] == count for state, count in expected.items())

    await wait_until(is_so, f"the counts {expected}")


# ── due jobs while no job may start ──────────────────────────────────────────────────────────────


@clause("B-21")
async def test_b21_due_jobs_are_promoted_while_the_queue_is_paused(
    serve: Serve, queue: QueueProducer
) -> None:
    await queue.pause()
    await serve()
    await add(queue, delay_ms=30)
    await add(queue, delay_ms=60, priority=3)
    await counted(queue, delayed=0, waiting=1, prioritized=1, active=0, completed=0)


@clause("B-21")
async def test_b21_due_jobs_are_promoted_while_the_rate_limit_is_reached(
    serve: Serve, queue: QueueProducer
) -> None:
    for _ in range(2):
        await add(queue)
    await add(queue, delay_ms=100)
    await serve(limit_max=1, limit_ms=3_600_000)
    await counted(queue, completed=1, waiting=2, delayed=0)


@clause("B-21")
async def test_b21_due_jobs_are_promoted_while_a_handler_limits_the_rate(
    connection: Connection, queue: QueueProducer
) -> None:
    """The worker alone remembers this limit: without a limiter the server starts jobs."""
    engine = BullEngine(WorkerConnections(connection, BullSettings(announce=False)), QUEUE)
    await engine.register([], 1)
    await add(queue)
    (leased,) = await engine.take(1)
    await engine.settle([(leased, RateLimited(3600))], 0)
    await add(queue, delay_ms=30)

    async def promoted() -> bool:
        assert not await engine.wait(0.02) or not await engine.take(5)
        return (await queue.counts())[BullState.DELAYED] == 0

    await wait_until(promoted, "the promotion")
    assert (await queue.counts())[BullState.WAITING] == 2
    await engine.deregister()


# ── events ───────────────────────────────────────────────────────────────────────────────────────


@clause("B-21")
@pytest.mark.parametrize(
    "backoff", [BullBackoff("fixed", 3_600_000), None], ids=["delayed", "retried"]
)
async def test_b21_the_events_keep_to_their_length(
    serve: Serve, queue: QueueProducer, plain: Plain, backoff: BullBackoff | None
) -> None:
    """The server drops whole nodes, of 100 entries, before up to 100 jobs end with two events
    each."""
    plain.call("HSET", f"{KEY}meta", "opts.maxLenEvents", 20)
    options = BullJobOptions(attempts=2, backoff=backoff)
    await queue.submit_many([NewBullJob("fail", options=options) for _ in range(400)])
    await serve(slots=100)
    await counted(queue, waiting=0, active=0)
    assert 20 <= plain.xlen(f"{KEY}events") < 120 + 200


@clause("B-4", "B-21")
async def test_b21_the_end_of_a_job_is_not_trimmed_with_the_events_before_it(
    serve: Serve, queue: QueueProducer, plain: Plain
) -> None:
    """With a length of 0 the server drops all that is there: whoever follows the queue would never
    see that a job ended."""
    plain.call("HSET", f"{KEY}meta", "opts.maxLenEvents", 0)
    await queue.submit_many([NewBullJob(name) for name in ("ok", "fail", "ok")])
    await serve()
    await counted(queue, completed=2, failed=1)
    names = [fields["event"] for _, fields in Raw(plain).entries(f"{KEY}events")]
    assert names[-1] == "drained"
    assert names[-2] in ("completed", "retries-exhausted")


# ── options of the worker ────────────────────────────────────────────────────────────────────────


@clause("B-21")
@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"keep_completed": 0, "keep_failed": 0}, (0, 0)),
        ({"keep_completed": 2, "keep_failed": 1}, (2, 1)),
        ({"keep_completed_for": timedelta(hours=1)}, (3, 3)),
    ],
    ids=["none", "count", "age"],
)
async def test_b21_a_worker_keeps_jobs_without_a_rule_of_their_own(
    serve: Serve, queue: QueueProducer, plain: Plain, options: dict[str, Any], left: tuple[int, int]
) -> None:
    bull = QueuesSettings(**options).bull()
    await queue.submit_many([NewBullJob(name) for name in ("ok", "fail") for _ in range(3)])
    own = BullJobOptions(remove_on_complete=False, remove_on_fail=False)
    kept = [await queue.submit(name, "{}", own) for name in ("ok", "fail")]
    if "keep_completed_for" in options:  # one that ended two hours ago
        plain.call("ZADD", f"{KEY}completed", round(time.time() * 1000) - 7_200_000, "old")
        plain.call("HSET", f"{KEY}old", "name", "ok")
    await serve(keep_completed=bull.keep_completed, keep_failed=bull.keep_failed)
    completed, failed = left
    await counted(queue, waiting=0, active=0)
    counts = await queue.counts()
    assert counts[BullState.COMPLETED] == completed + 1
    assert counts[BullState.FAILED] == failed + 1
    states = [await queue.state(each.job_id) for each in kept if isinstance(each, Added)]
    assert states == [BullState.COMPLETED, BullState.FAILED], "the job's own rule counts"


@clause("B-21")
async def test_b21_a_job_that_was_started_too_often_fails_without_running(
    serve: Serve, queue: QueueProducer
) -> None:
    job_id = await add(queue, "fail", attempts=10)
    await serve(max_started=3)
    await counted(queue, failed=1)
    job = await queue.get(job_id)
    assert job is not None
    assert job.failed_reason == "job started more than allowable limit", "Node's own words"
    assert (job.attempts_started, job.attempts_made) == (4, 4)


@clause("B-21")
async def test_b21_concurrency_is_changed_and_a_worker_paused_at_run_time(
    connection: Connection, queue: QueueProducer
) -> None:
    app, gate = App(), asyncio.Event()

    @app.handler("ok")
    async def ok(ctx: Context) -> None:
        await gate.wait()

    hub = WorkerConnections(connection, BullSettings(announce=False))
    worker = Worker(app, [BullEngine(hub, QUEUE)], slots=1)
    running = await started(worker)
    await queue.submit_many([NewBullJob("ok") for _ in range(8)])
    await counted(queue, active=1, waiting=7)
    app.worker.slots = 4
    await counted(queue, active=4, waiting=4)
    app.worker.pause()
    gate.set()
    await worker.wait_idle()
    await counted(queue, active=0, waiting=4, completed=4)
    app.worker.slots = 2
    gate.clear()
    app.worker.resume()
    await counted(queue, active=2, waiting=2)
    gate.set()
    await counted(queue, completed=8)
    await stopped(worker, running)


# ── producers ────────────────────────────────────────────────────────────────────────────────────


@clause("B-21")
async def test_b21_a_flow_of_one_job_can_be_deduplicated(
    connection: Connection, queue: QueueProducer
) -> None:
    root = FlowNode(
        QUEUE, NewBullJob("ok", "{}", BullJobOptions(deduplication=Deduplication(id="once")))
    )
    first, second = [await add_flow(connection, root) for _ in range(2)]
    assert isinstance(first, FlowJobs)
    assert first == second
    assert await QueueAdmin(queue).deduplication_owner("once") == first.job_id
    assert (await queue.counts())[BullState.WAITING] == 1
