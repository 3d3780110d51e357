"""Settings of the BullMQ wire, and the section `queues` that they are made from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from jobwire.systems.queues import contract

RENEWALS_PER_LOCK: Final = 4
MAX_METRICS_MINUTES: Final = 60 * 24 * 14


@dataclass(frozen=True, slots=True, kw_only=True)
class BullSettings:
    prefix: str = contract.DEFAULT_PREFIX
    """The first part of every key; a Node team's `prefix` option."""
    extras: bool = True
    """Whether the published contract's additional fields and events are written."""
    lock_ms: int = contract.LOCK_MS
    """Time without a renewal after which a job is stalled."""
    stalled_interval_ms: int = contract.STALLED_INTERVAL_MS
    max_stalled: int = contract.MAX_STALLED
    """How often a job may stall before it fails."""
    limit_max: int = 0
    """How many jobs may start in `limit_ms`; 0 means any number."""
    limit_ms: int = 0
    announce: bool = True
    """Whether `getWorkers` of Node and Python finds this worker: two named sockets per queue."""
    metrics_points: int = 0
    """How many minutes of counts are kept; 0 turns the counts off."""

    @property
    def renew_every_ms(self) -> int:
        """B-3: the gap between renewals stays below half of the lock time."""
        return self.lock_ms // RENEWALS_PER_LOCK


@dataclass(frozen=True, slots=True)
class QueuesSettings:
    """Queues of the BullMQ wire that a worker serves, beside those that its handlers name."""

    url: str = field(default="", repr=False)
    """The server of the queues, if it is not that of `valkey`: redis://user:password@host:6379/0."""
    names: tuple[str, ...] = ()
    """Queues that the App's handlers without a queue of their own serve."""
    tenants: tuple[str, ...] = ()
    """Tenant of each queue, as `video-generation=acme,mail=beta`. Other queues are for keys with
    the scope `admin` only."""
    prefix: str = contract.DEFAULT_PREFIX
    """The first part of every key; a Node team's `prefix` option."""
    lock: timedelta = timedelta(milliseconds=contract.LOCK_MS)
    """Time without a renewal after which a job is stalled."""
    stalled_interval: timedelta = timedelta(milliseconds=contract.STALLED_INTERVAL_MS)
    """Interval of the stalled check, shared by all programs of a queue."""
    max_stalled: int = contract.MAX_STALLED
    """How often a job may stall before it fails."""
    announce: bool = True
    """Whether `getWorkers` of Node and Python finds the worker: two sockets per queue."""
    extras: bool = True
    """Whether the published contract's additional fields and events are written."""
    metrics_minutes: int = 0
    """For how many minutes ended jobs are counted on the wire, as `getMetrics` of Node reads them;
    0: not at all."""

    def check(self) -> Iterator[tuple[str, str]]:
        """Yield each fault: field and problem."""
        if not self.prefix:
            yield "prefix", "must not be empty"
        for each in self.tenants:
            queue, _, tenant = each.rpartition("=")
            if not queue or not tenant:
                yield "tenants", f"{each!r} must be like queue=tenant"
        if self.lock < timedelta(seconds=1):
            yield "lock", f"is {self.lock.total_seconds():g} s, must be at least 1 s"
        if self.stalled_interval < timedelta(seconds=1):
            interval_s = self.stalled_interval.total_seconds()
            yield "stalled_interval", f"is {interval_s:g} s, must be at least 1 s"
        if self.max_stalled < 0:
            yield "max_stalled", "must not be negative"
        if not 0 <= self.metrics_minutes <= MAX_METRICS_MINUTES:
            yield "metrics_minutes", f"must be 0 to {MAX_METRICS_MINUTES}"

    @property
    def tenant_of(self) -> Mapping[str, str]:
        """Queue → tenant."""
        pairs = (each.rpartition("=") for each in self.tenants)
        return {queue: tenant for queue, _, tenant in pairs}

    def bull(self) -> BullSettings:
        """The settings of the wire."""
        return BullSettings(
            prefix=self.prefix,
            extras=self.extras,
            lock_ms=round(self.lock.total_seconds() * 1000),
            stalled_interval_ms=round(self.stalled_interval.total_seconds() * 1000),
            max_stalled=self.max_stalled,
            announce=self.announce,
            metrics_points=self.metrics_minutes,
        )
