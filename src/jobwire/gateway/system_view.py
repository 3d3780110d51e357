"""What a system shows an operator: rows, failures, found jobs, workers, the last hour.

A system answers by a `SystemView` in its feature; `overview` and `fleet` join the answers of all
systems. A dashboard keeps no memory of its own: everything is read from the system's backend.
"""

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple, Protocol

from msgspec import Meta, Struct

from jobwire.gateway.fleet_schemas import (
    MINUTES,
    MinuteCounts,
    NowBody,
    QuantilesBody,
    SystemStats,
    WorkerBody,
)
from jobwire.gateway.request import HttpRequest
from jobwire.job import time_buckets

SHARES: Final = (0.5, 0.9, 0.99)
QUIET_HOUR: Final[Sequence[MinuteCounts]] = (MinuteCounts(),) * MINUTES
"""The minutes of a system that has counted nothing."""


class SystemRowBody(Struct, frozen=True, kw_only=True):
    """A system, or one queue of a system, now and in the last hour."""

    system: Annotated[str, Meta(description="`jobs`, `queues`, `images` or `predictions`")]
    name: Annotated[str, Meta(description="of the queue; of the system, if it has one row")]
    wire: Annotated[str, Meta(description="the protocol, for example `streams`")]
    waiting: int
    paused: Annotated[
        bool,
        Meta(description="no worker starts what waits: its queue, or each queue of it, is paused"),
    ] = False
    delayed: Annotated[
        int,
        Meta(description="not due yet: delayed, or waiting for a retry; images: not uploaded yet"),
    ]
    running: int
    oldest_waiting_ms: int | None
    workers: Annotated[int | None, Meta(description="live workers; null: unknown, or none needed")]
    slots: Annotated[int | None, Meta(description="of all workers that report them; null: unknown")]
    heartbeat_age_ms: Annotated[
        int | None, Meta(description="of the worker with the latest heartbeat")
    ]
    submitted: Annotated[int | None, Meta(description="in the last hour; null: not counted")]
    done: int
    error: int
    canceled: int
    ended_by_minute: Annotated[list[int], Meta(description="oldest first; the last is incomplete")]
    failed_by_minute: list[int]
    duration_ms: QuantilesBody


class FailureBody(Struct, frozen=True, kw_only=True):
    """Failed jobs of one kind: the same task, error code and first line of the message, in which
    `…` stands for ids and long numbers."""

    system: str
    name: str
    wire: str
    task: str
    code: str
    message: str
    count: int
    first_ts: int
    last_ts: int
    by_hour: Annotated[list[int], Meta(description="oldest first; the last hour is incomplete")]
    sample_job_id: Annotated[str, Meta(description="the last job of this kind")]
    worker: Annotated[str | None, Meta(description="where all of them ran; null: several, or none")]


class FoundBody(Struct, frozen=True, kw_only=True):
    """Something that a search has found."""

    system: str
    name: str
    wire: str
    id: str
    task: str
    status: str
    created_ts: int


class RowPart(NamedTuple):
    """The rows of one system, and how many further ones it has."""

    rows: Sequence[SystemRowBody]
    left_out: int = 0


class FailurePart(NamedTuple):
    """The kinds of one system: those of the `scanned` newest of `total` failed jobs."""

    kinds: Sequence[FailureBody]
    scanned: int
    total: int


class SearchPart(NamedTuple):
    """What one system has found, and how far it has looked."""

    found: Sequence[FoundBody]
    scanned: int
    total: int


class SystemView(Protocol):
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

    async def workers(self, request: HttpRequest) -> Sequence[WorkerBody]: ...

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
    view: SystemView,
    name: str,
    now: NowBody,
    minutes: Sequence[MinuteCounts] | HourTotals = QUIET_HOUR,
    *,
    workers: int | None = None,
    slots: int | None = None,
    heartbeat_age_ms: int | None = None,
    paused: bool = False,
) -> SystemRowBody:
    """The row of a system or a queue, from its counts."""
    if minutes is QUIET_HOUR:
        minutes = _QUIET
    hour = minutes if isinstance(minutes, HourTotals) else HourTotals(minutes)
    return SystemRowBody(
        system=view.system,
        name=name,
        wire=view.wire,
        waiting=now.waiting,
        paused=paused,
        delayed=now.delayed,
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
        duration_ms=QuantilesBody(*time_buckets.quantiles_ms(hour.duration, SHARES)),
    )
