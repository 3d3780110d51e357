"""The seam between the worker and the wires: an Engine holds jobs of one queue for one worker.

The worker, the duties' runner and the conformance suite call it; each wire with a queue implements
it. It says nothing of keys, scripts or locks.

Three rules hold for every implementation:

- **Sent when called.** `take`, `report` and `settle` are plain functions: what they ask for is on
  its way, in the order of the calls, when they return; awaiting brings the answer. So reports and
  the settle that follows them leave in one write, and no task is needed for either.
- **Safe to repeat.** Where the server did not answer, `GroundError` is raised and the outcome is
  unknown. The same `report` or `settle` may be asked again; `adopt` finds what a lost answer
  started. An engine never repeats by itself.
- **One write, one fence.** Whatever a token no longer covers is refused (`LOST`), never written.

Cancelling an await never takes back what was sent.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence, Set
from typing import NamedTuple, Protocol

from jobwire.job.messages import (
    CancelOutcome,
    CancelRequest,
    CronState,
    DueAnswer,
    JobId,
    JobRequest,
    LeasedJob,
    MissingRequirement,
    Outcome,
    RenewAnswer,
    Report,
    ReportAnswer,
    Settled,
    Snapshot,
    SubmitAnswer,
    TaskDefinition,
    Token,
)


class Queue(Protocol):
    """What a producer needs of a queue. Sent when called, as with an Engine."""

    def submit(self, order: JobRequest) -> Awaitable[SubmitAnswer]:
        """Make a job of `order`. Asking again makes another one, unless the order has a job id or
        an idempotency key."""
        ...

    def submit_many(self, orders: Sequence[JobRequest]) -> Awaitable[list[SubmitAnswer]]:
        """Make jobs of all of them in one round trip, each with its own answer."""
        ...

    def get(self, job_id: JobId) -> Awaitable[Snapshot | None]:
        """The job as it stands, or None where there is none."""
        ...

    def cancel(self, job_id: JobId) -> Awaitable[CancelOutcome]:
        """End the job if it is waiting; tell its worker to stop if it is running."""
        ...


class CronStore(Protocol):
    """What a scheduler needs of a queue: its clock, and which due times were seen to."""

    def enroll(self, name: str, entry: str) -> Awaitable[CronState]:
        """How far the fleet is with a cron entry. One that is new, or was changed, begins now."""
        ...

    def submit_due(
        self, name: str, entry: str, due_ms: int, order: JobRequest
    ) -> Awaitable[DueAnswer]:
        """Make the job of a due time, once for the whole fleet, whoever asks how often."""
        ...


class MaintenanceResult(NamedTuple):
    """One run of a duty: how many things it put right, and whether there is more to do at once."""

    done: int
    more: bool = False


class MaintenanceTask(NamedTuple):
    """Housekeeping that any process may do for the whole fleet."""

    name: str
    period_s: float
    run: Callable[[], Awaitable[MaintenanceResult | None]]
    """None: another process has done it in this period."""


class LeaseRenewer(Protocol):
    """Renews leases. Synchronous, with a socket of its own: it lives in a thread, where a handler
    that blocks the event loop cannot stop it. It is made on the loop and used in that thread only.
    """

    lease_s: float
    """How long a lease holds without being kept."""

    period_s: float
    """How often `keep` is to be called."""

    heartbeat_s: float
    """How often `heartbeat` is to be called."""

    def renew(self, batch: Sequence[LeasedJob]) -> Sequence[RenewAnswer]:
        """Renew them all in one round trip; answers in order. Dials anew by itself after trouble,
        which is raised as GroundError once."""
        ...

    def heartbeat(self) -> None:
        """Renew the worker's registration if the event loop is late with it, so that a worker whose
        loop is blocked is not taken for gone. GroundError as with `keep`."""
        ...

    def close(self) -> None:
        """Give the socket back. May be called twice."""
        ...


MissingRequirements = Callable[[], Sequence[MissingRequirement]]
"""What a worker lacks at this moment; asked again at each heartbeat."""


def no_missing_requirements() -> Sequence[MissingRequirement]:
    """The usual."""
    return ()


class Engine(Protocol):
    """One worker's end of one queue."""

    name: str
    """The queue's name, for logs and for `Job.source`."""

    async def register(
        self,
        tasks: Sequence[TaskDefinition],
        slots: int,
        lacks: MissingRequirements = no_missing_requirements,
    ) -> None:
        """Join the queue as a worker that has `tasks`, and be seen by others, with what it lacks.
        Before `wait`."""
        ...

    async def wait(self, timeout_s: float, room: int = 1) -> bool:
        """Sleep until there may be work; False where the time ran out. One caller at a time, on a
        socket of its own. It may start up to `room` jobs as they come, which the next `take` hands
        out: the caller keeps so many slots free."""
        ...

    async def wake(self) -> None:
        """Make a `wait` in progress return now. Used by the drain."""
        ...

    def take(self, limit: int) -> Awaitable[list[LeasedJob]]:
        """Start up to `limit` (≥ 1) jobs, without waiting for any. What it returns is started,
        owned and leased from that moment: keep it, or settle it."""
        ...

    def report(self, batch: Sequence[tuple[LeasedJob, Report]]) -> Awaitable[list[ReportAnswer]]:
        """Tell the watchers; reports of one job keep their order."""
        ...

    def settle(self, batch: Sequence[tuple[LeasedJob, Outcome]], want: int) -> Awaitable[Settled]:
        """End, retry or give back each; and start up to `want` (≥ 0) next ones on the way. An
        outcome that cannot be written (`REFUSED`) harms no other of the batch."""
        ...

    async def recover_orphans(self, known: Set[Token], idle_s: float = 0.0) -> list[LeasedJob]:
        """What is held in this worker's name though its token is not in `known`: jobs whose start
        was answered into a broken connection. To be asked after a GroundError of `wait`, `take` or
        `settle`, once the server answers again. Calls still in flight are left alone. With
        `idle_s`, only what nobody has kept for so long: a net for what was let go of elsewhere."""
        ...

    async def renew(self, batch: Sequence[LeasedJob]) -> list[RenewAnswer]:
        """Renew leases on the loop's own connection: for starts whose answers came so late that
        their leases may have run out before a handler has begun."""
        ...

    def lease_renewer(self) -> LeaseRenewer:
        """A new keeper of this worker's leases."""
        ...

    def cancels(self) -> AsyncIterator[CancelRequest]:
        """Wishes to cancel, as they come, until closed. One may be missed while the connection is
        down: `Keeper.keep` tells it again."""
        ...

    def maintenance(self) -> Sequence[MaintenanceTask]:
        """The housekeeping of this queue; also for processes that never `enter`."""
        ...

    async def deregister(self) -> None:
        """Give back what was fetched and not taken, and be seen no more. After the last settle."""
        ...
