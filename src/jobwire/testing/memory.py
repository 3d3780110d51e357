"""One job in memory, run by a real worker; called by users' tests.

`SingleJobEngine` is a queue with a single job. Retries come at once; their delays are recorded.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence, Set
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import msgspec

from jobwire.job.engine import (
    MaintenanceTask,
    MissingRequirements,
    Room,
    StepRules,
    Traits,
    no_missing_requirements,
)
from jobwire.job.ids import new_job_id, new_tokens
from jobwire.job.messages import (
    CALL_KIND,
    CHILD_FIELD,
    CHILD_KIND,
    DATA_KIND,
    ENDED_CHILD_FIELD,
    ERROR_FIELD,
    NO_CHILDREN,
    RECORD_KIND,
    RESTARTS_FIELD,
    RESULT_FIELD,
    SIGNAL_FIELD,
    STARTED_FIELD,
    SUBMIT_KIND,
    CancelRequest,
    Children,
    ChildRequest,
    ChildSubmission,
    Done,
    Failed,
    JobError,
    JobInfo,
    JobRecord,
    Json,
    LeasedJob,
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
    Settled,
    Suspended,
    TaskDefinition,
    Token,
    WaitsForChildren,
)
from jobwire.task import HasTask
from jobwire.worker.app import CATCH_ALL, App, Handler
from jobwire.worker.codec import to_json
from jobwire.worker.failed_job import FailedJobError
from jobwire.worker.worker import Worker

T = TypeVar("T")
_LONG_S = 3600.0
_MAX_DEPTH = 8
"""How deep children are, as on a server (D-16)."""
_depth: ContextVar[int] = ContextVar("depth", default=0)


@dataclass(frozen=True, slots=True)
class Said:
    """An event that the handler emitted."""

    kind: str
    data: Json
    step: str = ""


@dataclass(slots=True)
class Ran:
    """The result of a job."""

    result: Json = None
    """What the handler returned, as a caller reads it."""
    error: FailedJobError | None = None
    """Why the job failed, as a `FailedJob` has it; None if it did not."""
    events: list[Said] = field(default_factory=list[Said])
    """The handler's events of all attempts, in order."""
    attempts: int = 0
    waits_s: list[float] = field(default_factory=list[float])
    """The delay of each retry."""
    runs: int = field(default=0, compare=False)
    """How often the handler ran: attempts, and runs after `Postpone`, `RateLimit` and
    `WaitForChildren`, which come at once here."""
    children: list[ChildRequest] = field(default_factory=list[ChildRequest])
    """What the handler added with `ctx.add_child`; nothing runs them here."""
    data: Json = None
    """What the handler stored with `ctx.update_data`."""
    calls: Counter[str] = field(default_factory=Counter[str])
    """How often the function of each step was called, over all runs, and each child's task."""
    waits: list[str] = field(default_factory=list[str])
    """What the job was suspended for, in order: `sleep`, `signal approval`, `children`."""

    def of(self, kind: str) -> list[Json]:
        """The data of all events of one kind."""
        return [event.data for event in self.events if event.kind == kind]


async def run(
    app: App,
    task: "str | HasTask[Any, Any] | None" = None,
    payload: object = None,
    *,
    queue: str = "",
    wire: str = "",
    cron: str = "",
    max_attempts: int | None = None,
    timeout_s: float | None = None,
    crash_after: str = "",
    signals: Mapping[str, object] | None = None,
) -> Ran:
    """Run one job to its end, inside the App's lifespan and middleware.

    `task` is its name, or the handler's function. `queue` and `wire` choose one of several handlers
    of a task. With `cron`, the name of a cron entry, it is the job that this entry submits.
    `max_attempts` and `timeout_s` are as in a client's request. With `crash_after`, the name of a
    step, the worker loses the job when the result of that step is recorded, and the handler starts
    once more: `calls` of the result shows what was called again. Sleeps end at once; `signals` has
    the values of signals, and one that is missing does not come in time. Children are run by the
    App's own handlers, and get the same signals; `task:name` is that of the children of one task.
    """
    if cron:
        entry = next((each for each in app.crons if each.name == cron), None)
        if entry is None or task is not None:
            known = ", ".join(each.name for each in app.crons) or "none"
            raise ValueError(f"cron={cron!r} names an entry, without a task; the app has: {known}")
        handler = _handler(app, entry.task, entry.queue, entry.wire)
        text = entry.payload_json
    else:
        handler = _handler(app, task, queue, wire)
        text = to_json({} if payload is None else payload)
    name = handler.task
    if name == CATCH_ALL:
        name = task if isinstance(task, str) else CATCH_ALL
    plain = cast(Json, msgspec.json.decode(text))
    values = {key: to_json(value) for key, value in (signals or {}).items()}
    policy = Policy(max_attempts, timeout_s)
    engine = SingleJobEngine(name, plain, policy, handler.queue, handler.wire, crash_after, values)

    async def run_child(child: ChildSubmission) -> Ran:
        engine.ran.calls[child.task] += 1
        _depth.set(engine.depth + 1)
        try:
            payload = msgspec.json.decode(child.payload_json)
            return await run(app, child.task, payload, signals=signals)
        except ValueError as error:
            return Ran(error=FailedJobError("unknown_task", str(error)))

    engine.run_child = run_child
    worker = Worker(app, [engine], slots=1)
    running = asyncio.create_task(worker.run())
    try:
        over = asyncio.create_task(engine.over.wait())
        await asyncio.wait([running, over], return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
    finally:
        worker.stop()
        worker.stop()
        await running
    if engine.broken is not None:
        raise engine.broken
    if engine.crash_after:
        known = ", ".join(engine.recorded) or "none"
        raise ValueError(f"crash_after={crash_after!r}: no such step was recorded, only: {known}")
    return engine.ran


def run_sync(
    app: App,
    task: "str | HasTask[Any, Any] | None" = None,
    payload: object = None,
    *,
    queue: str = "",
    wire: str = "",
    cron: str = "",
    max_attempts: int | None = None,
    timeout_s: float | None = None,
    crash_after: str = "",
    signals: Mapping[str, object] | None = None,
) -> Ran:
    """`run` for tests without an event loop."""
    return asyncio.run(
        run(
            app,
            task,
            payload,
            queue=queue,
            wire=wire,
            cron=cron,
            max_attempts=max_attempts,
            timeout_s=timeout_s,
            crash_after=crash_after,
            signals=signals,
        )
    )


def _handler(app: App, task: object, queue: str, wire: str) -> Handler:
    """The handler that is meant; ValueError if there is none, or more than one."""
    every = [*app.handlers.values(), *app.queue_handlers]
    found = [
        each
        for each in every
        if (each.task == task or each.function is task)
        and (not queue or each.queue == queue)
        and (not wire or each.wire == wire)
    ]
    if not found and queue and isinstance(task, str):
        found = [each for each in every if each.queue == queue and each.task == CATCH_ALL]
    if len(found) == 1:
        return found[0]
    if found:
        where = ", ".join(repr(each.queue) for each in found)
        raise ValueError(f"{task!r} has several handlers; choose one by queue=: {where}")
    known = ", ".join(sorted(each.task for each in every)) or "none"
    where = f" on the queue {queue!r}" if queue else ""
    raise ValueError(f"the app has no handler for {task!r}{where}; it has: {known}")


class SingleJobEngine:
    """An Engine with a single job."""

    name = "memory"
    traits = Traits(
        uses=frozenset({"postpone", "rate_limit", "children", "update_data", "durable"}),
        on_failure=True,
        steps=StepRules(262_144, 4_194_304, 1_000, announces_calls=True, skips_sleeps=True),
    )
    reserved_kinds = frozenset({"done", "error", "canceled", "step_done", "suspended"})
    run_child: "Callable[[ChildSubmission], Awaitable[Ran]] | None" = None

    def __init__(
        self,
        task: str,
        payload: Json,
        policy: Policy,
        queue: str = "",
        wire: str = "",
        crash_after: str = "",
        signals: Mapping[str, str] | None = None,
    ) -> None:
        """`crash_after` names a step: its worker dies when the result was recorded. `signals` has
        the values of signals, as JSON."""
        mine = {each.removeprefix(f"{task}:"): value for each, value in (signals or {}).items()}
        self._signals = {**(signals or {}), **mine}
        self._children: dict[str, ChildSubmission] = {}
        self._resuming: asyncio.Task[None] | None = None
        self.queues = (queue or self.name,)
        self.wire = wire or self.name
        self.ran = Ran()
        self.over = asyncio.Event()
        self.broken: Exception | None = None
        """What the run of a child has raised: an error of the test's own, not of the job."""
        self.depth = _depth.get()
        self._available = asyncio.Event()
        self._available.set()
        self._policy = policy
        (token,) = new_tokens(1)
        self._job = JobInfo(new_job_id(), self.queues[0], task, payload, 1, 0, 0, "", "")
        self._token = token
        self.crash_after = crash_after
        self._record: dict[str, str] = {}
        self._progress_attempt = 1
        self._deliveries = 0

    @property
    def recorded(self) -> list[str]:
        """The names of the steps that have results."""
        return [
            each.removeprefix(RESULT_FIELD)
            for each in self._record
            if each.startswith(RESULT_FIELD)
        ]

    def unknown_task(self, leased: LeasedJob) -> Outcome:
        return Failed(JobError("unknown_task", f"there is no task {leased.job.task!r}"))

    async def register(
        self,
        tasks: Sequence[TaskDefinition],
        slots: int,
        missing_requirements: MissingRequirements = no_missing_requirements,
    ) -> None:
        """Nothing to do: no other process sees this queue."""

    def set_slots(self, slots: int) -> None:
        """Nothing to do, as for `register`."""

    def set_room(self, room: Room) -> None:
        """Nothing to do: one job never exceeds a limit."""

    def no_room(self, leased: LeasedJob) -> Outcome:  # noqa: ARG002 - of the protocol
        return Released()

    async def wait(self, timeout_s: float, capacity: int = 1) -> bool:  # noqa: ARG002 - of the protocol
        try:
            async with asyncio.timeout(timeout_s):
                await self._available.wait()
        except TimeoutError:
            return False
        return True

    async def wake(self) -> None:
        self._available.set()

    def take(self, limit: int) -> Awaitable[list[LeasedJob]]:  # noqa: ARG002 - of the protocol
        if not self._available.is_set() or self.over.is_set():
            return _answer(list[LeasedJob]())
        self._available.clear()
        self.ran.runs += 1
        self.ran.attempts = self._job.attempt
        self._deliveries += 1
        self._job = self._job._replace(deliveries=self._deliveries)
        (self._token,) = new_tokens(1)
        records = len(self._record)
        return _answer([LeasedJob(self._job, self._token, self._policy, None, None, records)])

    async def read_record(self, leased: LeasedJob) -> JobRecord:  # noqa: ARG002 - of the protocol
        return JobRecord(self._record, self._progress_attempt)

    def report(self, batch: Sequence[tuple[LeasedJob, Report]]) -> Awaitable[list[ReportAnswer]]:
        answers: list[ReportAnswer] = []
        for leased, report in batch:
            if leased.token != self._token:
                answers.append(ReportAnswer.LOST)
                continue
            answers.append(ReportAnswer.WRITTEN)
            if report.kind == RECORD_KIND:
                answers[-1] = self._write_record(report.step, report.data_json)
                continue
            if report.kind == SUBMIT_KIND:
                if self.depth >= _MAX_DEPTH:
                    answers[-1] = ReportAnswer.CHILD_LIMIT
                    continue
                child = msgspec.json.decode(report.data_json, type=ChildSubmission)
                self._children[report.step.removeprefix(CHILD_FIELD)] = child
                self._record[report.step] = to_json([child.job_id, child.task])
                continue
            if report.kind == CALL_KIND:
                self.ran.calls[report.step] += 1
                continue
            data = cast(Json, msgspec.json.decode(report.data_json))
            if report.kind == DATA_KIND:
                self.ran.data = data
                self._job = self._job._replace(payload=data)
            elif report.kind == CHILD_KIND:
                self.ran.children.append(msgspec.json.decode(report.data_json, type=ChildRequest))
            else:
                self.ran.events.append(Said(report.kind, data, report.step))
        return _answer(answers)

    def _write_record(self, step: str, value: str) -> ReportAnswer:
        if not value:
            self._record.pop(step, None)
            return ReportAnswer.WRITTEN
        self._record[step] = value
        if not step.startswith((RESULT_FIELD, ERROR_FIELD)):
            return ReportAnswer.WRITTEN
        name = step[len(RESULT_FIELD) :]
        _, ms, result = msgspec.json.decode(value, type=tuple[int, int, msgspec.Raw])
        data: Json = {"name": name, "ms": ms, "bytes": len(bytes(result))}
        if step.startswith(ERROR_FIELD):
            data["failed"] = True
        else:
            self._record.pop(STARTED_FIELD + name, None)
            self._progress_attempt = self._job.attempt
        self.ran.events.append(Said("step_done", data))
        if name != self.crash_after:
            return ReportAnswer.WRITTEN
        # The run loses its lease, and the job is delivered once more.
        self.crash_after = ""
        (self._token,) = new_tokens(1)
        self._available.set()
        return ReportAnswer.LOST

    def settle(  # `take` returns the next attempt
        self,
        batch: Sequence[tuple[LeasedJob, Outcome]],
        want: int,  # noqa: ARG002 - of the protocol
    ) -> Awaitable[Settled]:
        for _, outcome in batch:
            self._settle(outcome)
        return _answer(Settled([SettleAnswer.SETTLED for _ in batch], []))

    def _settle(self, outcome: Outcome) -> None:
        match outcome:
            case Done(result_json):
                self.ran.result = cast(Json, msgspec.json.decode(result_json))
            case Failed(error):
                partial = msgspec.json.decode(error.partial_json) if error.partial_json else None
                known = (error.code, error.message, error.retryable)
                self.ran.error = FailedJobError(*known, self._job.attempt, partial)
            case RetryLater(after_s, _, again):
                self.ran.waits_s.append(after_s)
                for name in again:
                    self._record.pop(ERROR_FIELD + name, None)
                self._job = self._job._replace(attempt=self._job.attempt + 1)
                self._available.set()
                return
            case Postponed() | RateLimited() | WaitsForChildren():
                self._available.set()
                return
            case Suspended():
                self.ran.waits += [_wait(each) for each in outcome.alone()]
                self._uncount()
                self._resuming = asyncio.ensure_future(self._resume(outcome))
                return
            case Restarted(payload_json, read):
                payload = cast(Json, msgspec.json.decode(payload_json))
                # What was read has come before the restart: it does not come once more.
                for name in read:
                    self._signals.pop(name, None)
                    self._record.pop(SIGNAL_FIELD + name, None)
                restarts = int(self._record.get(RESTARTS_FIELD, "0")) + 1
                self._record = {
                    RESTARTS_FIELD: str(restarts),
                    **{
                        field: value
                        for field, value in self._record.items()
                        if field.startswith(SIGNAL_FIELD) and "," in value
                    },
                }
                self._uncount()
                self._job = self._job._replace(payload=payload)
                self._available.set()
                return
            case _:  # canceled or released: the test itself was stopped
                pass
        self.over.set()

    def _uncount(self) -> None:
        """A run that ends so is no delivery, and what failed before it does not count."""
        self._deliveries -= 1
        self._progress_attempt = self._job.attempt

    async def _resume(self, outcome: Suspended) -> None:
        try:
            for wait in outcome.alone():
                await self._provide(wait)
        except Exception as error:  # noqa: BLE001 - raised by `run`
            self.broken = error
            self.over.set()
        else:
            self._available.set()

    async def _provide(self, wait: Suspended) -> None:
        """What the job waits for comes at once."""
        if wait.due_field:
            self._record[wait.due_field] = "0"
        for name in wait.names:
            if name.startswith(SIGNAL_FIELD):
                value = self._signals.get(name.removeprefix(SIGNAL_FIELD))
                self._record[name] = "[0]" if value is None else f"[0,{value}]"
            else:
                self._record[name] = await self._run_child(name.removeprefix(ENDED_CHILD_FIELD))

    async def _run_child(self, name: str) -> str:
        assert self.run_child is not None
        ran = await self.run_child(self._children[name])
        if ran.error is None:
            return to_json([0, "done", ran.result])
        error = cast("dict[str, Any]", msgspec.to_builtins(ran.error))
        if ran.error.partial is None:
            del error["partial"]
        return to_json([0, "error", error])

    async def children(self, leased: LeasedJob) -> Children:  # noqa: ARG002 - of the protocol
        """There are none: no job waits for others here."""
        return NO_CHILDREN

    async def recover_orphans(
        self,
        known: Set[Token],  # noqa: ARG002 - of the protocol
        idle_s: float = 0.0,  # noqa: ARG002 - of the protocol
    ) -> list[LeasedJob]:
        return []

    async def renew(self, batch: Sequence[LeasedJob]) -> list[RenewAnswer]:
        return [RenewAnswer.RENEWED for _ in batch]

    def lease_renewer(self) -> "_LeaseRenewer":
        return _LeaseRenewer()

    async def cancels(self) -> AsyncIterator[CancelRequest]:
        await asyncio.get_running_loop().create_future()
        yield CancelRequest(self._token)

    def maintenance(self) -> Sequence[MaintenanceTask]:
        return ()

    async def deregister(self) -> None:
        """Nothing to do: no other process sees this queue."""


def _wait(wait: Suspended) -> str:
    return f"signal {wait.name}" if wait.kind == "signal" else wait.kind


class _LeaseRenewer:
    """Renews a lease that no other worker can take."""

    lease_s = _LONG_S
    period_s = _LONG_S
    heartbeat_s = _LONG_S
    heartbeat_is_late = False

    def renew(self, batch: Sequence[LeasedJob]) -> Sequence[RenewAnswer]:
        return [RenewAnswer.RENEWED for _ in batch]

    def heartbeat(self) -> None:
        """Nothing to do: no other process sees this queue."""

    def settle(self, batch: Sequence[tuple[LeasedJob, Outcome]]) -> None:
        """Nothing to do: the queue ends with the process."""

    def close(self) -> None:
        """Nothing to close."""


async def _answer(value: T) -> T:
    return value
