"""B-24: what a handler on this wire knows of its job, and what it may do with children."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
import pytest_asyncio

from jobwire import App, Context, WaitForChildren
from jobwire.job.messages import Children, Json
from jobwire.systems.queues.add_batcher import Added
from jobwire.systems.queues.codec import JobHash
from jobwire.systems.queues.contract import BullState
from jobwire.systems.queues.engine import BullEngine
from jobwire.systems.queues.flows import FlowNode, add_flow
from jobwire.systems.queues.options import BullJobOptions, Parent
from jobwire.systems.queues.queue import NewBullJob, QueueProducer
from jobwire.systems.queues.settings import BullSettings
from jobwire.systems.queues.worker_connections import WorkerConnections
from jobwire.valkey import Connection
from jobwire.worker import Worker
from tests.support import clause, wait_until
from tests.support.workers import started, stopped
from tests.systems.queues import children_handlers

QUEUE, CHILDREN = "work", "children"

Serve = Callable[..., Coroutine[Any, Any, None]]


@pytest_asyncio.fixture
async def serve(connection: Connection) -> AsyncIterator[Serve]:
    """Start a worker on both queues; further arguments are its settings."""
    running: list[tuple[Worker, asyncio.Task[None]]] = []

    async def start(app: App, **settings: Any) -> None:
        app.handler("child", queue=CHILDREN)(children_handlers.child)
        chosen = BullSettings(announce=False, **settings)
        shared = WorkerConnections(connection, chosen)
        worker = Worker(app, [BullEngine(shared, name) for name in (QUEUE, CHILDREN)], slots=5)
        running.append((worker, await started(worker)))

    yield start
    for worker, task in running:
        await stopped(worker, task)


@pytest.fixture
def queue(connection: Connection) -> QueueProducer:
    return QueueProducer(connection, QUEUE)


async def ended(queue: QueueProducer, job_id: str) -> JobHash:
    async def has_ended() -> bool:
        return await queue.state(job_id) in (BullState.COMPLETED, BullState.FAILED)

    await wait_until(has_ended, f"the end of {job_id}")
    job = await queue.get(job_id)
    assert job is not None
    return job


async def run(
    queue: QueueProducer, name: str = "task", data: Json = None, **options: Any
) -> JobHash:
    answer = await queue.submit(name, json.dumps(data or {}), BullJobOptions(**options))
    assert isinstance(answer, Added)
    return await ended(queue, answer.job_id)


@clause("D-23")
async def test_d23_a_bullmq_queue_has_no_on_failure(serve: Serve) -> None:
    app = App()
    app.handler("tell", queue=QUEUE)(lambda ctx: None)
    app.handler("podcast", queue=QUEUE, on_failure="tell")(lambda ctx: None)
    with pytest.raises(ValueError, match=r"'podcast' has on_failure=, which the queue"):
        await serve(app)


@clause("D-18")
async def test_d18_a_bullmq_queue_records_no_steps(serve: Serve, queue: QueueProducer) -> None:
    app, called = App(), list[str]()

    @app.handler("task", queue=QUEUE)
    async def task(ctx: Context) -> None:
        await ctx.step("one", called.append, "one")

    await serve(app)
    job = await run(queue, attempts=3)
    assert "cannot record steps" in job.failed_reason
    assert (called, job.attempts_made) == ([], 1), "nothing was paid for, and it is not retried"


@clause("B-24")
@pytest.mark.parametrize("kind", ["coroutine", "thread", "process"])
async def test_b24_a_parent_reads_its_children_in_every_kind_of_handler(
    connection: Connection, serve: Serve, queue: QueueProducer, kind: str
) -> None:
    app = App()
    handler = getattr(children_handlers, f"in_a_{kind}")
    app.handler("parent", queue=QUEUE, uses={"children"}, process=kind == "process")(handler)
    await serve(app)
    leaves = [
        FlowNode(
            CHILDREN, NewBullJob("child", f'"{name}"', BullJobOptions(job_id=name)), policy="ignore"
        )
        for name in ("good", "bad")
    ]
    root = FlowNode(
        QUEUE, NewBullJob("parent", "{}", BullJobOptions(job_id="root", priority=7)), leaves
    )
    await add_flow(connection, root)
    job = await ended(queue, "root")
    assert json.loads(job.return_json) == {
        "values": {"bull:children:good": "good"},
        "ignored": {"bull:children:bad": "not good"},
        "failed": {},
        "pending": [],
        "priority": 7,
        "jobId": "root",
    }, job.failed_reason


@clause("B-24")
async def test_b24_children_have_options_and_children_of_their_own(
    serve: Serve, queue: QueueProducer
) -> None:
    app, seen = App(), list[Children]()

    @app.handler("task", queue=QUEUE, uses={"children", "update_data"})
    async def task(ctx: Context) -> str:
        if ctx.payload.get("added"):
            seen.append(await ctx.children())
            return "all have ended"
        below = [{"name": "child", "data": "good", "opts": {"jobId": "leaf", "attempts": 2}}]
        await ctx.add_child(
            CHILDREN,
            "child",
            "bad",
            job_id="middle",
            opts={"priority": 3, "ignoreDependencyOnFailure": True},
            children=below,
        )
        await ctx.update_data({"added": True})
        raise WaitForChildren

    await serve(app)
    job = await run(queue)
    assert job.return_json == '"all have ended"', job.failed_reason
    assert seen[0].ignored == {"bull:children:middle": "not good"}
    below = QueueProducer(queue.connection, CHILDREN)
    middle, leaf = await below.get("middle"), await below.get("leaf")
    assert middle is not None
    assert leaf is not None
    assert (middle.priority, middle.parent_key) == (3, f"bull:{QUEUE}:{job.id}")
    assert (leaf.attempts, leaf.parent_key) == (2, "bull:children:middle")


@clause("B-24")
@pytest.mark.parametrize(
    "bad",
    [{"opts": {"debounce": 1}}, {"job_id": "17"}, {"children": [{"name": ""}]}, {"job_id": "mine"}],
)
async def test_b24_a_child_that_is_refused_fails_its_job(
    serve: Serve, queue: QueueProducer, bad: dict[str, Any]
) -> None:
    """It would wait in vain, or end without its children."""
    other = await queue.submit("x", "{}", BullJobOptions(delay_ms=3_600_000))
    assert isinstance(other, Added)
    parent = Parent(QUEUE, other.job_id)
    await QueueProducer(queue.connection, CHILDREN).submit(
        "x", "{}", BullJobOptions(job_id="mine", delay_ms=3_600_000, parent=parent)
    )
    app = App()

    @app.handler("task", queue=QUEUE, uses={"children"})
    async def task(ctx: Context) -> None:
        await ctx.add_child(CHILDREN, "child", **bad)
        raise WaitForChildren

    await serve(app)
    job = await run(queue)
    assert job.failed_reason.startswith("a child was refused: "), job.failed_reason


@clause("B-24", "B-14")
async def test_b24_a_handler_knows_its_job_and_reports_objects(
    connection: Connection, serve: Serve, queue: QueueProducer
) -> None:
    app = App()

    @app.handler("task", queue=QUEUE)
    async def task(ctx: Context) -> Json:
        await ctx.progress({"stage": 2}, "second")
        parent = ctx.job.parent
        return [ctx.job.opts["attempts"], ctx.job.priority, parent and [*parent]]

    @app.handler("crash", queue=QUEUE)
    async def crash(ctx: Context) -> None:
        raise LookupError("no such city")

    @app.handler("silent", queue=QUEUE)
    async def silent(ctx: Context) -> None:
        raise LookupError

    await serve(app)
    above = await queue.submit("x", "{}", BullJobOptions(delay_ms=3_600_000))
    assert isinstance(above, Added)
    job = await run(queue, attempts=4, priority=9, parent=Parent(QUEUE, above.job_id))
    assert json.loads(job.return_json) == [4, 9, [QUEUE, above.job_id]]
    assert job.progress_json == '{"stage":2}'
    assert (await queue.logs(job.id)).lines == ["second"]
    assert (await run(queue, "crash")).failed_reason == "no such city", "the message, as Node's"
    assert (await run(queue, "silent")).failed_reason == "LookupError"


@clause("B-24", "B-7")
@pytest.mark.parametrize("any_progress", [True, False])
async def test_b24_progress_above_100_by_setting(
    serve: Serve, queue: QueueProducer, any_progress: bool
) -> None:
    app = App()

    @app.handler("task", queue=QUEUE)
    async def task(ctx: Context) -> None:
        await ctx.progress(1500)

    await serve(app, any_progress=any_progress)
    job = await run(queue)
    if any_progress:
        assert job.progress_json == "1500"
    else:
        assert "between 0 and 100" in job.failed_reason


@clause("B-24")
async def test_b24_large_results_and_long_logs_by_setting(
    serve: Serve, queue: QueueProducer
) -> None:
    app = App()

    @app.handler("task", queue=QUEUE)
    async def task(ctx: Context) -> str:
        for number in range(4):
            await ctx.log(f"{number} " + "x" * 3000)
        return "y" * ctx.payload["size"]

    await serve(app, max_result_bytes=3 << 20, max_log_chars=2500, max_log_lines=3)
    fits = await run(queue, data={"size": 2 << 20})
    assert len(fits.return_json) == (2 << 20) + 2
    lines = (await queue.logs(fits.id)).lines
    assert [(line[0], len(line)) for line in lines] == [("1", 2500), ("2", 2500), ("3", 2500)]
    large = await run(queue, data={"size": 4 << 20})
    assert large.failed_reason.startswith("the result is too large")
