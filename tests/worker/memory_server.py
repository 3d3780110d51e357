"""The state of a server in memory, and faults that a test can inject."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from jobwire.job.engine import NO_LIMITS
from jobwire.job.errors import BackendUnavailable
from jobwire.job.ids import new_job_id
from jobwire.job.messages import (
    CHILD_KIND,
    DATA_KIND,
    Already,
    Canceled,
    CancelOutcome,
    ChildRequest,
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
    Postponed,
    RateLimited,
    Released,
    RenewAnswer,
    Report,
    ReportAnswer,
    Restarted,
    RetryLater,
    SettleAnswer,
    SubmitAnswer,
    Submitted,
    Suspended,
    Token,
    WaitsForChildren,
)
from jobwire.job.states import TERMINAL, State

T = TypeVar("T")


@dataclass
class Record:
    """Everything about one job."""

    request: JobRequest
    id: JobId
    state: State = State.WAITING
    attempt: int = 1
    deliveries: int = 0
    due_s: float = 0.0
    token: Token | None = None
    holder: str = ""
    lease_until_s: float = 0.0
    renewals: int = 0
    silent: bool = False
    """Its lease has expired for the server."""
    cancel: bool = False
    outcome: Outcome | None = None
    """The latest outcome."""
    first_outcome: Outcome | None = None
    events: list[Report] = field(default_factory=list[Report])
    last_report: int = 0
    settled: tuple[Token | None, Outcome] | None = None
    children: list[JobId] = field(default_factory=list[JobId])


class MemoryServer:
    """The state of a server; any number of workers and producers use one.

    It takes a job away only if a test says that its worker is `silent`: a test process that stands
    still for some seconds keeps its jobs, however short the leases are that its workers know.
    """

    def __init__(self, lease_s: float = 30.0) -> None:
        self.lease_s = lease_s
        self.jobs: dict[JobId, Record] = {}
        self.line: list[JobId] = []
        self.settles: Counter[JobId] = Counter()
        self.calls: Counter[str] = Counter()
        self.down = False
        self.limited_until_s = 0.0
        self.turned_away = 0
        self.lock = threading.RLock()
        self._keys: dict[tuple[str, str], JobId] = {}
        self._lost: Counter[str] = Counter()
        self._wakers: set[asyncio.Event] = set()
        self._listeners: dict[asyncio.Queue[Token], asyncio.AbstractEventLoop] = {}
        self._serial = itertools.count(1)

    # ── faults ───────────────────────────────────────────────────────────────────────────────────

    def lose_answer(self, verb: str, count: int = 1) -> None:
        """Execute the next `verb` and lose its answer."""
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

    # ── a producer's side: jobwire.job.engine.Queue ───────────────────────────────────────────────

    def submit(self, request: JobRequest) -> Awaitable[SubmitAnswer]:
        return answered(lambda: self.submit_now(request))

    def submit_many(self, requests: Sequence[JobRequest]) -> Awaitable[list[SubmitAnswer]]:
        return answered(lambda: [self.submit_now(request) for request in requests])

    def submit_now(self, request: JobRequest) -> SubmitAnswer:
        self.check_up()
        with self.lock:
            name = (request.tenant, request.idempotency_key)
            if request.idempotency_key and name in self._keys:
                first = self.jobs[self._keys[name]]
                same = request.fingerprint == first.request.fingerprint
                return Already(first.id) if same else Mismatch(first.id)
            if request.job_id is not None and request.job_id in self.jobs:
                return Submitted(request.job_id)
            record = Record(request, request.job_id or new_job_id())
            record.due_s = time.monotonic() + request.delay_s
            self.jobs[record.id] = record
            self.line.append(record.id)
            if request.idempotency_key:
                self._keys[name] = record.id
            self.ring()
            return Submitted(record.id)

    def add(self, task: str, payload: Json = None, **options: object) -> JobId:
        """Submit a job; the short form for tests."""
        request = JobRequest(task=task, payload_json=json.dumps(payload or {}), **options)  # pyright: ignore[reportArgumentType] - the options are fields of JobRequest
        answer = self.submit_now(request)
        assert isinstance(answer, Submitted)
        return answer.job_id

    def cancel(self, job_id: JobId) -> Awaitable[CancelOutcome]:
        return answered(lambda: self.cancel_now(job_id))

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

    # ── a worker's side ──────────────────────────────────────────────────────────────────────────

    def ring(self) -> None:
        for waker in self._wakers:
            waker.set()

    def has_work(self, room: Mapping[str, int] = NO_LIMITS.tasks) -> bool:
        with self.lock:
            self._put_back_the_silent()
            return bool(self._startable(1, room))

    def _startable(self, limit: int, room: Mapping[str, int]) -> list[JobId]:
        """The first due jobs, without those of tasks that have no room left."""
        now_s, left = time.monotonic(), dict(room)
        found: list[JobId] = []
        for job_id in self.line:
            task = self.jobs[job_id].request.task
            if len(found) < limit and self.is_due(self.jobs[job_id], now_s) and left.get(task, 1):
                found.append(job_id)
                if task in left:
                    left[task] -= 1
        return found

    def is_due(self, record: Record, now_s: float) -> bool:
        if now_s < self.limited_until_s or record.due_s > now_s:
            return False
        children = (self.jobs.get(child) for child in record.children)
        return all(child is None or child.state in TERMINAL for child in children)

    def start(
        self, consumer: str, limit: int, room: Mapping[str, int] = NO_LIMITS.tasks
    ) -> list[LeasedJob]:
        self.check_up()
        now_s = time.monotonic()
        with self.lock:
            self._put_back_the_silent()
            due = self._startable(limit, room)
            for job_id in due:
                self.line.remove(job_id)
            return [self._start(self.jobs[job_id], consumer, now_s) for job_id in due]

    def _start(self, record: Record, consumer: str, now_s: float) -> LeasedJob:
        record.state, record.holder = State.RUNNING, consumer
        record.token = Token(f"token-{next(self._serial)}")
        record.deliveries += 1
        record.last_report = 0
        record.lease_until_s, record.silent = now_s + self.lease_s, False
        return self.lease(record)

    def lease(self, record: Record) -> LeasedJob:
        request = record.request
        payload = cast(Json, json.loads(request.payload_json))
        job = JobInfo(
            record.id, "memory", request.task, payload, record.attempt, record.deliveries, 0,
            request.tenant, request.traceparent,
        )  # fmt: skip
        assert record.token is not None
        return LeasedJob(
            job, record.token, Policy(request.max_attempts, request.timeout_s), None, None
        )

    def _put_back_the_silent(self) -> None:
        for record in self.jobs.values():
            if record.state is State.RUNNING and record.silent:
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
                return SettleAnswer.SETTLED  # repeated
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
            case Postponed(until_ms):
                record.state = State.WAITING
                record.due_s = time.monotonic() + until_ms / 1000 - time.time()
                self.line.append(record.id)
            case RateLimited(for_s):
                record.state = State.WAITING
                self.limited_until_s = time.monotonic() + for_s
                self.line.insert(0, record.id)
            case WaitsForChildren() | Suspended() | Restarted():
                record.state = State.WAITING
                self.line.append(record.id)
        self.ring()

    def say(self, leased: LeasedJob, report: Report) -> ReportAnswer:
        with self.lock:
            record = self.owned(leased)
            if record is None:
                return ReportAnswer.LOST
            if report.number == 0 or report.number > record.last_report:
                self._write(record, report)
                record.last_report = report.number
            return ReportAnswer.WRITTEN

    def _write(self, record: Record, report: Report) -> None:
        if report.kind == DATA_KIND:
            record.request = record.request._replace(payload_json=report.data_json)
        elif report.kind == CHILD_KIND:
            child = ChildRequest(**json.loads(report.data_json))
            self.submit_now(JobRequest(child.task, child.payload_json, child.job_id))
            record.children.append(child.job_id)
        else:
            record.events.append(report)

    def renew(self, leased: LeasedJob) -> RenewAnswer:
        with self.lock:
            record = self.jobs.get(leased.job.id)
            if record is None or record.state in TERMINAL:
                return RenewAnswer.ENDED
            if self.owned(leased) is None:
                return RenewAnswer.LOST
            record.lease_until_s = time.monotonic() + self.lease_s
            record.silent = False
            record.renewals += 1
            return RenewAnswer.CANCEL if record.cancel else RenewAnswer.RENEWED

    def seize(self, job_id: JobId) -> None:
        """Another worker reclaims the job."""
        with self.lock:
            self._start(self.jobs[job_id], "another worker", time.monotonic())

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


def answered(act: Callable[[], T]) -> Awaitable[T]:
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
