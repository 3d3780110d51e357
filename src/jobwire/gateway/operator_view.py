"""What a system shows an operator: rows, failures, found jobs, workers, the last hour.

A system answers by a `OperatorView` in its feature; `overview` and `fleet` join the answers of all
systems. A dashboard keeps no memory of its own: everything is read from the system's backend.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from jobwire.api.fleet import Now, Quantiles, WorkerInfo
from jobwire.api.job_queues import JobQueueInfo
from jobwire.api.overview import FailureInfo, FoundJob, SystemRow
from jobwire.gateway.minute_counts import MINUTES, MinuteCounts, SystemStats
from jobwire.gateway.request import HttpRequest
from jobwire.job import time_buckets

SHARES: Final = (0.5, 0.9, 0.99)
QUIET_HOUR: Final[Sequence[MinuteCounts]] = (MinuteCounts(),) * MINUTES
"""The minutes of a system that has counted nothing."""


class RowPart(NamedTuple):
    """The rows of one system, and how many further ones it has."""

    rows: Sequence[SystemRow]
    left_out: int = 0


class FailurePart(NamedTuple):
    """The kinds of one system: those of the `scanned` newest of `total` failed jobs."""

    kinds: Sequence[FailureInfo]
    scanned: int
    total: int


class SearchPart(NamedTuple):
    """What one system has found, and how far it has looked."""

    found: Sequence[FoundJob]
    scanned: int
    total: int


class PartialAnswer(Exception):
    """Raised by a view that could read only a part: the part is shown, and `detail` is named in
    `unavailable`."""

    def __init__(self, part: object, detail: str) -> None:
        super().__init__(detail)
        self.part = part
        self.detail = detail


class OperatorView(Protocol):
    """A system's answers. Each raises BackendUnavailable if its backend does not answer, and shows
    the caller of `request` only what its tenant and scopes allow."""

    @property
    def system(self) -> str: ...

    @property
    def wire(self) -> str: ...

    async def rows(self, request: HttpRequest) -> RowPart: ...

    async def failures(
        self, request: HttpRequest, hours: int, tenant: str | None
    ) -> FailurePart: ...

    async def search(self, request: HttpRequest, text: str) -> SearchPart: ...

    async def workers(self, request: HttpRequest) -> Sequence[WorkerInfo]: ...

    async def stats(self, request: HttpRequest) -> Sequence[SystemStats]: ...


class HourTotals:
    """The sums over some minutes, for a row."""

    __slots__ = ("canceled", "done", "duration", "ended", "failed", "submitted")

    def __init__(self, minutes: Sequence[MinuteCounts]) -> None:
        submitted = [each.submitted for each in minutes if each.submitted is not None]
        self.submitted = sum(submitted) if submitted else None
        self.done = sum([each.done for each in minutes])
        self.canceled = sum([each.canceled for each in minutes])
        self.failed = [each.error for each in minutes]
        self.ended = [each.done + each.error + each.canceled for each in minutes]
        self.duration = time_buckets.merged(each.duration for each in minutes)

    def __add__(self, later: "HourTotals") -> "HourTotals":
        """These minutes and later ones."""
        total = HourTotals(())
        submitted = [each for each in (self.submitted, later.submitted) if each is not None]
        total.submitted = sum(submitted) if submitted else None
        total.done = self.done + later.done
        total.canceled = self.canceled + later.canceled
        total.failed = self.failed + later.failed
        total.ended = self.ended + later.ended
        total.duration = time_buckets.merged((self.duration, later.duration))
        return total


_QUIET: Final = HourTotals(QUIET_HOUR)


def row_body(
    view: OperatorView,
    name: str,
    now: Now,
    minutes: Sequence[MinuteCounts] | HourTotals = QUIET_HOUR,
    *,
    workers: int | None = None,
    slots: int | None = None,
    heartbeat_age_ms: int | None = None,
    paused: bool = False,
    queues: Sequence[JobQueueInfo] = (),
) -> SystemRow:
    """The row of a system or a queue, from its counts."""
    if minutes is QUIET_HOUR:
        minutes = _QUIET
    hour = minutes if isinstance(minutes, HourTotals) else HourTotals(minutes)
    return SystemRow(
        system=view.system,
        name=name,
        wire=view.wire,
        waiting=now.waiting,
        paused=paused,
        delayed=now.delayed,
        suspended=now.suspended,
        running=now.running,
        oldest_waiting_ms=now.oldest_waiting_ms,
        workers=workers,
        slots=slots,
        heartbeat_age_ms=heartbeat_age_ms,
        submitted=hour.submitted,
        done=hour.done,
        error=sum(hour.failed),
        canceled=hour.canceled,
        ended_by_minute=hour.ended,
        failed_by_minute=hour.failed,
        duration_ms=Quantiles(*time_buckets.quantiles_ms(hour.duration, SHARES)),
        queues=list(queues),
    )
