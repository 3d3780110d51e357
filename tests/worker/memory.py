"""A queue in memory that keeps the seam: for tests of the worker, where a server would only hide
what is tested.

Its faults are those of the seam: an answer that is lost, a server that is away, a wait that hangs.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, TypeVar, cast

from jobwire.job.engine import MaintenanceTask, MissingRequirements, no_missing_requirements
from jobwire.job.errors import BackendUnavailable
from jobwire.job.ids import new_job_id
from jobwire.job.messages import (
    Already,
    Canceled,
    CancelOutcome,
    CancelRequest,
    Done,
    Failed,
    JobId,
    JobInfo,
    JobRequest,
    Json,
    LeasedJob,
    Mismatch,
    Outcome,
    Policy,
    Released,
    RenewAnswer,
    Report,
    ReportAnswer,
    RetryLater,
    SettleAnswer,
    Settled,
    SubmitAnswer,
    Submitted,
    TaskDefinition,
    Token,
)
from jobwire.job.states import TERMINAL, State

T = TypeVar("T")


@dataclass
class Record:
    """Everything about one job."""

    order: JobRequest
    id: JobId
    state: State = State.WAITING
    attempt: int = 1
    deliveries: int = 0
    due_s: float = 0.0
    token: Token | None = None
    holder: str = ""
    lease_until_s: float = 0.0
    cancel: bool = False
    outcome: Outcome | None = None
    """The latest outcome."""
    first_outcome: Outcome | None = None
    events: list[Report] = field(default_factory=list[Report])
    last_report: int = 0
    settled: tuple[Token | None, Outcome] | None = None


class MemoryServer:
    """What a server would hold; any number of workers and producers use one."""

    def __init__(self, lease_s: float = 30.0) -> None:
        self.lease_s = lease_s
        self.jobs: dict[JobId, Record] = {}
        self.line: list[JobId] = []
        self.settles: Counter[JobId] = Counter()
        self.calls: Counter[str] = Counter()
        self.down = False
        self.turned_away = 0
        self.lock = threading.RLock()
        self._keys: dict[tuple[str, str], JobId] = {}
        self._lost: Counter[str] = Counter()
        self._wakers: set[asyncio.Event] = set()
        self._listeners: dict[asyncio.Queue[Token], asyncio.AbstractEventLoop] = {}
        self._serial = itertools.count(1)

    # ── faults ───────────────────────────────────────────────────────────────────────────────────

    def lose_answer(self, verb: str, count: int = 1) -> None:
        """Do the next `verb`, and do not answer."""
        self._lost[verb] += count

    def answer(self, verb: str, value: T) -> T:
        self.calls[verb] += 1
        if self._lost[verb] > 0:
            self._lost[verb] -= 1
            raise BackendUnavailable(f"the answer to {verb} was lost")
        return value

    def check_up(self) -> None:
        if self.down:
            self.turned_away += 1
            raise BackendUnavailable("the server is away")

    # ── a producer's end: jobwire.job.engine.Queue ───────────────────────────────────────────────

    def submit(self, order: JobRequest) -> Awaitable[SubmitAnswer]:
        return _answered(lambda: self.submit_now(order))

    def submit_many(self, orders: Sequence[JobRequest]) -> Awaitable[list[SubmitAnswer]]:
        return _answered(lambda: [self.submit_now(order) for order in orders])

    def submit_now(self, order: JobRequest) -> SubmitAnswer:
        self.check_up()
        with self.lock:
            name = (order.tenant, order.idempotency_key)
            if order.idempotency_key and name in self._keys:
                first = self.jobs[self._keys[name]]
                same = order.fingerprint == first.order.fingerprint
                return Already(first.id) if same else Mismatch(first.id)
            if order.job_id is not None and order.job_id in self.jobs:
                return Submitted(order.job_id)
            record = Record(order, order.job_id or new_job_id())
            record.due_s = time.monotonic() + order.delay_s
            self.jobs[record.id] = record
            self.line.append(record.id)
            if order.idempotency_key:
                self._keys[name] = record.id
            self.ring()
            return Submitted(record.id)

    def add(self, task: str, payload: Json = None, **wishes: object) -> JobId:
        """Submit in one word, for tests."""
        order = JobRequest(task=task, payload_json=json.dumps(payload or {}), **wishes)  # pyright: ignore[reportArgumentType] - the tests say what they mean
        answer = self.submit_now(order)
        assert isinstance(answer, Submitted)
        return answer.job_id

    def cancel(self, job_id: JobId) -> Awaitable[CancelOutcome]:
        return _answered(lambda: self.cancel_now(job_id))

    def cancel_now(self, job_id: JobId) -> CancelOutcome:
        with self.lock:
            record = self.jobs.get(job_id)
            if record is None:
                return CancelOutcome.GONE
            if record.state in TERMINAL:
                return CancelOutcome.FINISHED
            if record.state is State.WAITING:
                record.state, record.outcome = State.CANCELED, Canceled()
                self.line.remove(job_id)
                return CancelOutcome.CANCELED
            record.cancel = True
            assert record.token is not None
            for listener, loop in self._listeners.items():
                loop.call_soon_threadsafe(listener.put_nowait, record.token)
            return CancelOutcome.REQUESTED

    # ── a worker's end ───────────────────────────────────────────────────────────────────────────

    def ring(self) -> None:
        for waker in self._wakers:
            waker.set()

    def has_work(self) -> bool:
        now_s = time.monotonic()
        with self.lock:
            self._put_back_the_silent(now_s)
            return any(self.jobs[each].due_s <= now_s for each in self.line)

    def start(self, consumer: str, limit: int) -> list[LeasedJob]:
        self.check_up()
        now_s = time.monotonic()
        with self.lock:
            self._put_back_the_silent(now_s)
            due = [each for each in self.line if self.jobs[each].due_s <= now_s][:limit]
            for job_id in due:
                self.line.remove(job_id)
            return [self._start(self.jobs[job_id], consumer, now_s) for job_id in due]

    def _start(self, record: Record, consumer: str, now_s: float) -> LeasedJob:
        record.state, record.holder = State.RUNNING, consumer
        record.token = Token(f"token-{next(self._serial)}")
        record.deliveries += 1
        record.last_report = 0
        record.lease_until_s = now_s + self.lease_s
        return self.lease(record)

    def lease(self, record: Record) -> LeasedJob:
        order = record.order
        payload = cast(Json, json.loads(order.payload_json))
        job = JobInfo(
            record.id, "memory", order.task, payload, record.attempt, record.deliveries, 0,
            order.tenant, order.traceparent,
        )  # fmt: skip
        assert record.token is not None
        return LeasedJob(job, record.token, Policy(order.max_attempts, order.timeout_s), None, None)

    def _put_back_the_silent(self, now_s: float) -> None:
        for record in self.jobs.values():
            if record.state is State.RUNNING and record.lease_until_s <= now_s:
                record.state = State.WAITING
                self.line.append(record.id)

    def owned(self, leased: LeasedJob) -> Record | None:
        record = self.jobs.get(leased.job.id)
        if record is None or record.state is not State.RUNNING or record.token != leased.token:
            return None
        return record

    def end(self, leased: LeasedJob, outcome: Outcome) -> SettleAnswer:
        with self.lock:
            record = self.jobs.get(leased.job.id)
            if record is None:
                return SettleAnswer.GONE
            if record.settled == (leased.token, outcome):
                return SettleAnswer.SETTLED  # asked again
            if record.state in TERMINAL:
                return SettleAnswer.ALREADY
            if self.owned(leased) is None:
                return SettleAnswer.LOST
            self._end(record, outcome)
            return SettleAnswer.SETTLED

    def _end(self, record: Record, outcome: Outcome) -> None:
        if record.cancel and isinstance(outcome, RetryLater | Released):
            outcome = Canceled()
        record.outcome, record.settled = outcome, (record.token, outcome)
        record.first_outcome = record.first_outcome or outcome
        self.settles[record.id] += 1
        match outcome:
            case Done():
                record.state = State.DONE
            case Failed():
                record.state = State.FAILED
            case Canceled():
                record.state = State.CANCELED
            case RetryLater(after_s, _):
                record.state, record.attempt = State.WAITING, record.attempt + 1
                record.due_s = time.monotonic() + after_s
                self.line.append(record.id)
            case Released():
                record.state, record.deliveries = State.WAITING, record.deliveries - 1
                self.line.append(record.id)
        self.ring()

    def say(self, leased: LeasedJob, report: Report) -> ReportAnswer:
        with self.lock:
            record = self.owned(leased)
            if record is None:
                return ReportAnswer.LOST
            if report.number == 0 or report.number > record.last_report:
                record.events.append(report)
                record.last_report = report.number
            return ReportAnswer.WRITTEN

    def renew(self, leased: LeasedJob) -> RenewAnswer:
        with self.lock:
            record = self.jobs.get(leased.job.id)
            if record is None or record.state in TERMINAL:
                return RenewAnswer.ENDED
            if self.owned(leased) is None:
                return RenewAnswer.LOST
            record.lease_until_s = time.monotonic() + self.lease_s
            return RenewAnswer.CANCEL if record.cancel else RenewAnswer.RENEWED

    def seize(self, job_id: JobId) -> None:
        """Another worker takes the job over."""
        with self.lock:
            self._start(self.jobs[job_id], "a stranger", time.monotonic())

    def waker(self) -> asyncio.Event:
        self._wakers.add(waker := asyncio.Event())
        return waker

    def listen(self) -> asyncio.Queue[Token]:
        listener: asyncio.Queue[Token] = asyncio.Queue()
        self._listeners[listener] = asyncio.get_running_loop()
        return listener

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def forget(self, listener: asyncio.Queue[Token]) -> None:
        self._listeners.pop(listener, None)


_names: Final = itertools.count(1)


class MemoryEngine:
    """jobwire.job.engine.Engine over a MemoryServer."""

    def __init__(self, server: MemoryServer, name: str = "memory") -> None:
        self.server = server
        self.name = name
        self.consumer = f"worker-{next(_names)}"
        self.hangs = 0
        """So many waits will never come back."""
        self.cards: Sequence[TaskDefinition] = ()
        self.lacks = no_missing_requirements
        self.entered = False
        self.kept = threading.Event()
        self._waker = server.waker()
        self._woken = False
        self._under_way: set[Token] = set()

    async def register(
        self,
        tasks: Sequence[TaskDefinition],
        slots: int,
        lacks: MissingRequirements = no_missing_requirements,
    ) -> None:
        self.server.check_up()
        self.cards, self.entered, self.lacks = tasks, True, lacks

    async def wait(self, timeout_s: float, room: int = 1) -> bool:
        if self.hangs:
            self.hangs -= 1
            await asyncio.Event().wait()
        self.server.answer("wait", None)
        deadline_s = time.monotonic() + timeout_s
        while not self._woken and time.monotonic() < deadline_s:
            self.server.check_up()
            if self.server.has_work():
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
            lambda: self.server.answer("take", self.server.start(self.consumer, limit)),
            lambda leased: leased,
        )

    def report(self, batch: Sequence[tuple[LeasedJob, Report]]) -> Awaitable[list[ReportAnswer]]:
        def act() -> list[ReportAnswer]:
            self.server.check_up()
            answers = [self.server.say(leased, report) for leased, report in batch]
            return self.server.answer("report", answers)

        return _answered(act)

    def settle(self, batch: Sequence[tuple[LeasedJob, Outcome]], want: int) -> Awaitable[Settled]:
        def act() -> Settled:
            self.server.check_up()
            answers = [self.server.end(leased, outcome) for leased, outcome in batch]
            started = self.server.start(self.consumer, want)
            return self.server.answer("settle", Settled(answers, started))

        return self._starting(act, lambda settled: settled.leased)

    def _starting(
        self, act: Callable[[], T], leased_of: Callable[[T], Sequence[LeasedJob]]
    ) -> Awaitable[T]:
        """What it starts is nobody else's to find until the answer was read."""

        def start() -> T:
            value = act()
            under_way.update(leased.token for leased in leased_of(value))
            return value

        under_way: set[Token] = set()
        answer = _answered(start)
        self._under_way |= under_way

        async def read() -> T:
            try:
                return await answer
            finally:
                self._under_way -= under_way

        return read()

    async def recover_orphans(self, known: Set[Token], idle_s: float = 0.0) -> list[LeasedJob]:
        self.server.check_up()
        kept_since_s = time.monotonic() + self.server.lease_s - idle_s
        with self.server.lock:
            mine = [
                self.server.lease(record)
                for record in self.server.jobs.values()
                if record.state is State.RUNNING
                and record.holder == self.consumer
                and record.token not in known
                and record.token not in self._under_way
                and record.lease_until_s <= kept_since_s
            ]
        return self.server.answer("adopt", mine)

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
        return self._server.answer("keep", answers)

    def heartbeat(self) -> None:
        self._server.calls["heartbeat"] += 1

    def close(self) -> None:
        self.closed = True


def _answered(act: Callable[[], T]) -> Awaitable[T]:
    """Act now, answer in a later turn of the loop: sent when called."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    try:
        value = act()
    except BackendUnavailable as error:
        trouble = error
        asyncio.get_running_loop().call_soon(
            lambda: future.cancelled() or future.set_exception(trouble)
        )
    else:
        asyncio.get_running_loop().call_soon(lambda: future.cancelled() or future.set_result(value))
    return future
