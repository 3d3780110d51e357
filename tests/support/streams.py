"""Tools for tests of the Streams wire: a lab with workers, and access to the raw keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, cast

from jobwire.job.engine import Engine
from jobwire.job.messages import JobId, JobRequest, LeasedJob, Submitted, TaskDefinition
from jobwire.job.states import State
from jobwire.systems.jobs import contract
from jobwire.systems.jobs.contract import EventType, Status, StreamsKeys
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.queue import StreamsQueue
from jobwire.systems.jobs.scripts import SCRIPTS
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection, GroupNotFound
from tests.conformance.lab import TASK, Snapshot
from tests.support.resp import Command

LEASE_S = 20.0
"""Longer than any test on a busy machine; tests of expiry use `silence` instead."""

STATES = {
    Status.QUEUED: State.WAITING,
    Status.RUNNING: State.RUNNING,
    Status.DONE: State.DONE,
    Status.ERROR: State.FAILED,
    Status.CANCELED: State.CANCELED,
}
LIFE = frozenset(EventType) - {EventType.PROGRESS, EventType.TOKEN, EventType.LOG}


def runs(name: str) -> Callable[[Command], bool]:
    """A condition for the proxy: this script is run."""

    def fits(command: Command) -> bool:
        return command.name == "EVALSHA" and command.words[1] == SCRIPTS[name].sha

    return fits


class StreamsLab:
    """A queue and workers on one connection; see `tests.conformance.lab`."""

    def __init__(self, connection: Connection, **settings: object) -> None:
        self.settings = dataclasses.replace(
            StreamsSettings(lease_s=LEASE_S, foreign_idle_s=LEASE_S),
            **settings,
        )
        self.keys = StreamsKeys(self.settings.key_prefix)
        self.lease_s = self.settings.lease_s
        self.connection = connection
        self.queue = StreamsQueue(connection, self.settings)
        self.sweeper = StreamsEngine(connection, self.settings)
        self._workers: list[StreamsEngine] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            for worker in self._workers:
                await worker.deregister()
        if self.settings.key_prefix:
            # The leak check knows the permanent keys by their plain names.
            for pattern in contract.permanent(self.settings.key_prefix):
                reply = await self.connection.call("SCAN", 0, "MATCH", pattern, "COUNT", 10_000)
                _, found = cast("tuple[str, list[str]]", reply)
                await self.connection.delete(*found)

    async def snapshot(self, job_id: str) -> Snapshot:
        record = await self.queue.record(JobId(job_id))
        assert record is not None, f"there is no job {job_id}"
        state = STATES[record.status]
        return Snapshot(state, record.result_json, record.error_json, record.attempt)

    async def submit(self, payload_json: str = '{"a":1}', **request: object) -> JobId:
        """A new job of the suite's task."""
        wanted = {"task": TASK, "payload_json": payload_json, **request}
        answer = await self.queue.submit(JobRequest(**wanted))  # pyright: ignore[reportArgumentType] - by name
        assert isinstance(answer, Submitted)
        return answer.job_id

    async def start(self, **request: object) -> tuple[StreamsEngine, LeasedJob]:
        """A new worker, which holds a new job."""
        worker = await self.worker()
        await self.submit(**request)  # pyright: ignore[reportArgumentType] - by name
        (leased,) = await worker.take(1)
        return worker, leased

    async def worker(
        self, *tasks: str, queues: Sequence[str] = (contract.DEFAULT_QUEUE,)
    ) -> StreamsEngine:
        """A new worker; its tasks are those named, or the suite's. Their jobs are enqueued in the
        first of its `queues`."""
        names = tasks or (TASK,)
        engine = StreamsEngine(
            self.connection,
            self.settings,
            queues=queues,
            task_queues=dict.fromkeys(names, queues[0]),
        )
        await engine.register([TaskDefinition(task) for task in names], slots=10)
        self._workers.append(engine)
        return engine

    async def maintain(self, name: str) -> int:
        """Run one maintenance task now, even if it has already run in this period."""
        await self.connection.call("DEL", self.keys.guard(name))
        (task,) = [task for task in self.sweeper.maintenance() if task.name == name]
        done = 0
        while turn := await task.run():
            done += turn.done
            if not turn.more:
                break
        return done

    async def sweep(self) -> None:
        for task in self.sweeper.maintenance():
            await self.maintain(task.name)

    async def silence(self, worker: Engine) -> None:
        assert isinstance(worker, StreamsEngine)
        for queue in worker.queues:
            group = (self.keys.named_queue(queue), contract.GROUP)
            rows = await self.connection.call("XPENDING", *group, "-", "+", 10_000, worker.consumer)
            for entry, *_ in cast("list[tuple[str, str, int, int]]", rows):
                idle = ("IDLE", 10**9, "JUSTID")
                await self.connection.call("XCLAIM", *group, worker.consumer, 0, entry, *idle)

    async def ends(self, job_id: str) -> int:
        kinds = [event["type"] for event in await self.events(job_id)]
        return sum(kind in contract.TERMINAL_EVENTS for kind in kinds)

    async def events(self, job_id: str) -> list[dict[str, str]]:
        """A job's events, as fields; the raw wire."""
        rows = await self.connection.call("XRANGE", self.keys.events(job_id), "-", "+")
        return [_pairs(flat) for _, flat in cast("list[tuple[str, list[str]]]", rows)]

    async def reports(self, job_id: str) -> Sequence[str]:
        kinds = [event["type"] for event in await self.events(job_id)]
        return [kind for kind in kinds if kind not in LIFE]

    async def at_rest(self) -> bool:
        waiting = await self.connection.call("XLEN", self.keys.queue)
        delayed = await self.connection.call("ZCARD", self.keys.delayed)
        opened = await self.connection.call("ZCARD", self.keys.open)
        try:
            pending = (await self.connection.xpending(self.keys.queue, contract.GROUP)).count
        except GroupNotFound:
            pending = 0
        return (waiting, delayed, opened, pending) == (0, 0, 0, 0)


def _pairs(flat: Sequence[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
