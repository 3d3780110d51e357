"""Settings of the Streams wire, the section `jobs`; all faults are reported at once.

Passed to the queue and the engine.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, Literal

from jobwire.job.errors import RefusedError
from jobwire.systems.jobs import contract
from jobwire.systems.jobs.shard_settings import ShardList

Level = Literal["memory", "disk"]
"""Of `durability`."""
MEMORY: Final = "memory"
DISK: Final = "disk"
BY_TENANT: Final = "tenant"
BY_QUEUE: Final = "queue"
"""Values of `shard_by`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsSettings:
    key_prefix: str = ""
    """Prefix of every key; with a hash tag, all keys are in one slot of a cluster."""
    shards: ShardList = field(default_factory=ShardList)
    """The shards over which jobs are spread: how many `valkey.url` has, at most 64, or a mapping
    of their numbers to URLs; 0: none, the documents' own names (docs/growth.md)."""
    shard_by: Literal["tenant", "queue", "job"] = BY_TENANT
    """One tenant with one queue needs `job`: `tenant` keeps all jobs of a tenant in one shard,
    `queue` all jobs of a queue; with `job` they are spread, and order and limits hold per shard."""
    queue_shards: tuple[str, ...] = ()
    """With `shard_by: queue`: the shards of some queues, as `mail=0,video=3`; the others are
    spread."""
    closed_shards: tuple[int, ...] = ()
    """Shards that get no new jobs, before they are removed."""
    shard: int = field(default=0, metadata={"setting": False})
    """The number of this shard, which ids of new jobs begin with."""
    shard_prefixed: bool = field(default=False, metadata={"setting": False})
    """`key_prefix` is that of this shard."""
    # The source's own name for it.
    job_ttl_s: int = field(default=contract.DEFAULT_TTL_S, metadata={"env": "JOB_TTL_S"})
    """Time to live of a job's keys after their last change; a job may set its own."""
    durability: Level = "memory"
    """What an accepted job survives: `memory`, or `disk`, which needs a server with `appendfsync
    always`. While the server is not so, jobs are refused."""
    keep_done: timedelta = timedelta(0)
    """How long a job that a worker ended as done or canceled is kept; 0: for its `ttl_s`. Its
    idempotency key is kept for the whole `ttl_s`."""
    keep_failed: timedelta = timedelta(0)
    """The same for a job that failed."""
    keep_done_of: Mapping[str, timedelta] = field(
        default_factory=dict[str, timedelta], metadata={"setting": False}
    )
    """`keep_done` of tasks whose handlers declare their own."""
    max_queue: int = contract.MAX_QUEUE
    """Maximum number of waiting jobs; further jobs are refused."""
    tenant_max_open: int = 0
    """Maximum number of unfinished jobs of one tenant; 0 means half of `max_queue` if there are
    API keys of several tenants, else no limit."""
    tenant_max_retained: int = 0
    """Maximum number of stored jobs of one tenant; 0 means 1,000,000 if there are API keys of
    several tenants, else no limit."""
    tenant_max_bytes: int = 0
    """Maximum number of bytes of one tenant's stored jobs; 0 means a quarter of the server's
    `maxmemory` if there are API keys of several tenants, else no limit."""
    max_events: int = contract.MAX_EVENTS
    """Maximum number of events per job; the last 100 are reserved for changes of state."""
    max_step_bytes: int = contract.MAX_STEP_BYTES
    """Maximum number of bytes of the result of one step."""
    max_record_bytes: int = contract.MAX_RECORD_BYTES
    """Maximum number of bytes of all recorded results of a job."""
    max_records: int = contract.MAX_RECORDS
    """Maximum number of recorded steps of a job."""
    max_suspended: int = contract.MAX_SUSPENDED
    """Maximum number of suspended jobs; beyond it a job that suspends looks again every minute, and
    counts as a waiting one."""
    tasks: tuple[str, ...] = ()
    """Tasks that are accepted before a worker registers them, in addition to the six of the
    contract."""
    lease_s: float = field(default=30.0, metadata={"setting": False})  # set by `worker.lease`
    """Time without a renewal after which other workers reclaim a job."""
    foreign_idle_s: float = 900.0
    """Time without activity after which the job of a foreign worker is requeued."""
    max_deliveries: int = 5
    """How many deliveries of a job may end in a worker crash before the job fails."""
    unknown_task_grace_s: float = 60.0
    """With `end_unknown_tasks`: how long a job waits for a worker that has its task."""
    end_unknown_tasks: bool = False
    """Fail a job that has waited for `unknown_task_grace_s` while no live worker has its task;
    without it, the job waits for such a worker."""
    check_payloads: bool = True
    """Refuse a payload at submission if every schema that workers have registered for its task
    refuses it."""
    heartbeat_s: float = 10.0
    """Interval of a worker's heartbeats."""
    store_tracebacks: bool = True
    """Store type, message and traceback of a handler's exception in the job's hash. The gateway
    shows them to keys with the scope `admin`, and on loopback without keys."""

    def bounded(self) -> "StreamsSettings":
        """The same with the default limits for several tenants (J-57)."""
        return replace(
            self,
            tenant_max_open=self.tenant_max_open or max(1, self.max_queue // 2),
            tenant_max_retained=self.tenant_max_retained or contract.TENANT_MAX_RETAINED,
        )

    def __post_init__(self) -> None:
        if faults := [f"{name} {problem}" for name, problem in self.check()]:
            raise RefusedError("; ".join(faults), code="bad_settings", status=500)

    def check(self) -> Iterator[tuple[str, str]]:
        """Yield each fault: field and problem."""
        limits: dict[str, tuple[float, float]] = {
            "job_ttl_s": (1, contract.MAX_TTL_S),
            "max_queue": (1, 10**9),
            "tenant_max_open": (0, 10**9),
            "tenant_max_retained": (0, 10**9),
            "tenant_max_bytes": (0, 10**15),
            "max_events": (10, 10**6),
            "max_step_bytes": (1, 2**24),
            "max_record_bytes": (1, 2**28),
            "max_records": (1, 10**5),
            "max_suspended": (0, 10**9),
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
        for name in ("keep_done", "keep_failed"):
            kept: timedelta = getattr(self, name)
            if kept and not 1 <= kept.total_seconds() <= contract.MAX_TTL_S:
                yield name, f"must be 0, or lie between 1 s and {contract.MAX_TTL_S} s"
        yield from self._shard_faults()
        if not self.key_prefix.isprintable() or len(self.key_prefix) > 200:
            yield "key_prefix", "must be printable, at most 200 characters"

    def _shard_faults(self) -> Iterator[tuple[str, str]]:
        for fault in self.shards.faults("" if self.shard_prefixed else self.key_prefix):
            yield "shards", fault
        numbers = self.shards.numbers
        if unknown := [each for each in self.closed_shards if each not in numbers]:
            yield "closed_shards", f"there is no shard {unknown[0]}"
        elif numbers and 0 in self.closed_shards:
            yield "closed_shards", "shard 0 cannot be closed: cron entries and workers are there"
        try:
            chosen = self.shards_of_queues
        except ValueError:
            yield "queue_shards", "must be pairs of a queue and a number, as mail=0"
        else:
            if unknown := [each for each in chosen.values() if each not in numbers]:
                yield "queue_shards", f"there is no shard {unknown[0]}"

    @property
    def write_probe(self) -> str:
        """The key with which writes are tried: one of the guards, so that rights to the keys of
        the wire are enough."""
        return contract.StreamsKeys(self.key_prefix).guard("writable")

    @property
    def shards_of_queues(self) -> Mapping[str, int]:
        """`queue_shards`, read; ValueError if it is invalid."""
        pairs = (text.partition("=") for text in self.queue_shards)
        return {queue.strip(): int(number) for queue, _, number in pairs}

    def of_shard(self, number: int) -> "StreamsSettings":
        """The settings of one shard."""
        prefix = self.shards.prefix(number, self.key_prefix)
        return replace(self, key_prefix=prefix, shard=number, shard_prefixed=True)
