"""The section `worker` of the settings."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker runs its jobs."""

    slots: int = 10
    """How many jobs a worker holds at a time."""
    lease: timedelta = timedelta(seconds=30)
    """How long a job stays with a worker that no longer renews its lease."""
    drain: timedelta = timedelta(seconds=25)
    """How long running jobs may continue after SIGTERM (under `up`: `up.drain`)."""
    queues: tuple[str, ...] = ()
    """Read only these queues of the App, on any wire; empty: all of them."""
    exclude_queues: tuple[str, ...] = ()
    """Do not read these queues of the App."""
    shards: tuple[int, ...] = ()
    """Read only these shards of `jobs.shards`; empty: all of them."""
    default_queue: bool = False
    """Read the queue `default` even without a task that is enqueued there: for foreign gateways,
    which know only that queue."""
    max_block: timedelta = timedelta(0)
    """How long a handler may block the event loop before the process ends; 0 means ten leases."""
    max_timeout: timedelta = timedelta(hours=1)
    """The longest `timeout_s` that a job may request, if its handler's own is shorter."""
    max_attempts: int = 25
    """The most `max_attempts` that a job may request, if its handler has fewer."""
    metrics_port: int = 0
    """Port of the worker's own /metrics, /livez and /readyz; 0 means none."""
    metrics_host: str = "127.0.0.1"
    """Address of that port, which needs no key."""

    @property
    def max_block_s(self) -> float:
        """`max_block` in seconds, with its default applied."""
        return (self.max_block or 10 * self.lease).total_seconds()

    def check(self) -> Iterator[tuple[str, str]]:
        """Yield each fault: the field and what is wrong with it."""
        if not 1 <= self.slots <= 100_000:
            yield "slots", f"must lie between 1 and 100000, is {self.slots}"
        if self.lease < timedelta(seconds=1):
            yield "lease", "must be at least 1s"
        if timedelta(0) < self.max_block < self.lease:
            yield "max_block", "must be at least the lease, or 0 for ten leases"
        if self.max_attempts < 1:
            yield "max_attempts", "must be at least 1"
        if not 0 <= self.metrics_port <= 65535:
            yield "metrics_port", f"{self.metrics_port} is not a port; it must be 0-65535"
