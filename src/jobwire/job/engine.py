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
    SubmitAnswer,
    TaskDefinition,
    Token,
)


class Queue(Protocol):
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

    def enroll(self, name: str, entry: str) -> Awaitable[CronState]:
        """The fleet's position in a cron entry. A new or changed entry starts now."""
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


class MaintenanceTask(NamedTuple):
    """Periodic work that any process may do for the whole fleet."""

    name: str
    period_s: float
    run: Callable[[], Awaitable[MaintenanceResult | None]]
    """None: another process has done it in this period."""


class LeaseRenewer(Protocol):
    """Renews leases. Synchronous, with its own socket: it runs in a thread, where a handler that
    blocks the event loop cannot stop it. Made on the loop, used in that thread only.
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

    def heartbeat(self) -> None:
        """Renew the worker's registration if the event loop is late with it, so that a worker whose
        loop is blocked stays registered. BackendUnavailable as with `renew`."""
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
    """One worker's end of one queue."""

    name: str
    """The queue's name, for logs and for `JobInfo.source`."""

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

    async def wait(self, timeout_s: float, capacity: int = 1, /) -> bool:
        """Wait until there may be work; False after the timeout. One caller at a time, on its own
        socket. It may start up to `capacity` jobs as they arrive, which the next `take` returns:
        the caller reserves as many slots."""
        ...

    async def wake(self) -> None:
        """Make a `wait` in progress return now. Used by the drain."""
        ...

    def take(self, limit: int) -> Awaitable[list[LeasedJob]]:
        """Start up to `limit` (≥ 1) jobs, without waiting for any. The returned jobs are started
        and leased from that moment: renew or settle them."""
        ...

    def report(self, batch: Sequence[tuple[LeasedJob, Report]]) -> Awaitable[list[ReportAnswer]]:
        """Publish events; reports of one job keep their order."""
        ...

    def settle(self, batch: Sequence[tuple[LeasedJob, Outcome]], want: int) -> Awaitable[Settled]:
        """End, retry or release each job, and start up to `want` (≥ 0) next ones in the same call.
        An outcome that cannot be written (`REFUSED`) does not affect the others of the batch."""
        ...

    async def recover_orphans(self, known: Set[Token], idle_s: float = 0.0) -> list[LeasedJob]:
        """Jobs leased to this worker whose token is not in `known`: their start was answered into a
        broken connection. To be called after a BackendUnavailable of `wait`, `take` or `settle`,
        once the server answers again. Calls in flight are left alone. With `idle_s`, only jobs that
        were not renewed for so long: a safety net for jobs lost elsewhere."""
        ...

    async def renew(self, batch: Sequence[LeasedJob]) -> list[RenewAnswer]:
        """Renew leases on the loop's own connection: for starts whose answers came so late that
        their leases may have run out before a handler has begun."""
        ...

    def lease_renewer(self) -> LeaseRenewer:
        """A new renewer of this worker's leases."""
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
