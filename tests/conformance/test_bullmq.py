"""The lifecycle tests on the BullMQ engine, as far as its traits declare (B-17)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest_asyncio

from jobwire.job.engine import Engine
from jobwire.job.messages import CancelOutcome, JobId, JobRequest, SubmitAnswer, Submitted
from jobwire.job.states import State
from jobwire.systems.queues import contract
from jobwire.systems.queues.add_batcher import Added
from jobwire.systems.queues.contract import BullState, EventName
from jobwire.systems.queues.engine import BullEngine
from jobwire.systems.queues.options import BullJobOptions
from jobwire.systems.queues.queue import QueueProducer
from jobwire.systems.queues.settings import BullSettings
from jobwire.systems.queues.worker_connections import WorkerConnections
from jobwire.valkey import Connection
from tests.conformance.lab import Snapshot
from tests.conformance.lifecycle import LifeOfAJob
from tests.conformance.uses import UsesOfSomeWires

QUEUE = "conformance"
STATES = {
    BullState.WAITING: State.WAITING,
    BullState.PRIORITIZED: State.WAITING,
    BullState.DELAYED: State.WAITING,
    BullState.WAITING_CHILDREN: State.WAITING,
    BullState.ACTIVE: State.RUNNING,
    BullState.COMPLETED: State.DONE,
    BullState.FAILED: State.FAILED,
}


class Producer:
    """A QueueProducer behind the producer's protocol."""

    def __init__(self, queue: QueueProducer) -> None:
        self._queue = queue

    async def submit(self, request: JobRequest) -> SubmitAnswer:
        options = BullJobOptions(
            job_id=request.job_id or "",
            delay_ms=round(request.delay_s * 1000),
            attempts=request.max_attempts or 0,
        )
        answer = await self._queue.submit(request.task, request.payload_json, options)
        return Submitted(JobId(cast(Added, answer).job_id))

    async def submit_many(self, requests: Sequence[JobRequest]) -> list[SubmitAnswer]:
        return [await self.submit(request) for request in requests]

    async def cancel(self, job_id: JobId) -> CancelOutcome:
        return await self._queue.cancel(job_id)


class BullLab:
    """A queue and workers on one connection, each worker with connections of its own."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.settings = BullSettings(announce=False)
        self.bull = QueueProducer(connection, QUEUE, self.settings)
        self.keys = self.bull.keys
        self.queue = Producer(self.bull)
        self.hubs: dict[BullEngine, WorkerConnections] = {}

    async def close(self) -> None:
        for engine in self.hubs:
            await engine.deregister()

    async def worker(self) -> BullEngine:
        shared = WorkerConnections(self.connection, self.settings)
        engine = BullEngine(shared, QUEUE)
        await engine.register([], 10)
        self.hubs[engine] = shared
        return engine

    async def snapshot(self, job_id: str) -> Snapshot:
        job = await self.bull.get(job_id)
        assert job is not None, f"there is no job {job_id}"
        state = STATES[await self.bull.state(job_id)]
        return Snapshot(state, job.return_json, job.failed_reason, job.attempts_made + 1)

    async def sweep(self) -> None:
        """Two stalled checks: the first one notes the active jobs, the second moves them."""
        for engine in list(self.hubs)[:1]:
            for _ in range(2):
                await self.connection.call("DEL", self.keys.stalled_check)
                await engine.maintenance()[0].run()

    async def silence(self, worker: Engine) -> None:
        assert isinstance(worker, BullEngine)
        shared = self.hubs[worker]
        active = cast("list[str]", await self.connection.call("LRANGE", self.keys.active, 0, -1))
        for job_id in active:
            token = await self.connection.call("GET", self.keys.lock(job_id))
            if isinstance(token, str) and token.startswith(shared.token_prefix):
                await self.connection.call("DEL", self.keys.lock(job_id))

    async def ends(self, job_id: str) -> int:
        names = [event["event"] for event in await self.events() if event.get("jobId") == job_id]
        return sum(name in {EventName.COMPLETED, EventName.FAILED} for name in names)

    async def events(self) -> list[dict[str, str]]:
        rows = await self.connection.call("XRANGE", self.keys.events, "-", "+")
        return [
            dict(zip(flat[::2], flat[1::2], strict=True))
            for _, flat in cast("list[tuple[str, list[str]]]", rows)
        ]

    async def reports(self, job_id: str) -> Sequence[str]:
        return ["log"] * (await self.bull.logs(job_id)).total

    async def at_rest(self) -> bool:
        counts = await self.bull.counts()
        ended = {BullState.COMPLETED, BullState.FAILED}
        return not any(count for state, count in counts.items() if state not in ended)


class TestBullMQ(LifeOfAJob, UsesOfSomeWires):
    @pytest_asyncio.fixture
    async def lab(self, connection: Connection) -> AsyncIterator[BullLab]:
        lab = BullLab(connection)
        yield lab
        await lab.close()

    def test_the_wire_s_own_events_are_reserved(self) -> None:
        assert {"completed", "failed", "waiting", "error"} <= BullEngine.reserved_kinds
        assert BullEngine.traits.settle_memory_s == contract.SETTLED_TTL_MS / 1000
