"""B-8: a worker on a queue that limits how many jobs all workers run at a time."""

from __future__ import annotations

import asyncio

import pytest

from jobwire import App, Context
from jobwire.systems.queues import idle_queues
from jobwire.systems.queues.admin import QueueAdmin
from jobwire.systems.queues.contract import BullState
from jobwire.systems.queues.engine import BullEngine
from jobwire.systems.queues.queue import NewBullJob, QueueProducer
from jobwire.systems.queues.settings import BullSettings
from jobwire.systems.queues.worker_connections import WorkerConnections
from jobwire.valkey import Connection
from jobwire.worker import Worker
from tests.support import clause, wait_until
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
