"""Settings of the BullMQ wire, and the section `queues` that they are made from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from jobwire.systems.queues import contract
from jobwire.systems.queues.contract import KeepRule

RENEWALS_PER_LOCK: Final = 4
MAX_METRICS_MINUTES: Final = 60 * 24 * 14
MAX_RESULT_MB: Final = 500
"""A string of the server may have 512 MiB."""
MAX_LOG: Final = 10_000_000


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
    max_started: int = 0
    """How often a job may be started before it fails; 0 means any number."""
    keep_completed: KeepRule | None = None
    """Which completed jobs stay, of those without a rule of their own."""
    keep_failed: KeepRule | None = None
    any_progress: bool = False
    """Whether progress may be any number, as in Node; otherwise 0 to 100."""
    max_result_bytes: int = 64 << 20
    max_log_chars: int = 65_536
    """Characters of a line of a job's log."""
    max_log_lines: int = 100_000
    """Lines of a job's log, of jobs without `keepLogs`."""

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
    """Whether `getWorkers` of Node and Python finds the worker: two sockets per queue, for its
    first 100 queues."""
    extras: bool = True
    """Whether the published contract's additional fields and events are written."""
    worker_name: str = ""
    """The worker's name, as `getWorkers` of Node and the field `pb` of its jobs have it."""
    max_started: int = 0
    """How often a job may be started before it fails, crashed workers included; 0: any number."""
    limit_max: int = 0
    """How many jobs of a queue its workers start within `limit_per`; 0: any number."""
    limit_per: timedelta = timedelta(seconds=1)
    """The period of `limit_max`."""
    keep_completed: int = -1
    """How many completed jobs stay, of those without `removeOnComplete`; -1: all, 0: none."""
    keep_completed_for: timedelta = timedelta(0)
    """For how long those stay; 0: any time."""
    keep_failed: int = -1
    """How many failed jobs stay, of those without `removeOnFail`; -1: all, 0: none."""
    keep_failed_for: timedelta = timedelta(0)
    """For how long those stay; 0: any time."""
    any_progress: bool = False
    """Whether a handler's progress may be any number, as in Node; otherwise 0 to 100."""
    max_result_mb: int = 64
    """The largest result of a job, in MiB of JSON."""
    max_log_chars: int = 65_536
    """Characters of a line of a job's log; longer ones are cut."""
    max_log_lines: int = 100_000
    """Lines of a job's log, of jobs without `keepLogs`; the newest stay."""
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
        for name in ("max_started", "limit_max"):
            if getattr(self, name) < 0:
                yield name, "must not be negative"
        for name in ("keep_completed", "keep_failed"):
            if getattr(self, name) < -1:
                yield name, "must be -1 or more"
        for name in ("keep_completed_for", "keep_failed_for"):
            if getattr(self, name) < timedelta(0):
                yield name, "must not be negative"
        if self.limit_per < timedelta(milliseconds=1):
            yield "limit_per", "must be at least 1 ms"
        if not 1 <= self.max_result_mb <= MAX_RESULT_MB:
            yield "max_result_mb", f"must be 1 to {MAX_RESULT_MB}"
        for name in ("max_log_chars", "max_log_lines"):
            if not 1 <= getattr(self, name) <= MAX_LOG:
                yield name, f"must be 1 to {MAX_LOG:,}"
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
            limit_max=self.limit_max,
            limit_ms=round(self.limit_per.total_seconds() * 1000),
            max_started=self.max_started,
            keep_completed=_keep(self.keep_completed, self.keep_completed_for),
            keep_failed=_keep(self.keep_failed, self.keep_failed_for),
            any_progress=self.any_progress,
            max_result_bytes=self.max_result_mb << 20,
            max_log_chars=self.max_log_chars,
            max_log_lines=self.max_log_lines,
        )


def _keep(most: int, age: timedelta) -> KeepRule | None:
    if most < 0 and not age:
        return None
    return KeepRule(most, round(age.total_seconds()) if age else -1)
