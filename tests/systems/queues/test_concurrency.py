"""B-8: a worker on a queue that limits how many jobs all workers run at a time."""

from __future__ import annotations

import asyncio
import math
import re

import pytest

from jobwire import App, Context
from jobwire.systems.queues import idle_queues
from jobwire.systems.queues.admin import QueueAdmin
from jobwire.systems.queues.contract import BullState, Keys
from jobwire.systems.queues.engine import BullEngine
from jobwire.systems.queues.idle_queues import IdleQueue, IdleQueues
from jobwire.systems.queues.queue import NewBullJob, QueueProducer
from jobwire.systems.queues.settings import BullSettings
from jobwire.systems.queues.worker_connections import WorkerConnections
from jobwire.valkey import Connection, ValkeyError
from jobwire.worker import Worker
from tests.support import Plain, clause, wait_until
from tests.support.workers import started, stopped


@clause("B-8", "B-11")
async def test_b08_a_worker_at_the_queues_concurrency_continues_when_its_job_ends(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No marker is written: a worker that polls once a second would run one job a second."""
    monkeypatch.setattr(idle_queues, "_LOOK_S", 3600.0)
    settings = BullSettings(announce=False)
    queue = QueueProducer(connection, "work", settings)
    app = App()

    @app.handler("job")
    async def job(ctx: Context) -> None:
        await asyncio.sleep(0.02)  # long enough for another take

    async def all_done() -> bool:
        return (await queue.counts())[BullState.COMPLETED] == 5

    await QueueAdmin(queue).set_concurrency(1)
    worker = Worker(app, [BullEngine(WorkerConnections(connection, settings), "work")], slots=5)
    running = await started(worker)
    await queue.submit_many([NewBullJob("job") for _ in range(5)])
    await wait_until(all_done, "five jobs")
    await stopped(worker, running)


@clause("J-36")
async def test_j36_a_queue_whose_handler_is_at_its_limit_keeps_its_jobs(
    connection: Connection,
) -> None:
    settings = BullSettings(announce=False)
    narrow, wide = (QueueProducer(connection, name, settings) for name in ("narrow", "wide"))
    app, gate = App(), asyncio.Event()

    @app.handler("*", queue="narrow", wire="bullmq", concurrency=2)
    async def wait(ctx: Context) -> None:
        await gate.wait()

    @app.handler("*", queue="wide", wire="bullmq")
    async def work(ctx: Context) -> None: ...

    await narrow.submit_many([NewBullJob("job") for _ in range(20)])
    engine = BullEngine(WorkerConnections(connection, settings), "narrow", "wide")
    worker = Worker(app, [engine], slots=8)
    running = await started(worker)

    async def both_run() -> bool:
        return (await narrow.counts())[BullState.ACTIVE] == 2

    async def ended(queue: QueueProducer, jobs: int) -> bool:
        return (await queue.counts())[BullState.COMPLETED] == jobs

    await wait_until(both_run, "two jobs to run")
    await wide.submit_many([NewBullJob("job") for _ in range(20)])
    await wait_until(lambda: ended(wide, 20), "the jobs of the other queue")
    counts = await narrow.counts()
    assert (counts[BullState.ACTIVE], counts[BullState.WAITING]) == (2, 18)
    gate.set()
    await wait_until(lambda: ended(narrow, 20), "the jobs that waited")
    starts = [await connection.call("HGET", f"bull:narrow:{at}", "ats") for at in range(1, 21)]
    assert starts == ["1"] * 20, "none was started and put back"
    await stopped(worker, running)


@clause("J-36")
async def test_j36_a_job_at_its_limit_is_delayed_where_others_share_the_queue(
    connection: Connection,
) -> None:
    settings = BullSettings(announce=False)
    queue = QueueProducer(connection, "mixed", settings)
    app, gate = App(), asyncio.Event()

    @app.handler("narrow", queue="mixed", wire="bullmq", concurrency=1)
    async def narrow(ctx: Context) -> None:
        await gate.wait()

    @app.handler("wide", queue="mixed", wire="bullmq")
    async def wide(ctx: Context) -> None: ...

    await queue.submit_many([NewBullJob("narrow") for _ in range(6)])
    await queue.submit_many([NewBullJob("wide") for _ in range(6)])
    worker = Worker(app, [BullEngine(WorkerConnections(connection, settings), "mixed")], slots=4)
    running = await started(worker)

    async def completed(jobs: int) -> bool:
        return (await queue.counts())[BullState.COMPLETED] == jobs

    await wait_until(lambda: completed(6), "the jobs of the other handler")
    gate.set()
    await wait_until(lambda: completed(12), "the jobs that were delayed")
    assert (await queue.counts())[BullState.FAILED] == 0
    await stopped(worker, running)


@clause("B-9", "B-20")
async def test_b9_an_idle_worker_keeps_its_place_in_the_servers_line(
    connection: Connection, plain: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks at its queues every second. If it also blocked anew, other workers, which block for
    longer, would always be served before it."""
    monkeypatch.setattr(idle_queues, "_LOOK_S", 0.01)
    monkeypatch.setattr(idle_queues, "_BLOCK_S", 3600.0, raising=False)
    found, errors = list[str](), list[ValkeyError]()
    queues = IdleQueues(connection, lambda: 2_000)
    queues.watch(IdleQueue(Keys("work"), lambda: found.append("work"), errors.append))
    await wait_until(lambda: blocked(plain) == 1, "our worker to block")
    marker = Keys("work").marker
    async with connection.socket() as other:
        popping = other.call("BZPOPMIN", marker, 0, block_s=math.inf)
        await wait_until(lambda: blocked(plain) == 2, "the other worker to block")
        before = looks(plain)
        await wait_until(lambda: looks(plain) > before + 3, "our worker to look")
        plain.call("ZADD", marker, 0, "0")
        await wait_until(lambda: not plain.call("EXISTS", marker))
        assert plain.call("CLIENT", "UNBLOCK", other.client_id) == 1, "it was served first"
        assert await popping is None
    await wait_until(lambda: found or errors, "our worker to be told")
    await queues.close()
    assert (found, errors) == (["work"], [])


def blocked(plain: Plain) -> int:
    return sum(
        client["cmd"] == "bzpopmin" for client in plain.client_list() if "b" in client["flags"]
    )


def looks(plain: Plain) -> int:
    """How many scripts were run."""
    found = re.search(
        r"^cmdstat_evalsha:calls=(\d+)", str(plain.call("INFO", "commandstats")), re.MULTILINE
    )
    return int(found[1]) if found else 0
