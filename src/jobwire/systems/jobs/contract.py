"""The Redis Streams wire as data: keys, fields, states, codes, lifetimes (J-1 … J-8).

Everything in this package builds on it; `jobwire schema` is made from it. It imports only the
standard library and the domain model, and is the only Python file that spells the wire's names (a
test checks this).

What the published contract defines is marked *source*; the rest are our declared extras, which
readers of the published contract ignore.
"""

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from jobwire.job.messages import (
    CHILD_FIELD,
    DUE_FIELD,
    ENDED_CHILD_FIELD,
    ERROR_FIELD,
    GATHER_FIELD,
    RESTARTS_FIELD,
    RESULT_FIELD,
    SIGNAL_DUE_FIELD,
    SIGNAL_FIELD,
    STARTED_FIELD,
)

# ── J-1 keys ─────────────────────────────────────────────────────────────────────────────────────

GROUP: Final = "workers"
"""*Source.* The consumer group on the queue; created from id 0 by the first worker."""

CONSUMER_PREFIX: Final = "jobwire-"
"""How consumer names of our workers begin; others belong to foreign workers (J-34)."""

DEFAULT_QUEUE: Final = "default"
"""J-53: the name of the queue `jobs:stream`."""

QUEUE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""J-53: the name of a queue."""

QUEUE_SEPARATOR: Final = "@"
"""In replies of our scripts, between an entry and its queue, unless that is the default one."""

QUEUES_CHANGED: Final = "queues"
"""On the control channel: the set of paused queues has changed."""

EVENTS_SUFFIX: Final = ":events"
"""*Source.* The key of a job's events is that of the job and this."""

STUB_SUFFIX: Final = ":stub"
"""The key of what is left of a job (L-8) is that of the job and this."""

STEPS_SUFFIX: Final = ":steps"
"""The key of a job's record is that of the job and this."""

AWAITS_SUFFIX: Final = ":awaits"
"""The key of what a suspended job lacks is that of the job and this."""


@dataclass(frozen=True, slots=True)
class StreamsKeys:
    """Every key, below one prefix. With a hash tag in the prefix all of them share a slot."""

    prefix: str = ""

    # source

    @property
    def queue(self) -> str:
        """STREAM: the default queue."""
        return f"{self.prefix}jobs:stream"

    def job(self, job_id: str) -> str:
        return f"{self.prefix}job:{job_id}"

    def events(self, job_id: str) -> str:
        return f"{self.prefix}job:{job_id}{EVENTS_SUFFIX}"

    def stub(self, job_id: str) -> str:
        """HASH: what is left of a job that was kept for less than its idempotency key (L-8)."""
        return f"{self.prefix}job:{job_id}{STUB_SUFFIX}"

    def idempotency(self, name: str) -> str:
        """STRING: the id of the job that was created with this key. `name` is what
        `idempotency_name` or `cron_run_name` returns; only those of the default tenant belong to
        the source."""
        return f"{self.prefix}{name}"

    # ours

    def named_queue(self, name: str) -> str:
        """STREAM: the queue of this name, with the same group and entries (J-53)."""
        return self.queue if name == DEFAULT_QUEUE else f"{self.queue}:{name}"

    def steps(self, job_id: str) -> str:
        """HASH: the record of a job (`RecordField`)."""
        return f"{self.prefix}job:{job_id}{STEPS_SUFFIX}"

    def awaits(self, job_id: str) -> str:
        """SET: the fields of its record that a suspended job lacks (D-8)."""
        return f"{self.prefix}job:{job_id}{AWAITS_SUFFIX}"

    @property
    def queues(self) -> str:
        """SET: the names of all queues but the default one."""
        return f"{self.prefix}jobs:queues"

    @property
    def paused(self) -> str:
        """SET: the names of the queues of which workers start no jobs."""
        return f"{self.prefix}jobs:paused"

    @property
    def delayed(self) -> str:
        """ZSET of waiting jobs that are not due yet, by due time in ms."""
        return f"{self.prefix}jobs:delayed"

    @property
    def suspended(self) -> str:
        """ZSET of unfinished jobs that are in no stream and do not count as backlog: suspended
        ones by due time in ms (D-8), and those that wait for a limit (`+inf`)."""
        return f"{self.prefix}jobs:suspended"

    @property
    def open(self) -> str:
        """ZSET of unfinished jobs, by the time in ms of their next renewal (J-7)."""
        return f"{self.prefix}jobs:open"

    def tenant_open(self, tenant: str) -> str:
        """ZSET of a tenant's jobs that were open when last counted, by that time in ms (J-57).
        Written only while tenants are bounded."""
        return f"{self.prefix}jobs:open:{tenant}"

    def tenant_bytes(self, tenant: str) -> str:
        """HASH: the bytes of a tenant's jobs by the time when they expire, and `total` (J-57).
        Written only while tenants are bounded."""
        return f"{self.prefix}jobs:bytes:{tenant or 'default'}"

    @property
    def tenants(self) -> str:
        """ZSET of tenants that have an index of their own, by their last submission in ms."""
        return f"{self.prefix}jobs:tenants"

    @property
    def clock(self) -> str:
        """STRING: the server's time in ms when a process last read it, to detect a clock that was
        set back."""
        return f"{self.prefix}jobs:clock"

    def index(self, tenant: str = "") -> str:
        """ZSET of a tenant's jobs, by creation in ms; for lists."""
        return f"{self.prefix}jobs:index:{tenant}" if tenant else f"{self.prefix}jobs:index"

    def worker(self, consumer: str) -> str:
        """HASH: a live worker's registration. Expires soon after the worker is gone."""
        return f"{self.prefix}jobs:worker:{consumer}"

    @property
    def tasks(self) -> str:
        """HASH: task → what its last worker registered: `seen_ts`, `started_ts`, `schema`,
        `example`, `queue` and `on_failure` as a JSON object. Remembered for `TASK_MEMORY_S`
        (J-10, J-37)."""
        return f"{self.prefix}jobs:tasks"

    def guard(self, task: str) -> str:
        """STRING: a maintenance task was run in this period."""
        return f"{self.prefix}jobs:guard:{task}"

    def cron(self, name: str) -> str:
        """HASH: schedule → the last due time that has run and the last enrollment, both in ms
        (J-52). It has more than one field while workers with an older schedule exist."""
        return f"{self.prefix}jobs:cron:{name}"

    def cron_job(self, name: str) -> str:
        """STRING: task, payload and queue of the entry's jobs as a JSON object, to run it now."""
        return f"{self.prefix}jobs:cron-job:{name}"

    @property
    def paused_crons(self) -> str:
        """SET of the names of paused cron entries."""
        return f"{self.prefix}jobs:cron-paused"

    @property
    def crons(self) -> str:
        """ZSET of the names of cron entries by their last enrollment, for lists."""
        return f"{self.prefix}jobs:crons"

    def stats(self, minute: int) -> str:
        """HASH of counters; `minute` counts from the epoch."""
        return f"{self.prefix}jobs:stats:{minute}"

    def failures(self, hour: int, tenant: str = "") -> str:
        """HASH: kind of failure → how often, first and last time, sample job, worker; both as JSON
        lists. `hour` counts from the epoch. Kept for `FAILURES_TTL_S`."""
        key = f"{self.prefix}jobs:failures:{hour}"
        return f"{key}:{tenant}" if tenant else key

    @property
    def shards(self) -> str:
        """HASH, in the first shard only: the tables of shards, and what each process has reported
        (G-5)."""
        return f"{self.prefix}jobs:shards"

    @property
    def control(self) -> str:
        """Channel: owner tokens of deliveries that are to stop."""
        return f"{self.prefix}jobs:control"


def permanent(prefix: str = "") -> tuple[str, ...]:
    """Patterns (as in SCAN) of the keys that have no lifetime; every other key has one."""
    keys = StreamsKeys(prefix)
    indexes = (keys.tenants, keys.index(), keys.index("*"))
    queues = (keys.queue, keys.named_queue("*"), keys.queues, keys.paused)
    return (*queues, keys.delayed, keys.suspended, keys.open, keys.tasks, keys.shards, *indexes)


PERMANENT: Final = permanent()


IDEMPOTENCY: Final = "idempotency:"
"""*Source.* In front of the default tenant's idempotency keys."""
TENANT_IDEMPOTENCY: Final = "jobs:idempotency:"
CRON_RUN: Final = "jobs:cron-run:"
IDEMPOTENCY_SPACES: Final = (IDEMPOTENCY, TENANT_IDEMPOTENCY, CRON_RUN)


BYTES_TOTAL: Final = "total"
"""Field of a tenant's bytes: the sum of the others (J-57)."""


def idempotency_name(tenant: str, key: str) -> str:
    """J-11: the name of an idempotency key, below the prefix. Each tenant has its own namespace,
    which no key of another tenant can reach."""
    if not tenant:
        return IDEMPOTENCY + key
    return f"{TENANT_IDEMPOTENCY}{tenant}:{_sha256(key)}"


def former_idempotency_name(tenant: str, key: str) -> str:
    """The name that earlier versions gave the key, read until it expires; empty if it is the same.
    The default tenant could choose it for a key of its own, so the job's tenant decides."""
    return IDEMPOTENCY + _sha256(f"{tenant}\0{key}") if tenant else ""


def cron_run_name(name: str, due_ms: int) -> str:
    """J-11, J-52: the name of the idempotency key of one run of a cron entry."""
    return f"{CRON_RUN}{name}:{due_ms}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# ── J-2 queue entry, J-3 hash ────────────────────────────────────────────────────────────────────


class EntryField(StrEnum):
    """*Source.* The fields of a queue entry: exactly these."""

    JOB_ID = "job_id"
    TASK = "task"
    PAYLOAD = "payload"


class Field(StrEnum):
    """*Source.* The fields of a job hash; always all of them."""

    JOB_ID = "job_id"
    TASK = "task"
    PAYLOAD = "payload"
    STATUS = "status"
    CREATED_TS = "created_ts"
    UPDATED_TS = "updated_ts"
    TTL_S = "ttl_s"
    RESULT = "result"
    ERROR = "error"


class Extra(StrEnum):
    """Our fields in the job hash; each only where it has a value."""

    ATTEMPT = "attempt"
    """Failed attempts + 1; changed only by a retry. Absent: 1."""
    DELIVERIES = "deliveries"
    """Starts, less releases. Absent: 0."""
    EXCUSED_DELIVERIES = "excused_deliveries"
    """Starts that were lost over an outage of the server, or before the latest new result of a
    step; they do not count towards the limit."""
    MAX_ATTEMPTS = "max_attempts"
    TIMEOUT_S = "timeout_s"
    DEADLINE_S = "deadline_s"
    """D-29: how long after its creation the whole job must have ended."""
    OWNER = "owner"
    """The token of the latest delivery; followed by `!` once that delivery was settled, so that a
    repeated settle gets the same answer."""
    WORKER = "worker"
    """The consumer that holds the job, or held it last."""
    ENTRY_ID = "entry_id"
    """The queue entry that counts. Absent while the job is in `jobs:delayed` or
    `jobs:suspended`."""
    STARTED_TS = "started_ts"
    """When the latest delivery began."""
    CANCEL_TS = "cancel_ts"
    """When cancellation was requested while it ran."""
    FINGERPRINT = "fingerprint"
    IDEMPOTENCY_KEY = "idempotency_key"
    """The name of its idempotency key below the prefix, so that the key's lifetime is extended with
    the job's. Earlier versions wrote the part after `idempotency:`."""
    TENANT = "tenant"
    QUEUE = "queue"
    """The name of its queue; absent in the default one (J-53)."""
    TRACEPARENT = "traceparent"
    PROGRESS = "progress"
    """The data of the latest progress event."""
    RETRY_OF = "retry_of"
    ON_FAILURE = "on_failure"
    """D-23: the id of the job that followed this failed one."""
    FAILURE_OF = "failure_of"
    """D-23: the id of the failed job that this one follows."""
    REPORTS = "reports"
    """`<token>:<number>` of the latest report: a repeated one is written once."""
    STEPS = "steps"
    """D-3: the number of its records."""
    PROGRESS_ATTEMPT = "progress_attempt"
    """D-7: the attempt of the latest new result of a step; absent: 1."""
    WAITS_FOR = "waits_for"
    """D-8: what a suspended job waits for: `{"for", "name", "until"}`, and
    `more`, the number of other waits (D-9a)."""
    PARENT = "parent"
    """D-14: the id of the job that submitted it, a space, and its name in that job's record."""
    DEPTH = "depth"
    """D-16: how many jobs are above it."""
    CHILDREN = "children"
    """D-16: how many children it has submitted."""
    OUTSIDE_BYTES = "outside_bytes"
    """D-6: bytes of its signals and of its children's ends."""
    KEPT_CHILDREN = "kept_children"
    """D-15: ids of children whose results stay with them, each with a space behind it."""
    UNKNOWN_TS = "unknown_ts"
    """Since when workers without its task have put it back (J-37)."""
    EXCEPTION_TYPE = "exception_type"
    """J-55: the exception of the latest failed attempt, with the setting `store_tracebacks`."""
    EXCEPTION_MESSAGE = "exception_message"
    TRACEBACK = "traceback"


class RecordField(StrEnum):
    """How the fields of a record begin; the name of the step follows."""

    RESULT = RESULT_FIELD
    """A JSON array: when the step ended, how many milliseconds it took, and its result."""
    ERROR = ERROR_FIELD
    """The same with the error that left the step instead of its result: type, message, attempt, and
    what makes it again (D-4a)."""
    STARTED = STARTED_FIELD
    """The owner token of the delivery that started the step, which has no result yet (D-5)."""
    DUE = DUE_FIELD
    """When a sleep ends, in ms (D-11)."""
    SIGNAL_DUE = SIGNAL_DUE_FIELD
    """When a wait for a signal ends (D-12)."""
    SIGNAL = SIGNAL_FIELD
    """A JSON array: when the signal came, and its value; only the time if it did not come before
    the wait was over (D-12)."""
    CHILD = CHILD_FIELD
    """A JSON array: id and task of a submitted child (D-14)."""
    ENDED_CHILD = ENDED_CHILD_FIELD
    """A JSON array: when the child ended, its status, and its result or error; without the last one
    it is in the child's hash (D-15)."""
    RESTARTS = RESTARTS_FIELD
    """How often the job was restarted; no name follows (D-24)."""
    GATHER = GATHER_FIELD
    """When a job that waits for children, the first of which has this name, looks again, in ms: it
    has waited here (A-8)."""


class Status(StrEnum):
    """*Source.*"""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    ERROR = "error"
    CANCELED = "canceled"


# ── J-4 events ───────────────────────────────────────────────────────────────────────────────────


class EventField(StrEnum):
    """*Source.* The fields of an event entry."""

    TYPE = "type"
    TS = "ts"
    STEP = "step"
    DATA = "data"


class EventType(StrEnum):
    """The first five belong to the source; the others are ours, and none of them ends a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    ERROR = "error"
    CANCELED = "canceled"
    PROGRESS = "progress"
    TOKEN = "token"  # noqa: S105 - a piece of generated text, no secret
    LOG = "log"
    RETRYING = "retrying"
    STEP_DONE = "step_done"
    SUSPENDED = "suspended"


TERMINAL_EVENTS: Final = frozenset({EventType.DONE, EventType.ERROR, EventType.CANCELED})
RECORD_EVENTS: Final = frozenset({EventType.STEP_DONE, EventType.SUSPENDED})
"""What a later run goes on after: the reports before one of them are never taken back (A-8)."""
STATE_EVENTS: Final = (
    TERMINAL_EVENTS | RECORD_EVENTS | {EventType.QUEUED, EventType.RUNNING, EventType.RETRYING}
)
"""All others are reports of a run."""
CONTINUED: Final = "continued"
"""A report: this run goes on with the text of the one before, of `at` characters (A-8)."""

HELLO: Final = "hello"
GAP: Final = "gap"
ROLLBACK: Final = "rollback"
"""Sent by the gateway to one reader, never written to a stream."""

EVENT_TYPE: Final = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
RESERVED_TYPES: Final = frozenset({*TERMINAL_EVENTS, HELLO, GAP, ROLLBACK})
RESERVED_KINDS: Final[frozenset[str]] = RESERVED_TYPES | STATE_EVENTS | {"failed"}
"""Types that no handler may use: a reader would take them for a change of the job's state."""


RESTART: Final = "restart"
"""In place of what a job waits for: it begins anew (D-24)."""


class EventStep(StrEnum):
    """What wrote an event. The first belongs to the source."""

    ENQUEUE = "gateway.enqueue"
    CANCEL = "gateway.cancel"
    PURGE = "gateway.purge"
    START = "worker.start"
    REPORT = "worker.report"
    STEP = "worker.step"
    SETTLE = "worker.settle"
    RETRY = "worker.retry"
    RELEASE = "worker.release"
    SWEEP = "duty.sweep"
    SUSPEND = "worker.suspend"
    RESTART = "worker.restart"
    WAKE = "duty.wake"
    SIGNAL = "gateway.signal"


# ── J-6 error object ─────────────────────────────────────────────────────────────────────────────


class Code(StrEnum):
    """Error codes of the wire; handlers add their own."""

    HANDLER_ERROR = "handler_error"
    TIMEOUT = "timeout"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CANCELED = "canceled"
    UNKNOWN_TASK = "unknown_task"
    INVALID_PAYLOAD = "invalid_payload"
    RESULT_TOO_LARGE = "result_too_large"
    RESULT_NOT_JSON = "result_not_json"
    DELIVERY_LIMIT = "delivery_limit"
    STEP_INTERRUPTED = "step_interrupted"
    STEP_INVALID = "step_invalid"
    STEP_TOO_LARGE = "step_too_large"
    SIGNAL_INVALID = "signal_invalid"
    SIGNAL_TIMEOUT = "signal_timeout"
    CHILD_FAILED = "child_failed"
    CHILD_GONE = "child_gone"
    CHILD_LIMIT = "child_limit"


# ── workers and statistics ────────────────────────────────────────────────────────────────────────


class WorkerField(StrEnum):
    """The fields of a worker's registration; and one `task:<name>` for each of its tasks."""

    HOST = "host"
    PID = "pid"
    VERSION = "version"
    SLOTS = "slots"
    SERVES = "serves"
    """A JSON list of the process's queues on all wires: `{"wire", "queue", "tasks"}`."""
    STARTED_TS = "started_ts"
    SEEN_TS = "seen_ts"
    LACKS = "lacks"
    """A JSON list of missing requirements: `{"part", "wrong", "fix"}`."""
    QUEUES = "queues"
    """The names of the queues that it reads, separated by spaces. Absent: the default queue."""


class Outage(StrEnum):
    """The fields of `jobs:guard:outage`: the last reclaim, and the last outage."""

    SEEN_TS = "seen_ts"
    HOLD_TS = "hold_ts"
    """Nothing is reclaimed before this time."""
    IN_A_ROW = "in_a_row"
    """How many outages followed each other."""
    ENDED_TS = "ended_ts"


class ShardField(StrEnum):
    """The fields of `jobs:shards` (G-5)."""

    TABLES = "tables"
    """`<since_ms>=<shard>,<shard>…` for each table, separated by `;`: the shards that get new jobs
    now, last, and those that did while an idempotency key of that time may live."""
    PROCESS = "process:"
    """Followed by the name of a process; holds when it reported, the shards that it reads, and
    those that it wants to get new jobs."""


CLAIMED: Final = "claimed"
"""Field of a stub: its idempotency key was reserved for a job of another shard (G-5)."""


TASK_FIELD: Final = "task:"
"""Followed by the task's name; holds `{"schema": …, "example": …, "queue": …}`, and `on_failure`
with the task and queue of the job that follows a failed one."""


class Counter(StrEnum):
    """The fields of a minute's counters; ended jobs count under their status."""

    SUBMISSIONS = "submissions"
    RETRIED = "retried"
    RELEASED = "released"
    RECLAIMED = "reclaimed"
    RECONCILED = "reconciled"


LATENCY: Final = "latency:"
"""Followed by a bucket (`time_buckets`): first deliveries, by the time since the job was queued."""
DURATION: Final = "duration:"
"""Followed by a bucket (`time_buckets`): settled deliveries, by the time since their start."""


# ── J-7 lifetimes, J-8 and other limits ──────────────────────────────────────────────────────────

DEFAULT_TTL_S: Final = 86_400
MAX_TTL_S: Final = 2_592_000
CANCELED_TTL_S: Final = 300
"""J-57: the longest lifetime of a job that was canceled while it waited."""
STATS_TTL_S: Final = 7_200
FAILURES_TTL_S: Final = 90_000
CRON_TTL_S: Final = 400 * 86_400
"""Of a schedule that no worker has any more: more than a year, for yearly schedules."""
CRON_GONE_MS: Final = 180_000
"""A schedule that was not enrolled for this long, while others of its name were, is removed. Every
worker enrolls once a minute."""
CRON_AHEAD_MS: Final = 60_000
"""A last due time that lies further ahead than this shows that the server's clock was set back."""
CLOCK_TTL_S: Final = 86_400
TASK_MEMORY_S: Final = 30 * 86_400
"""J-10: for how long a task is known after its last worker has gone."""

MAX_PAYLOAD_BYTES: Final = 204_800
MAX_PAYLOAD_DEPTH: Final = 64
MAX_EVENT_BYTES: Final = 65_536
MAX_EVENTS: Final = 10_000
MAX_RESULT_BYTES: Final = 1_048_576
MAX_STEP_BYTES: Final = 262_144
MAX_RECORD_BYTES: Final = 4_194_304
MAX_RECORDS: Final = 1_000
MAX_SIGNAL_BYTES: Final = 65_536
MAX_SIGNALS: Final = 100
MAX_SIGNAL_WAIT_S: Final = 2_592_000
MAX_SUSPENDED: Final = 1_000_000
MAX_CHILDREN: Final = 1_000
MAX_CHILD_DEPTH: Final = 8
MAX_QUEUE: Final = 10_000
TENANT_MAX_RETAINED: Final = 1_000_000

SOURCE_TASKS: Final = ("chat", "plan", "code", "tool", "rag", "embed")
"""*Source.*"""
