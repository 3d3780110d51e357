"""The BullMQ wire as data: keys, fields, states, events, answers, limits (B-1 … B-8, B-19).

Everything of this package builds on it. It imports only the standard library and talks to no
server. It is the only Python file that spells the wire's words (a test looks).

The words are those of npm BullMQ 6. What the published contract has beyond them are *extras*: they
are appended after the real fields, every known reader ignores them, and `BullSettings.extras`
turns them off.
"""

from base64 import b64encode
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

DEFAULT_PREFIX: Final = "bull"
PAUSED: Final = "paused"
"""The last part of the key of a list that npm BullMQ 5 has."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Every key of one queue."""

    queue: str
    prefix: str = DEFAULT_PREFIX

    @property
    def base(self) -> str:
        """What all keys of the queue begin with."""
        return f"{self.prefix}:{self.queue}:"

    @property
    def meta(self) -> str:
        """HASH: what the queue is set to; the key that every script declares."""
        return f"{self.base}meta"

    @property
    def wait(self) -> str:
        """LIST of ids; the next one is at the right end."""
        return f"{self.base}wait"

    @property
    def paused(self) -> str:
        """LIST of ids: the waiting jobs of a paused queue that npm BullMQ 5 has opened."""
        return f"{self.base}{PAUSED}"

    @property
    def active(self) -> str:
        """LIST of ids, the newest at the left end."""
        return f"{self.base}active"

    @property
    def prioritized(self) -> str:
        """ZSET of ids; the score is priority · 2³² + a counter."""
        return f"{self.base}prioritized"

    @property
    def delayed(self) -> str:
        """ZSET of ids; the score is the due time in ms · 4096 + a counter."""
        return f"{self.base}delayed"

    @property
    def completed(self) -> str:
        return f"{self.base}completed"

    @property
    def failed(self) -> str:
        return f"{self.base}failed"

    @property
    def marker(self) -> str:
        """ZSET on which idle workers block: `0` at once, `1` when a delayed job is due."""
        return f"{self.base}marker"

    @property
    def events(self) -> str:
        """STREAM of everything that happens on the queue."""
        return f"{self.base}events"

    @property
    def limiter(self) -> str:
        """STRING: how many jobs were started in the current period of the rate limit."""
        return f"{self.base}limiter"

    @property
    def stalled_check(self) -> str:
        """STRING: a stalled check was made in this interval."""
        return f"{self.base}stalled-check"

    def job(self, job_id: str) -> str:
        """HASH of one job."""
        return f"{self.base}{job_id}"

    def lock(self, job_id: str) -> str:
        """STRING: the token of the worker that runs the job."""
        return f"{self.base}{job_id}:lock"

    def logs(self, job_id: str) -> str:
        """LIST of lines, the oldest first."""
        return f"{self.base}{job_id}:logs"

    @property
    def schedulers(self) -> str:
        """ZSET of scheduler ids; the score is when the pending iteration is due in ms."""
        return f"{self.base}repeat"

    def scheduler(self, scheduler_id: str) -> str:
        """HASH: the record of a job scheduler."""
        return f"{self.base}repeat:{scheduler_id}"

    def metrics(self, state: str) -> str:
        """HASH: how many jobs ended so; the counts by minute are in the LIST `…:data`."""
        return f"{self.base}metrics:{state}"

    def deduplication(self, dedup_id: str) -> str:
        """STRING: the job that owns a deduplication id."""
        return f"{self.base}de:{dedup_id}"

    def settled(self, token: str) -> str:
        """STRING, ours: how a settle was answered, for a caller whose reply was lost."""
        return f"{self.base}jobwire:settled:{token}"


PERMANENT: Final = (f"{DEFAULT_PREFIX}:*",)
"""Keys of this wire have no lifetime: retention is the jobs' own."""


class BullField(StrEnum):
    """Fields of a job hash that we read or write."""

    NAME = "name"
    DATA = "data"
    OPTS = "opts"
    TIMESTAMP = "timestamp"
    DELAY = "delay"
    PRIORITY = "priority"
    PARENT_KEY = "parentKey"
    PARENT = "parent"
    SCHEDULER = "rjk"
    DEDUPLICATION_ID = "deid"
    PROCESSED_ON = "processedOn"
    PROCESSED_BY = "pb"
    ATTEMPTS_STARTED = "ats"
    ATTEMPTS_MADE = "atm"
    STALLED = "stc"
    DEFERRED_FAILURE = "defa"
    PROGRESS = "progress"
    RETURN_VALUE = "returnvalue"
    FAILED_REASON = "failedReason"
    STACKTRACE = "stacktrace"
    FINISHED_ON = "finishedOn"


class Meta(StrEnum):
    """Fields of `meta`."""

    PAUSED = "paused"
    CONCURRENCY = "concurrency"
    LIMIT_MAX = "max"
    LIMIT_MS = "duration"
    VERSION = "version"


class Relation(StrEnum):
    """The last part of the keys that have a job's children."""

    PROCESSED = "processed"
    UNPROCESSED = "dependencies"
    IGNORED = "failed"
    FAILED = "unsuccessful"


class BullExtra(StrEnum):
    """Extras: in the hash `workerId` and a first `progress`; the others in events."""

    WORKER_ID = "workerId"
    TIMESTAMP = "timestamp"
    PROGRESS = "progress"
    MESSAGE = "message"


class Opt(StrEnum):
    """Members of the `opts` JSON; eight of them have short names on the wire."""

    ATTEMPTS = "attempts"
    BACKOFF = "backoff"
    DELAY = "delay"
    PRIORITY = "priority"
    LIFO = "lifo"
    JOB_ID = "jobId"
    TIMESTAMP = "timestamp"
    REMOVE_ON_COMPLETE = "removeOnComplete"
    REMOVE_ON_FAIL = "removeOnFail"
    STACKTRACE_LIMIT = "stackTraceLimit"
    KEEP_LOGS = "kl"
    DEDUPLICATION = "de"
    PARENT = "parent"
    FAIL_PARENT = "fpof"
    CONTINUE_PARENT = "cpof"
    IGNORE_DEPENDENCY = "idof"
    REMOVE_DEPENDENCY = "rdof"
    SIZE_LIMIT = "sizeLimit"
    TELEMETRY = "tm"
    OMIT_CONTEXT = "omc"
    REPEAT = "repeat"
    PREVIOUS_MS = "prevMillis"
    SCHEDULER = "repeatJobKey"


class BullState(StrEnum):
    """Where a job is, as `getState` returns it."""

    WAITING = "waiting"
    PRIORITIZED = "prioritized"
    DELAYED = "delayed"
    ACTIVE = "active"
    WAITING_CHILDREN = "waiting-children"
    COMPLETED = "completed"
    FAILED = "failed"
    UNKNOWN = "unknown"


WAIT: Final = "wait"
COLLECTIONS: Final = {
    state: WAIT if state is BullState.WAITING else str(state)
    for state in BullState
    if state is not BullState.UNKNOWN
}
"""State → the last part of the key of its list or sorted set."""
NEWEST_FIRST: Final = frozenset((BullState.COMPLETED, BullState.FAILED))
"""The states whose jobs are listed from the newest one; others in the order of their start."""


class EventName(StrEnum):
    """Names of the events that we write."""

    ADDED = "added"
    WAITING = "waiting"
    ACTIVE = "active"
    DELAYED = "delayed"
    WAITING_CHILDREN = "waiting-children"
    PROGRESS = "progress"
    COMPLETED = "completed"
    FAILED = "failed"
    RETRIES_EXHAUSTED = "retries-exhausted"
    STALLED = "stalled"
    REMOVED = "removed"
    DUPLICATED = "duplicated"
    DEDUPLICATED = "deduplicated"
    DRAINED = "drained"
    CLEANED = "cleaned"
    PAUSED = "paused"
    RESUMED = "resumed"
    RETRY = "retry"
    """An extra: the published contract has it in addition to `waiting` or `delayed`."""


class BullEventField(StrEnum):
    """Fields of events: each has the first one, and most the second."""

    EVENT = "event"
    JOB_ID = "jobId"
    DATA = "data"


class Refusal(StrEnum):
    """Why a verb did not do what it was asked for."""

    MISSING = "missing"
    NO_LOCK = "no_lock"
    NOT_ACTIVE = "not_active"
    PENDING_CHILDREN = "pending_children"
    NO_PARENT = "no_parent"
    FOREIGN_LOCK = "foreign_lock"
    HAS_PARENT = "has_parent"
    FAILED_CHILDREN = "failed_children"
    WRONG_STATE = "wrong_state"
    LOCKED = "locked"
    SCHEDULED = "scheduled"
    COLLISION = "collision"
    BUSY = "busy"
    NO_RELATION = "no_relation"
    NOT_PAUSED = "not_paused"
    ACTIVE = "active"


RESERVED_IDS: Final = frozenset(
    {
        *{"id", "meta", "wait", "paused", "active", "prioritized", "pc", "priority", "delayed"},
        *{"marker", "waiting-children", "completed", "failed", "stalled", "stalled-check"},
        *{"limiter", "events", "repeat", "metrics", "groups", "de", "dn", "jobwire"},
    }
)
"""Names of the queue's own keys: a job of such an id would take their place."""
JOB_PARTS: Final = frozenset({"lock", "logs", *Relation})
"""The last parts of the other keys of a job."""

MAX_PRIORITY: Final = 2_097_151
"""The largest that every official package takes (2²¹ - 1)."""
PRIORITY_SHIFT: Final = 1 << 32
"""The score of a prioritized job is its priority times this, and a counter."""
MAX_BULK_JOBS: Final = 1_000
MAX_BULK_BYTES: Final = 10 * 1024 * 1024
MAX_DATA_BYTES: Final = MAX_BULK_BYTES
MAX_REASON: Final = 10_000
MAX_STACK: Final = 50_000
MAX_FLOW_JOBS: Final = MAX_BULK_JOBS
BATCH: Final = 1_000
"""How many jobs an admin verb moves or deletes in one script call."""
CLEAN_BATCH: Final = 10_000
"""The same for `clean`, which publishes an event for each call."""
MAX_QUEUE_NAME: Final = 200
MAX_JOB_ID: Final = 256
MAX_NAME: Final = 256

LOCK_MS: Final = 30_000
STALLED_INTERVAL_MS: Final = 30_000
MAX_STALLED: Final = 1
SETTLED_TTL_MS: Final = 60_000
KEEP_LIMIT: Final = 1_000
"""How many finished jobs one settle removes by age, unless the job's options have a number."""


class KeepRule(NamedTuple):
    """Which finished jobs stay; -1 means no limit."""

    most: int = -1
    age_s: int = -1
    limit: int = KEEP_LIMIT


CANCELED: Final = "canceled"
"""The failure of a job that was canceled while it ran."""
RATE_LIMITED: Final = 9_007_199_254_740_991
"""The value of `limiter` while a handler has limited its queue."""

TOKEN_PREFIX: Final = "jobwire-"  # noqa: S105 - no secret
"""Tokens of our workers begin so; after it come the worker and the number of the delivery."""


def control_channel(prefix: str) -> str:
    """The channel on which workers of ours get the tokens of jobs to be canceled."""
    return f"{prefix}:jobwire:control"


SCHEDULER_IDS: Final = "repeat"
"""Ids of jobs that a scheduler makes begin so."""


MAX_ITERATION_ID: Final = MAX_JOB_ID + 32
"""The length of such an id: a scheduler's id may be as long as a job's."""


def iteration_id(scheduler_id: str, due_ms: int) -> str:
    """The id of the job that a scheduler makes for a due time."""
    return f"{SCHEDULER_IDS}:{scheduler_id}:{due_ms}"


def node_client_name(queue: str, prefix: str) -> str:
    """The connection name by which Node's `getWorkers` finds a worker."""
    return f"{prefix}:{b64encode(queue.encode()).decode()}"


def python_client_name(queue: str, prefix: str) -> str:
    """The connection name by which the Python package's `getWorkers` finds a worker."""
    return f"{prefix}:{queue}"


RESERVED_KINDS: Final[frozenset[str]] = frozenset(EventName) - {EventName.PROGRESS} | {"error"}
"""Kinds of reports that no handler may use: watchers would take them for a change of state."""
