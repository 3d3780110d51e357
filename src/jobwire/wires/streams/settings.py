"""Settings of the Streams wire, the section `jobs`; all faults are reported at once.

Passed to the queue and the engine.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from jobwire.job.errors import RefusedError
from jobwire.wires.streams import contract


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsSettings:
    key_prefix: str = ""
    """Goes in front of every key; a hash tag in it keeps the wire in one slot of a cluster."""
    # The source's own name for it.
    job_ttl_s: int = field(default=contract.DEFAULT_TTL_S, metadata={"env": "JOB_TTL_S"})
    """How long a job's keys live after their last change, where the order does not say."""
    max_queue: int = contract.MAX_QUEUE
    """More waiting jobs than this are refused."""
    tenant_max_open: int = 0
    """More unfinished jobs of one tenant are refused; 0 means half of `max_queue` if there are API
    keys of several tenants, else any number."""
    tenant_max_retained: int = 0
    """The same for all jobs of a tenant that are still known; 0 means 1,000,000 if there are API
    keys of several tenants, else any number."""
    max_events: int = contract.MAX_EVENTS
    """Events kept of one job; reports stop 100 before it."""
    tasks: tuple[str, ...] = ()
    """Tasks that may be asked for though no worker has them yet, beside the contract's own."""
    lease_s: float = field(default=30.0, metadata={"setting": False})  # it is `worker.lease`
    """How long a worker may be silent before its jobs are taken over."""
    foreign_idle_s: float = 900.0
    """The same for workers that are not ours, of whom nobody asks to renew a lease."""
    max_deliveries: int = 5
    """How many workers may die over a job before it is ended."""
    unknown_task_grace_s: float = 60.0
    """How long a job whose task no worker has is kept for one that may come."""
    heartbeat_s: float = 10.0
    """How often a worker says that it lives."""
    store_tracebacks: bool = False
    """Whether a failed job's hash also holds the traceback, for everybody who may read it."""

    def bounded(self) -> "StreamsSettings":
        """The same with the bounds for several tenants, where nothing else was chosen (J-57)."""
        return replace(
            self,
            tenant_max_open=self.tenant_max_open or max(1, self.max_queue // 2),
            tenant_max_retained=self.tenant_max_retained or contract.TENANT_MAX_RETAINED,
        )

    def __post_init__(self) -> None:
        if faults := [f"{name} {problem}" for name, problem in self.check()]:
            raise RefusedError("; ".join(faults), code="bad_settings", status=500)

    def check(self) -> Iterator[tuple[str, str]]:
        """Yield each fault: the field, and what is wrong with it."""
        limits: dict[str, tuple[float, float]] = {
            "job_ttl_s": (1, contract.MAX_TTL_S),
            "max_queue": (1, 10**9),
            "tenant_max_open": (0, 10**9),
            "tenant_max_retained": (0, 10**9),
            "max_events": (10, 10**6),
            "lease_s": (0.1, 86_400),
            "foreign_idle_s": (0.1, contract.MAX_TTL_S),
            "max_deliveries": (1, 10**6),
            "unknown_task_grace_s": (0, contract.MAX_TTL_S),
            "heartbeat_s": (0.05, 3_600),
        }
        for name, (low, high) in limits.items():
            value: float = getattr(self, name)
            if not low <= value <= high:
                yield name, f"must lie between {low} and {high}, is {value}"
        if not self.key_prefix.isprintable() or len(self.key_prefix) > 200:
            yield "key_prefix", "must be printable, at most 200 characters"
