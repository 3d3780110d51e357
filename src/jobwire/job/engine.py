"""The protocols between the worker and the wires: an Engine is one worker's end of one queue.

Called by the worker, the maintenance runner and the conformance suite; implemented by each wire
with a queue. It knows no keys, scripts or locks.

Three rules hold for every implementation:

- **Sent when called.** `take`, `report` and `settle` are plain functions: the request is sent, in
  the order of the calls, when they return; awaiting brings the answer. So reports and the settle
  that follows them leave in one write, and neither needs a task.
- **Safe to repeat.** If the server does not answer, `BackendUnavailable` is raised and the outcome
  is unknown. The same `report` or `settle` may be repeated; `recover_orphans` finds jobs started by
  a lost answer. An engine never repeats by itself.
- **One write, one fence.** A write whose token is no longer valid is refused (`LOST`).

Cancelling an await never takes back what was sent.

Where wires differ, an engine declares its `Traits`; the conformance suite tests each of them.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

from jobwire.job.messages import (
    CancelOutcome,
    CancelRequest,
    Children,
    CronState,
    DueAnswer,
    JobId,
    JobRecord,
    JobRequest,
    LeasedJob,
    MissingRequirement,
    Outcome,
    RenewAnswer,
    Report,
    ReportAnswer,
    Settled,
    SubmitAnswer,
    TaskDefinition,
    Token,
)
from jobwire.job.states import State

Use: TypeAlias = Literal["postpone", "rate_limit", "children", "update_data", "durable"]
"""What a handler may use on some wires only, and has to declare with `uses=`."""


class StepRules(NamedTuple):
    """The limits of recorded steps."""

    max_result_bytes: int
    max_record_bytes: int
    """Of all results of a job together."""
    max_records: int
    announces_calls: bool = False
    """Each call of a step's function is reported with the kind `CALL_KIND` before it begins."""
    max_payload_bytes: int = 204_800
    """The largest payload of a child, as JSON."""
    shared_queue: str = ""
    """The queue whose jobs cannot be suspended: workers that read no record may take them."""
    skips_sleeps: bool = False
    """A sleep is over at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What an engine does where wires differ. The defaults are those of a wire that can express
    everything."""

    uses: frozenset[Use] = frozenset()
    """What handlers of this queue may use."""
    prefetches: bool = False
    """A wait may start jobs, as many as its `capacity`."""
    takes_turns: bool = False
    """Engines of this wire in one worker serve shards of the same queues: they take turns with the
    free slots, instead of having an equal part each."""
    catch_all: bool = True
    """A handler may serve all tasks of the queue."""
    shares_handlers: bool = False
    """Producers choose the queue by the task: a job of any of the engine's queues is run by any
    handler of its task. Otherwise a queue with handlers of its own has no others."""
    settle_memory_s: float = float("inf")
    """For how long a repeated settle gets the answer of the first; LOST after that."""
    tells_ended: bool = True
    """A worker that lost a job which has ended since is answered ALREADY and ENDED; otherwise
    LOST, as if it were still running."""
    renews_expired: bool = True
    """A lease that has run out is renewed as long as no other worker has the job; otherwise the
    answer is LOST."""
    releases_uncounted: bool = True
    """A released job's start is not counted in `JobInfo.deliveries`."""
    canceled_state: State = State.CANCELED
    """The state of a job that was running when it was canceled."""
    keeps_canceled: bool = True
    """A job that was waiting when it was canceled keeps a record; otherwise it is removed."""
    cancels_at_release: bool = True
    """A canceled job that is retried or released ends in that moment; otherwise when a worker takes
    it next, without running."""
    reports_once: bool = True
    """A repeated report is written once; otherwise it may be written again."""
    any_progress: bool = False
    """Progress may be any number; otherwise 0 to 100."""
    max_result_bytes: int = 1_048_576
    """The largest result of a job, as JSON."""
    steps: StepRules | None = None
    """The limits of recorded steps; None: the wire cannot record them."""
    on_failure: bool = False
    """A failed job can be followed by a job of another task."""


class Room(NamedTuple):
    """How many more jobs may be started where handlers have limits of their own. What is not named
    has none."""

    tasks: Mapping[str, int]
    queues: Mapping[str, int]
    """Queues whose handlers are all limited."""


NO_LIMITS = Room({}, {})


class JobQueue(Protocol):
    """What a producer needs of a queue. Sent when called, as with an Engine."""

    def submit(self, request: JobRequest, /) -> Awaitable[SubmitAnswer]:
        """Make a job. Repeating it makes another one, unless the request has a job id or an
        idempotency key."""
        ...

    def submit_many(self, requests: Sequence[JobRequest], /) -> Awaitable[list[SubmitAnswer]]:
        """Make all jobs in one round trip; one answer each."""
        ...

    def cancel(self, job_id: JobId) -> Awaitable[CancelOutcome]:
        """End the job if it is waiting; ask its worker to stop it if it is running."""
        ...


class CronStore(Protocol):
    """What a scheduler needs of a queue: its clock, and which due times were handled."""

    def enroll(
        self, name: str, entry: str, request: JobRequest | None = None, /
    ) -> Awaitable[CronState]:
        """The fleet's position in a cron entry. A new or changed entry starts now. `request` is
        remembered, so that the entry can be run at any time."""
        ...

    def submit_due(
        self, name: str, entry: str, due_ms: int, request: JobRequest, /
    ) -> Awaitable[DueAnswer]:
        """Make the job of a due time, once for the whole fleet."""
        ...


class MaintenanceResult(NamedTuple):
    """One run of a maintenance task: how many items it handled, and whether more are left."""

    done: int
    more: bool = False
    next_s: float | None = None
    """When the task has something to do again, if that is known."""
    guard_s: float | None = None
    """For how long the task's guard keeps the fleet from running it again."""


class Wakeup(Protocol):
    """What an `asyncio.Event` is to a periodic task."""

    def is_set(self) -> bool: ...
    async def wait(self) -> object: ...
    def clear(self) -> None: ...


class MaintenanceTask(NamedTuple):
    """Periodic work that any process may do for the whole fleet."""

    name: str
    period_s: float
    run: Callable[[], Awaitable[MaintenanceResult | None]]
    """None: there was nothing to do."""
    soon: Wakeup | None = None
    """Set when this process has made work for it; with it, `period_s` is the longest wait."""


class LeaseRenewer(Protocol):
    """Renews leases. Synchronous, with its own socket: it runs in a thread, where a handler that
    blocks the event loop cannot stop it. Made on the loop, used in one thread at a time. Engines of
    one worker may share one: it is then called with the jobs of all of them.
    """

    lease_s: float
    """How long a lease holds without renewal."""

    period_s: float
    """How often to call `renew`."""

    heartbeat_s: float
    """How often to call `heartbeat`."""

    def renew(self, batch: Sequence[LeasedJob]) -> Sequence[RenewAnswer]:
        """Renew all leases in one round trip; answers in order. After a BackendUnavailable the next
        call reconnects."""
        ...

    @property
    def heartbeat_is_late(self) -> bool:
        """Whether the event loop is late with the worker's registration; without a call."""
        ...

    def heartbeat(self) -> None:
        """Renew the worker's registration if the event loop is late with it, so that a worker whose
        loop is blocked stays registered. BackendUnavailable as with `renew`."""
        ...

    def settle(self, batch: Sequence[tuple[LeasedJob, Outcome]]) -> None:
        """Settle jobs for a blocked event loop, before the process ends. BackendUnavailable as with
        `renew`; it may be repeated."""
        ...

    def close(self) -> None:
        """Close the socket. May be called twice."""
        ...


MissingRequirements = Callable[[], Sequence[MissingRequirement]]
"""What a worker lacks now; called at each heartbeat."""


def no_missing_requirements() -> Sequence[MissingRequirement]:
    """The default."""
    return ()


class Engine(Protocol):
    """One worker's end of one queue, or of several that it serves together."""

    name: str
    """Its name in logs."""

    @property
    def queues(self) -> Sequence[str]:
        """The names of its queues, as in `JobInfo.source`: handlers may be for one of them."""
        ...

    wire: str
    """The wire's name."""

    traits: Traits

    reserved_kinds: frozenset[str]
    """Kinds of reports that no handler may use: the wire writes such events itself."""

    def unknown_task(self, leased: LeasedJob, /) -> Outcome:
        """The outcome of a leased job for which this worker has no handler. Never one that makes
        the same worker take it again at once."""
        ...

    async def register(
        self,
        tasks: Sequence[TaskDefinition],
        slots: int,
        missing_requirements: MissingRequirements = no_missing_requirements,
        /,
    ) -> None:
        """Join the queue as a worker with these `tasks`, and publish what it lacks. Before
        `wait`."""
        ...

    def set_slots(self, slots: int, /) -> None:
        """The worker has so many slots from now on; published with the next heartbeat."""
        ...

    def set_room(self, room: Room, /) -> None:
        """For the calls that follow: start no more jobs than these, and leave the others to other
        workers. Called only if handlers have limits; jobs that were started or reclaimed already
        may exceed it."""
        ...

    def no_room(self, leased: LeasedJob, /) -> Outcome:
        """The outcome of a leased job whose handler is at its limit."""
        ...

    async def wait(self, timeout_s: float, capacity: int = 1, /) -> bool:
        """Wait until there may be work; False after the timeout. One caller at a time, without
        blocking other calls. It may start up to `capacity` jobs as they arrive, which the next
        `take` returns; with 0 it starts and fetches nothing."""
        ...

    async def wake(self) -> None:
        """Make a `wait` in progress return now. Used by the drain."""
        ...

    def take(self, limit: int) -> Awaitable[list[LeasedJob]]:
        """Start up to `limit` (≥ 1) jobs, without waiting for any. The returned jobs are started
        and leased from that moment: renew or settle them."""
        ...

    def report(self, batch: Sequence[tuple[LeasedJob, Report]]) -> Awaitable[list[ReportAnswer]]:
        """Publish events, and write records (`RECORD_KIND`); reports of one job keep their order.
        A record is never `DROPPED` for want of memory."""
        ...

    async def children(self, leased: LeasedJob, /) -> Children:
        """The children of a leased job; for handlers that declare `children`."""
        ...

    async def read_record(self, leased: LeasedJob, /) -> JobRecord:
        """The record of a leased job that has one (`LeasedJob.records`)."""
        ...

    def settle(self, batch: Sequence[tuple[LeasedJob, Outcome]], want: int) -> Awaitable[Settled]:
        """End, retry or release each job, and start up to `want` (≥ 0) next ones in the same call.
        An outcome that cannot be written (`REFUSED`) does not affect the others of the batch."""
        ...

    async def recover_orphans(self, known: Set[Token], idle_s: float = 0.0) -> list[LeasedJob]:
        """Jobs leased to this worker whose token is not in `known`: their start was answered into a
        broken connection. To be called after a BackendUnavailable of `wait`, `take` or `settle`,
        once the server answers again. Calls in flight are left alone. With `idle_s`, only jobs that
        were not renewed for that long: a safety net for jobs lost elsewhere."""
        ...

    async def renew(self, batch: Sequence[LeasedJob]) -> list[RenewAnswer]:
        """Renew leases on the loop's own connection: for starts whose answers came so late that
        their leases may have run out before a handler has begun."""
        ...

    def lease_renewer(self) -> LeaseRenewer:
        """A renewer of this worker's leases: a new one, or one shared with other engines."""
        ...

    def cancels(self) -> AsyncIterator[CancelRequest]:
        """Cancel requests as they come, until closed. One may be missed while the connection is
        down: `LeaseRenewer.renew` reports it again."""
        ...

    def maintenance(self) -> Sequence[MaintenanceTask]:
        """The maintenance of this queue; also for processes that never `register`."""
        ...

    async def deregister(self) -> None:
        """Release fetched jobs that were not taken, and leave the queue. After the last settle."""
        ...
