"""An in-memory implementation of the Engine protocol, for tests of the worker alone.

It can cause the faults of the protocol: a lost answer, an unavailable server, a wait that hangs.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence, Set
from typing import Final, TypeVar

from jobwire.job.engine import (
    NO_LIMITS,
    MaintenanceTask,
    MissingRequirements,
    Room,
    Traits,
    no_missing_requirements,
)
from jobwire.job.messages import (
    NO_CHILDREN,
    NO_RECORD,
    CancelRequest,
    Children,
    Failed,
    JobError,
    JobRecord,
    LeasedJob,
    Outcome,
    Released,
    RenewAnswer,
    Report,
    ReportAnswer,
    Settled,
    TaskDefinition,
    Token,
)
from jobwire.job.states import State
from tests.worker.memory_server import MemoryServer, Record, answered

__all__ = ["MemoryEngine", "MemoryServer", "Record"]

T = TypeVar("T")
_names: Final = itertools.count(1)


class MemoryEngine:
    """jobwire.job.engine.Engine over a MemoryServer."""

    wire = "memory"
    traits = Traits(uses=frozenset({"postpone", "rate_limit", "children", "update_data"}))
    reserved_kinds = frozenset({"done", "failed", "canceled"})

    def __init__(self, server: MemoryServer, name: str = "memory") -> None:
        self.server = server
        self.name = name
        self.queues = (name,)
        self.consumer = f"worker-{next(_names)}"
        self.hangs = 0
        """The number of further waits that hang."""
        self.cards: Sequence[TaskDefinition] = ()
        self.lacks = no_missing_requirements
        self.entered = False
        self.slots = 0
        self.room = NO_LIMITS
        self.waits = 0
        """Waits in progress."""
        self.kept = threading.Event()
        self._waker = server.waker()
        self._woken = False
        self._under_way: set[Token] = set()

    def unknown_task(self, leased: LeasedJob) -> Outcome:
        return Failed(JobError("unknown_task", f"no worker has the task {leased.job.task!r}"))

    async def register(
        self,
        tasks: Sequence[TaskDefinition],
        slots: int,
        lacks: MissingRequirements = no_missing_requirements,
    ) -> None:
        self.server.check_up()
        self.cards, self.entered, self.lacks = tasks, True, lacks
        self.slots = slots

    def set_slots(self, slots: int) -> None:
        self.slots = slots

    def set_room(self, room: Room) -> None:
        self.room = room

    def no_room(self, leased: LeasedJob) -> Outcome:
        return Released()

    async def wait(self, timeout_s: float, room: int = 1) -> bool:
        self.waits += 1
        try:
            return await self._wait(timeout_s)
        finally:
            self.waits -= 1

    async def _wait(self, timeout_s: float) -> bool:
        if self.hangs:
            self.hangs -= 1
            await asyncio.Event().wait()
        self.server.answer("wait", None)
        deadline_s = time.monotonic() + timeout_s
        while not self._woken and time.monotonic() < deadline_s:
            self.server.check_up()
            if self.server.has_work(self.room.tasks):
                return True
            self._waker.clear()
            try:
                async with asyncio.timeout(0.01):
                    await self._waker.wait()
            except TimeoutError:
                continue
        self._woken = False
        return False

    async def wake(self) -> None:
        self._woken = True
        self._waker.set()

    def take(self, limit: int) -> Awaitable[list[LeasedJob]]:
        return self._starting(
            lambda: self.server.answer("take", self._start(limit)),
            lambda leased: leased,
        )

    def report(self, batch: Sequence[tuple[LeasedJob, Report]]) -> Awaitable[list[ReportAnswer]]:
        def act() -> list[ReportAnswer]:
            self.server.check_up()
            answers = [self.server.say(leased, report) for leased, report in batch]
            return self.server.answer("report", answers)

        return answered(act)

    def settle(self, batch: Sequence[tuple[LeasedJob, Outcome]], want: int) -> Awaitable[Settled]:
        def act() -> Settled:
            self.server.check_up()
            answers = [self.server.end(leased, outcome) for leased, outcome in batch]
            started = self._start(want)
            return self.server.answer("settle", Settled(answers, started))

        return self._starting(act, lambda settled: settled.leased)

    def _start(self, limit: int) -> list[LeasedJob]:
        return self.server.start(self.consumer, limit, self.room.tasks)

    def _starting(
        self, act: Callable[[], T], leased_of: Callable[[T], Sequence[LeasedJob]]
    ) -> Awaitable[T]:
        """The started jobs are not orphans until the answer was read."""

        def start() -> T:
            value = act()
            under_way.update(leased.token for leased in leased_of(value))
            return value

        under_way: set[Token] = set()
        answer = answered(start)
        self._under_way |= under_way

        async def read() -> T:
            try:
                return await answer
            finally:
                self._under_way -= under_way

        return read()

    async def children(self, leased: LeasedJob) -> Children:
        """There are none: no job waits for others here."""
        return NO_CHILDREN

    async def read_record(self, leased: LeasedJob) -> JobRecord:
        """There is none: no job records steps here."""
        return NO_RECORD

    async def recover_orphans(self, known: Set[Token], idle_s: float = 0.0) -> list[LeasedJob]:
        self.server.check_up()
        kept_since_s = time.monotonic() + self.server.lease_s - idle_s
        with self.server.lock:
            own = [
                self.server.lease(record)
                for record in self.server.jobs.values()
                if record.state is State.RUNNING
                and record.holder == self.consumer
                and record.token not in known
                and record.token not in self._under_way
                and record.lease_until_s <= kept_since_s
            ]
        return self.server.answer("adopt", own)

    async def renew(self, batch: Sequence[LeasedJob]) -> list[RenewAnswer]:
        self.server.check_up()
        return self.server.answer("renew", [self.server.renew(leased) for leased in batch])

    def lease_renewer(self) -> MemoryLeaseRenewer:
        return MemoryLeaseRenewer(self.server, self.kept)

    async def cancels(self) -> AsyncIterator[CancelRequest]:
        listener = self.server.listen()
        try:
            while True:
                yield CancelRequest(await listener.get())
        finally:
            self.server.forget(listener)

    def maintenance(self) -> Sequence[MaintenanceTask]:
        return ()

    async def deregister(self) -> None:
        for leased in await self.recover_orphans(frozenset()):
            self.server.end(leased, Released())
        self.entered = False


class MemoryLeaseRenewer:
    heartbeat_is_late = False

    def __init__(self, server: MemoryServer, kept: threading.Event) -> None:
        self._server = server
        self._kept = kept
        self.lease_s = server.lease_s
        self.period_s = server.lease_s / 3
        self.heartbeat_s = server.lease_s / 3
        self.closed = False

    def renew(self, batch: Sequence[LeasedJob]) -> Sequence[RenewAnswer]:
        self._server.check_up()
        answers = [self._server.renew(leased) for leased in batch]
        self._kept.set()
        return self._server.answer("renew", answers)

    def heartbeat(self) -> None:
        """Nothing to do: nothing is registered."""

    def settle(self, batch: Sequence[tuple[LeasedJob, Outcome]]) -> None:
        self._server.check_up()
        for leased, outcome in batch:
            self._server.end(leased, outcome)

    def close(self) -> None:
        self.closed = True
