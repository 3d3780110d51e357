"""What travels over the seam: orders, held jobs, reports, outcomes and the answers to them.

Producers, engines and the worker all speak in these. They are plain values: nothing here acts.

What is made once a job on the hot path is a NamedTuple and not a frozen dataclass: as unchangeable,
and four times cheaper to make.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, NewType, TypeAlias

if TYPE_CHECKING:  # retry.py needs the outcomes of this file
    from jobwire.job.retry import Backoff
    from jobwire.job.states import State

JobId = NewType("JobId", str)
Token = NewType("Token", str)
"""Names one delivery of one job to one worker. Whoever shows it may write; nobody else."""

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


# ── asking for work ──────────────────────────────────────────────────────────────────────────────


class JobRequest(NamedTuple):
    """A job that somebody wants done. None means: as the wire or the handler has it by default."""

    task: str
    payload_json: str
    job_id: JobId | None = None
    """One's own choice, random: the same order asked again with it makes no second job."""
    delay_s: float = 0.0
    ttl_s: int | None = None
    max_attempts: int | None = None
    timeout_s: float | None = None
    idempotency_key: str = ""
    fingerprint: str = ""
    """What identical orders have in common; an idempotency key with another one is a mistake."""
    tenant: str = ""
    traceparent: str = ""
    retry_of: JobId | None = None


class Submitted(NamedTuple):
    """A new job was made."""

    job_id: JobId
    created_ms: int = 0
    """When, by the queue's clock; 0 where it does not say."""


class Already(NamedTuple):
    """The idempotency key has its job already; nothing was made."""

    job_id: JobId


class Mismatch(NamedTuple):
    """The idempotency key has a job, made from another order; nothing was made."""

    job_id: JobId


class Full(NamedTuple):
    """The queue, or the order's tenant, has as many jobs as it may; nothing was made."""

    waiting: int
    """How many there are."""
    bound: 'Literal["queue", "tenant_open", "tenant_retained"]' = "queue"
    """What is full: the queue, the tenant's open jobs, or what is kept of the tenant's jobs."""


SubmitAnswer: TypeAlias = Submitted | Already | Mismatch | Full


class CronState(NamedTuple):
    """How far the fleet is with a cron entry."""

    due_ms: int
    """The due time that was seen to last; nothing up to it is missing."""
    now_ms: int
    """The server's time."""


class AlreadyRun(NamedTuple):
    """The due time was seen to before; nothing was made."""


class NotDue(NamedTuple):
    """By the server's clock it is not due yet; nothing was made."""


DueAnswer: TypeAlias = Submitted | AlreadyRun | NotDue | Full


class CancelOutcome(StrEnum):
    """What became of a wish to cancel."""

    CANCELED = "canceled"
    """It was waiting, and is canceled now."""
    REQUESTED = "asked"
    """It is running: its worker was told."""
    REQUESTED_FOREIGN = "asked_foreign"
    """It is running with a worker that is not ours and may not listen."""
    FINISHED = "finished"
    """It had ended before."""
    GONE = "gone"
    """There is no such job."""


class Snapshot(NamedTuple):
    """A job as it stands, for whoever asks after it."""

    job_id: JobId
    task: str
    state: "State"
    payload_json: str
    result_json: str
    """Empty where there is none."""
    error_json: str
    """Empty where there is none."""
    created_ms: int
    updated_ms: int
    attempt: int


# ── holding it ───────────────────────────────────────────────────────────────────────────────────


class JobInfo(NamedTuple):
    """One job, as its handler sees it."""

    id: JobId
    source: str
    """The name of the queue it came from."""
    task: str
    payload: Json
    attempt: int
    """1 at first; moved only by a failed attempt."""
    deliveries: int
    """How often it was started, this time included; a crashed worker's start counts too."""
    created_ms: int
    tenant: str
    traceparent: str


class Policy(NamedTuple):
    """What the job itself asks for; None where it leaves that to its handler."""

    max_attempts: "int | None" = None
    timeout_s: "float | None" = None
    backoff: "Backoff | None" = None


class LeasedJob(NamedTuple):
    """A job that this worker has started and holds under a lease."""

    job: JobInfo
    token: Token
    policy: Policy
    preset_outcome: "Outcome | None"
    """Set where it must not run: settle it with this at once."""
    wire: object
    """The engine's own note, opaque to everybody else."""


class TaskDefinition(NamedTuple):
    """What a worker tells others about a task it has."""

    name: str
    schema_json: str = ""
    example_json: str = ""


class MissingRequirement(NamedTuple):
    """Something that a worker needs for some of its tasks and does not have."""

    part: str
    """What is missing, in a word."""
    wrong: str
    fix: str
    """What to do about it."""


class CancelRequest(NamedTuple):
    """Somebody wants the delivery that this token names to stop."""

    token: Token


# ── reporting while it runs ──────────────────────────────────────────────────────────────────────


class Report(NamedTuple):
    """News of a running job, encoded when the handler said it."""

    kind: str
    """`progress`, `log`, `token`, or a name of the handler's own."""
    data_json: str
    step: str = ""
    number: int = 0
    """Counts the reports of one delivery from 1, so that one asked twice is written once."""


REPORT_KIND: Final = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
RESERVED_KINDS: Final = frozenset(
    {"queued", "running", "retrying", "done", "failed", "error", "canceled", "hello", "gap"}
)


def check_kind(kind: str) -> str:
    """A report's kind as a handler may name it; ValueError with one clear line otherwise."""
    if kind in RESERVED_KINDS:
        raise ValueError(f"{kind!r} is said by jobwire itself; name the report otherwise")
    if not REPORT_KIND.fullmatch(kind):
        raise ValueError(
            f"{kind!r} cannot name a report: use 1-64 of a-z 0-9 _ . - and begin with a letter"
        )
    return kind


class ReportAnswer(StrEnum):
    """What became of a report."""

    WRITTEN = "written"
    DROPPED = "dropped"
    """Not written: the server is full, or the job has said all it may. The job goes on."""
    LOST = "lost"
    """The job is no longer ours: stop its handler."""


class RenewAnswer(StrEnum):
    """What became of a lease."""

    RENEWED = "kept"
    CANCEL = "cancel"
    """Kept, and somebody asked for the job to stop."""
    LOST = "lost"
    """It belongs to another now: stop the handler."""
    ENDED = "ended"
    """The job has ended, or is gone: stop the handler."""


# ── settling it ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class JobError:
    """Why an attempt failed."""

    code: str
    message: str
    """For everybody's eyes."""
    retryable: bool = False
    partial_json: str = ""
    """What there was of a result; empty for none."""
    detail: str = ""
    """For our eyes: the traceback."""


@dataclass(frozen=True, slots=True)
class Done:
    """The handler returned; `result_json` is what, encoded."""

    result_json: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Over and out: nobody will try again."""

    error: JobError


@dataclass(frozen=True, slots=True)
class RetryLater:
    """This attempt failed, the next one starts in `after_s` seconds."""

    after_s: float
    error: JobError


@dataclass(frozen=True, slots=True)
class Canceled:
    """Somebody asked for it, and the handler stopped."""

    partial_json: str = ""


@dataclass(frozen=True, slots=True)
class Released:
    """Nothing happened to it; others may have it at once. Counts as nothing."""


Outcome: TypeAlias = Done | Failed | RetryLater | Canceled | Released


class SettleAnswer(StrEnum):
    """What became of an outcome. The same call asked again is answered as at first."""

    SETTLED = "settled"
    """It is written, and it is ours."""
    ALREADY = "already"
    """The job had ended before, by another hand; nothing of ours was written."""
    LOST = "lost"
    """The job belongs to another; nothing was written."""
    GONE = "gone"
    """The job's record is gone or unreadable; its place in the queue was cleared."""
    REFUSED = "refused"
    """The server will not write it, and the job is still ours: ask again."""


class Settled(NamedTuple):
    """The answers to a batch, in its order, and the next jobs, started and held."""

    answers: "list[SettleAnswer]"
    leased: "list[LeasedJob]"
