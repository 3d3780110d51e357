"""The Redis Streams wire as data: keys, fields, words, codes, lifetimes (J-1 … J-8).

Everything of this room builds on it, `jobwire schema` and the docs' tables are made from it. It
imports only the standard library and the heart, talks to nobody, and is the only Python file that
spells the wire's words (a test looks).

Two parties own the wire. What the published contract says is marked *source*; the rest are our
declared extras, which readers of the plain contract ignore.
"""

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

# ── J-1 keys ─────────────────────────────────────────────────────────────────────────────────────

GROUP: Final = "workers"
"""*Source.* The consumer group on the queue; made from id 0 by whoever comes first."""

CONSUMER_PREFIX: Final = "jobwire-"
"""How consumers of ours are told from others' (J-34)."""


@dataclass(frozen=True, slots=True)
class StreamsKeys:
    """Every key, below one prefix. With a hash tag in the prefix all of them share a slot."""

    prefix: str = ""

    # source

    @property
    def queue(self) -> str:
        return f"{self.prefix}jobs:stream"

    def job(self, job_id: str) -> str:
        return f"{self.prefix}job:{job_id}"

    def events(self, job_id: str) -> str:
        return f"{self.prefix}job:{job_id}:events"

    def idempotency(self, name: str) -> str:
        """STRING: the id of the job that was made with this key. `name` is what `idempotency_name`
        or `cron_run_name` returns; only those of the default tenant are the source's."""
        return f"{self.prefix}{name}"

    # ours

    @property
    def delayed(self) -> str:
        """ZSET of waiting jobs that are not due yet, by due time in ms."""
        return f"{self.prefix}jobs:delayed"

    @property
    def open(self) -> str:
        """ZSET of unfinished jobs, by the time in ms of their next renewal (J-7)."""
        return f"{self.prefix}jobs:open"

    def tenant_open(self, tenant: str) -> str:
        """ZSET of a tenant's jobs that were open when last counted, by that time in ms (J-57).
        Written only while tenants are bounded."""
        return f"{self.prefix}jobs:open:{tenant}"

    @property
    def tenants(self) -> str:
        """ZSET of tenants that have an index of their own, by their last submission in ms."""
        return f"{self.prefix}jobs:tenants"

    @property
    def clock(self) -> str:
        """STRING: the server's time in ms when a process last looked, to notice a clock that was
        set back."""
        return f"{self.prefix}jobs:clock"

    def index(self, tenant: str = "") -> str:
        """ZSET of a tenant's jobs, by creation in ms; for lists."""
        return f"{self.prefix}jobs:index:{tenant}" if tenant else f"{self.prefix}jobs:index"

    def worker(self, consumer: str) -> str:
        """HASH: a live worker's card. Gone soon after the worker is."""
        return f"{self.prefix}jobs:worker:{consumer}"

    def guard(self, duty: str) -> str:
        """STRING: a duty was done in this period."""
        return f"{self.prefix}jobs:guard:{duty}"

    def cron(self, name: str) -> str:
        """HASH: times of the entry → the due time that was seen to last and when somebody asked,
        both in ms (J-52). It has more than one field while old and new workers are there."""
        return f"{self.prefix}jobs:cron:{name}"

    def stats(self, minute: int) -> str:
        """HASH of counters; `minute` counts from the epoch."""
        return f"{self.prefix}jobs:stats:{minute}"

    @property
    def control(self) -> str:
        """Channel: tokens of deliveries that are to stop."""
        return f"{self.prefix}jobs:control"


def permanent(prefix: str = "") -> tuple[str, ...]:
    """Patterns (as in SCAN) of the keys that have no lifetime; every other key has one."""
    keys = StreamsKeys(prefix)
    return (keys.queue, keys.delayed, keys.open, keys.tenants, keys.index(), keys.index("*"))


PERMANENT: Final = permanent()


IDEMPOTENCY: Final = "idempotency:"
"""*Source.* In front of the default tenant's idempotency keys."""
TENANT_IDEMPOTENCY: Final = "jobs:idempotency:"
CRON_RUN: Final = "jobs:cron-run:"
IDEMPOTENCY_SPACES: Final = (IDEMPOTENCY, TENANT_IDEMPOTENCY, CRON_RUN)


def idempotency_name(tenant: str, key: str) -> str:
    """J-11: the name of an idempotency key, below the prefix. Each tenant has a space of its own,
    which no key of another tenant can name."""
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
    """Ours in the job hash; each only where it says something."""

    ATTEMPT = "attempt"
    """Failures + 1; moved only by a retry. Absent: 1."""
    DELIVERIES = "deliveries"
    """Starts, less releases. Absent: 0."""
    MAX_ATTEMPTS = "max_attempts"
    TIMEOUT_S = "timeout_s"
    OWNER = "owner"
    """The token of the latest delivery; with a `!` behind it once that delivery was settled, so
    that a settle asked twice is answered as at first."""
    WORKER = "worker"
    """The consumer that holds, or last held, the job."""
    ENTRY_ID = "entry_id"
    """The one queue entry that counts. Absent while the job lies in `jobs:delayed`."""
    STARTED_TS = "started_ts"
    """When the latest delivery began."""
    CANCEL_TS = "cancel_ts"
    """Somebody asked for an end while it ran."""
    FINGERPRINT = "fingerprint"
    IDEMPOTENCY_KEY = "idempotency_key"
    """The name of its idempotency key below the prefix, so that whoever refreshes the job refreshes
    it. Written by an earlier version: what follows `idempotency:`."""
    TENANT = "tenant"
    TRACEPARENT = "traceparent"
    PROGRESS = "progress"
    """The data of the latest progress event."""
    RETRY_OF = "retry_of"
    REPORTS = "reports"
    """`<delivery>:<number>` of the latest report: one asked twice is written once."""
    UNKNOWN_TS = "unknown_ts"
    """Since when workers that lack its task have put it back (J-37)."""
    TRACEBACK = "traceback"
    """Only with the setting `store_tracebacks`."""


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
    """The first five are the source's; after them ours, none of which ends a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    ERROR = "error"
    CANCELED = "canceled"
    PROGRESS = "progress"
    TOKEN = "token"  # noqa: S105 - a piece of generated text, no secret
    LOG = "log"
    RETRYING = "retrying"


TERMINAL_EVENTS: Final = frozenset({EventType.DONE, EventType.ERROR, EventType.CANCELED})

HELLO: Final = "hello"
GAP: Final = "gap"
"""Said by the gateway to one watcher, never written to a stream."""

EVENT_TYPE: Final = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
RESERVED_TYPES: Final = frozenset({*TERMINAL_EVENTS, HELLO, GAP})


class EventStep(StrEnum):
    """Who wrote an event. The first is the source's."""

    ENQUEUE = "gateway.enqueue"
    CANCEL = "gateway.cancel"
    START = "worker.start"
    REPORT = "worker.report"
    SETTLE = "worker.settle"
    RETRY = "worker.retry"
    RELEASE = "worker.release"
    SWEEP = "duty.sweep"


# ── J-6 error object ─────────────────────────────────────────────────────────────────────────────


class Code(StrEnum):
    """Why a job failed, as far as the wire itself can say; handlers add their own."""

    HANDLER_ERROR = "handler_error"
    TIMEOUT = "timeout"
    CANCELED = "canceled"
    UNKNOWN_TASK = "unknown_task"
    INVALID_PAYLOAD = "invalid_payload"
    RESULT_TOO_LARGE = "result_too_large"
    RESULT_NOT_JSON = "result_not_json"
    DELIVERY_LIMIT = "delivery_limit"


# ── ours beside the jobs ─────────────────────────────────────────────────────────────────────────


class WorkerField(StrEnum):
    """The fields of a worker's card; and one `task:<name>` for each task it has."""

    HOST = "host"
    PID = "pid"
    VERSION = "version"
    SLOTS = "slots"
    STARTED_TS = "started_ts"
    SEEN_TS = "seen_ts"
    LACKS = "lacks"
    """A JSON list of `{"part", "wrong", "cure"}`: what it needs and does not have."""


class Outage(StrEnum):
    """The fields of `jobs:guard:outage`: when the server was seen to serve, and its last outage."""

    SEEN_TS = "seen_ts"
    HOLD_TS = "hold_ts"
    """Nothing is reclaimed before."""
    IN_A_ROW = "in_a_row"
    """How many outages followed each other."""
    ENDED_TS = "ended_ts"


CARD_TASK: Final = "task:"
"""Followed by the task's name; holds `{"schema": …, "example": …}`."""


class Counter(StrEnum):
    """The fields of a minute's counters; ends count under their status."""

    SUBMISSIONS = "submissions"
    RETRIED = "retried"
    RELEASED = "released"
    RECLAIMED = "reclaimed"
    RECONCILED = "reconciled"


LATENCY: Final = "latency:"
"""Followed by a step of the scale: first starts that came so long after the job was in line."""
DURATION: Final = "duration:"
"""The same for the time from a delivery's start to its end."""
STEPS_AN_OCTAVE: Final = 4
"""Step 0 is less than a millisecond, step 1 is one, and four steps on is twice as long."""


# ── J-7 lifetimes, J-8 and other limits ──────────────────────────────────────────────────────────

DEFAULT_TTL_S: Final = 86_400
MAX_TTL_S: Final = 2_592_000
CANCELED_TTL_S: Final = 300
"""J-57: at most, of a job that was canceled while it waited."""
STATS_TTL_S: Final = 7_200
CRON_TTL_S: Final = 400 * 86_400
"""Of a cron entry that no worker has any more; more than a year, since some come once a year."""
CRON_GONE_MS: Final = 180_000
"""Times that nobody has asked about for so long, while others were asked about, are gone. Every
worker asks once a minute."""
CRON_AHEAD_MS: Final = 60_000
"""A due time that was seen to and lies further ahead than this shows that the server's clock was
set back."""
CLOCK_TTL_S: Final = 86_400

MAX_PAYLOAD_BYTES: Final = 204_800
MAX_PAYLOAD_DEPTH: Final = 64
MAX_EVENT_BYTES: Final = 65_536
MAX_EVENTS: Final = 10_000
MAX_RESULT_BYTES: Final = 1_048_576
MAX_QUEUE: Final = 10_000
TENANT_MAX_RETAINED: Final = 1_000_000

RAW: Final = "_raw"
"""*Source.* The member under which a handler finds a payload that is no JSON object (J-38)."""

SOURCE_TASKS: Final = ("chat", "plan", "code", "tool", "rag", "embed")
"""*Source.*"""
