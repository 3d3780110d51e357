"""The values of the Engine protocol: requests, leased jobs, reports, outcomes, answers.

Used by producers, engines and the worker. Values made once per job on the hot path are NamedTuples
and not frozen dataclasses: also immutable, and four times cheaper to make.
"""

import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NewType, TypeAlias

if TYPE_CHECKING:  # retry.py needs the outcomes of this file
    from jobwire.job.retry import Backoff

JobId = NewType("JobId", str)
Token = NewType("Token", str)
"""The fencing token: names one delivery of one job to one worker. Only writes with it are
accepted."""

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

RAW: Final = "_raw"
"""The member that holds a payload which is no JSON object (J-38)."""
CONFIRM_ATTRIBUTE: Final = "__jobwire_confirm__"
"""Set on a function that the task `tool` calls only after the caller has confirmed the call."""


# ── submitting ───────────────────────────────────────────────────────────────────────────────────


class JobRequest(NamedTuple):
    """A job to be made. None means: the default of the wire or the handler."""

    task: str
    payload_json: str
    job_id: JobId | None = None
    """Chosen by the caller, random: repeating the request with it makes no second job."""
    delay_s: float = 0.0
    ttl_s: int | None = None
    max_attempts: int | None = None
    timeout_s: float | None = None
    deadline_s: float | None = None
    """How long all of it may take, with its waits."""
    idempotency_key: str = ""
    fingerprint: str = ""
    """Equal for identical requests; an idempotency key with another fingerprint is an error."""
    tenant: str = ""
    traceparent: str = ""
    retry_of: JobId | None = None
    queue: str = ""
    """The name of its queue, on a wire whose producer serves several; empty: the default one."""
    records: int = 0
    """How many records were copied for it, under its `job_id`."""


class Submitted(NamedTuple):
    """A new job was made."""

    job_id: JobId
    created_ms: int = 0
    """When, by the queue's clock; 0 if unknown."""


class Already(NamedTuple):
    """The idempotency key has a job already; nothing was made."""

    job_id: JobId


class Mismatch(NamedTuple):
    """The idempotency key has a job, made from another request; nothing was made."""

    job_id: JobId


class Full(NamedTuple):
    """The queue, or the request's tenant, is at its limit; nothing was made."""

    waiting: int
    """How many there are."""
    bound: 'Literal["queue", "tenant_open", "tenant_retained", "tenant_bytes"]' = "queue"
    """Which limit: the queue, the tenant's open jobs, its retained jobs, or their bytes."""


SubmitAnswer: TypeAlias = Submitted | Already | Mismatch | Full


class CronState(NamedTuple):
    """The fleet's position in a cron entry."""

    due_ms: int
    """The last due time that was handled; nothing up to it is missing."""
    now_ms: int
    """The server's time."""


class AlreadyRun(NamedTuple):
    """The due time was handled before; nothing was made."""


class NotDue(NamedTuple):
    """By the server's clock it is not due yet; nothing was made."""


DueAnswer: TypeAlias = Submitted | AlreadyRun | NotDue | Full


class CancelOutcome(StrEnum):
    """The result of a cancel request."""

    CANCELED = "canceled"
    """The job was waiting and is canceled now."""
    REQUESTED = "requested"
    """The job is running: its worker is asked to stop it."""
    REQUESTED_FOREIGN = "requested_foreign"
    """The job is running with a foreign worker, which may ignore the request."""
    FINISHED = "finished"
    """The job had ended before."""
    GONE = "gone"
    """There is no such job."""


# ── running ──────────────────────────────────────────────────────────────────────────────────────


class JobInfo(NamedTuple):
    """One job, as its handler sees it."""

    id: JobId
    source: str
    """The name of the queue it came from."""
    task: str
    payload: Json
    attempt: int
    """1 at first; one more after each failed attempt."""
    deliveries: int
    """How often it was started, this start included; starts of crashed workers count."""
    created_ms: int
    tenant: str
    traceparent: str
    opts: "Mapping[str, Json]" = MappingProxyType({})
    """The job's options as its producer wrote them, on a wire that has them."""
    priority: int = 0
    parent: "ParentJob | None" = None
    reported: bool = False
    """An earlier run has reported something. Unlike `deliveries`, nothing takes this back."""


class ParentJob(NamedTuple):
    """The job that waits for this one."""

    queue: str
    id: str


class Children(NamedTuple):
    """The children of a job by what became of them; keys name the children on the wire."""

    values: "Mapping[str, Json]"
    """What completed children returned."""
    failed: "Mapping[str, str]"
    """Why children failed that fail their parent."""
    ignored: "Mapping[str, str]"
    """Why children failed without an effect on their parent."""
    pending: Sequence[str]


NO_CHILDREN: Final = Children({}, {}, {}, ())


class ChildrenRead(NamedTuple):
    """Children that were read already: `await` has them, and so has `result()` in a `def`."""

    children: Children

    def result(self) -> Children:
        return self.children

    def __await__(self) -> "Generator[object, None, Children]":
        return self.children
        yield  # makes this a generator


class Policy(NamedTuple):
    """The job's own limits; None where the handler's apply."""

    max_attempts: "int | None" = None
    timeout_s: "float | None" = None
    backoff: "Backoff | None" = None
    limited: bool = True
    """Whether the worker's limits apply to what the job requests."""
    deadline_left_s: "float | None" = None
    """How long it had left when it was leased, until its deadline."""


class LeasedJob(NamedTuple):
    """A job that this worker has started and holds under a lease."""

    job: JobInfo
    token: Token
    policy: Policy
    preset_outcome: "Outcome | None"
    """Set if the job must not run: settle it with this at once."""
    wire: object
    """Private data of the engine."""
    records: int = 0
    """How many records the job has, which are read before its handler is called."""


class JobRecord(NamedTuple):
    """What a job has from earlier runs: results of steps, and steps that were started."""

    fields: "Mapping[str, str]"
    """As `Report.step` of the kind `RECORD_KIND` names them."""
    progress_attempt: int = 1
    """The attempt of the latest new result: `max_attempts` counts from it."""
    now_ms: int = 0
    """The server's time when it was read."""


NO_RECORD: Final = JobRecord({})


class TaskDefinition(NamedTuple):
    """The public description of a worker's task."""

    name: str
    schema_json: str = ""
    example_json: str = ""
    on_failure: str = ""
    """The task of the job that follows a failed job of this one; empty: none."""


class ServedQueue(NamedTuple):
    """A queue that a worker process serves."""

    wire: str
    queue: str
    tasks: tuple[str, ...]
    """`*` is a handler of all other tasks."""


class MissingRequirement(NamedTuple):
    """Something that a worker needs for some of its tasks and does not have."""

    part: str
    """The missing part, in a word."""
    wrong: str
    fix: str
    """What to do about it."""


class CancelRequest(NamedTuple):
    """The delivery that this token names is to stop."""

    token: Token


# ── reporting ────────────────────────────────────────────────────────────────────────────────────


class Report(NamedTuple):
    """An event of a running job, encoded when the handler emitted it."""

    kind: str
    """`progress`, `log`, `token`, or the handler's own kind."""
    data_json: str
    step: str = ""
    number: int = 0
    """Counts the reports of one delivery from 1, so that a repeated one is written once."""


REPORT_KIND: Final = re.compile(r"[a-z][a-z0-9_.-]{0,63}")

DATA_KIND: Final = "=data"
CHILD_KIND: Final = "=child"
RECORD_KIND: Final = "=record"
CALL_KIND: Final = "=call"
SUBMIT_KIND: Final = "=submit"
"""Kinds of the requests that travel with the reports, to keep their order: `Context.update_data`
and `Context.add_child`; the record of a step, with the field in `Report.step` and its value in
`data_json`; the call of a step; a child of `Context.submit` (`ChildSubmission`), with the field of
the record that names it in `Report.step`. No handler can name them."""

RESULT_FIELD: Final = "s:"
STARTED_FIELD: Final = "o:"
ERROR_FIELD: Final = "e:"
"""Before the name of a step in a record: its result, a JSON array of the time of its end (the
server's, in place of the 0 that the worker writes), its milliseconds and the value; the mark of its
start, which an empty value removes; its error, an array like that of a result."""
DUE_FIELD: Final = "t:"
SIGNAL_DUE_FIELD: Final = "t:signal:"
SIGNAL_FIELD: Final = "g:"
CHILD_FIELD: Final = "k:"
ENDED_CHILD_FIELD: Final = "c:"
RESTARTS_FIELD: Final = "n:"
GATHER_FIELD: Final = "w:"
"""Fields of a record that the server writes: when a sleep (`t:name`) or a wait for a signal
(`t:signal:name`) ends, in ms; when a job that waits for children (`w:` and the first child's name)
looks again; a signal, a JSON array of its time and its value, without the value
if it did not come in time; a submitted child, a JSON array of its id and task; the end of a child,
a JSON array of its time, its status, and its result or error unless that is with the child; how
often the job was restarted."""


@dataclass(frozen=True, slots=True)
class ChildRequest:
    """The data of a report of the kind `CHILD_KIND`: a job that the running one waits for."""

    queue: str
    task: str
    payload_json: str
    job_id: JobId
    opts: dict[str, Any] = field(default_factory=dict[str, Any])
    """The child's options in the wire's own form."""
    children: tuple[dict[str, Any], ...] = ()
    """Its own children, likewise."""


class ChildSubmission(NamedTuple):
    """The data of a report of the kind `SUBMIT_KIND`: a job for the running one to wait for."""

    job_id: JobId
    task: str
    payload_json: str


def check_kind(kind: str, reserved: "Set[str]") -> str:
    """A report's kind as a handler may name it; ValueError with one clear line otherwise.
    `reserved` are the kinds that the job's engine writes itself."""
    if kind in reserved:
        raise ValueError(f"{kind!r} is reserved on this job's queue; choose another kind")
    if not REPORT_KIND.fullmatch(kind):
        raise ValueError(
            f"{kind!r} cannot name a report: use 1-64 of a-z 0-9 _ . - and begin with a letter"
        )
    return kind


class ReportAnswer(StrEnum):
    """The result of a report."""

    WRITTEN = "written"
    DROPPED = "dropped"
    """Not written: the server or the job's event history is full. The job goes on."""
    LOST = "lost"
    """Another worker has the job: stop its handler."""
    REFUSED = "refused"
    """A record that the server does not accept."""
    CHILD_LIMIT = "child_limit"
    """A child too many, or too deep."""
    UNKNOWN_TASK = "unknown_task"
    """A child whose task no worker has."""
    CANCEL = "cancel"
    """A child of a job that is to be canceled."""


class RenewAnswer(StrEnum):
    """The result of a lease renewal."""

    RENEWED = "renewed"
    CANCEL = "cancel"
    """Renewed, and the job is to be canceled."""
    LOST = "lost"
    """Another worker has the job: stop the handler."""
    ENDED = "ended"
    """The job has ended, or is gone: stop the handler."""
    REFUSED = "refused"
    """Not renewed: the server refuses the write. The handler goes on while its lease lasts."""


# ── settling ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class JobError:
    """Why an attempt failed."""

    code: str
    message: str
    """Public."""
    retryable: bool = False
    partial_json: str = ""
    """The partial result; empty for none."""
    detail: str = ""
    """Private: the traceback."""
    cause_type: str = ""
    """The type of the exception that the handler raised; empty for none. Like `cause_text`, each
    wire decides whether it is public."""
    cause_text: str = ""
    """The text of that exception."""


@dataclass(frozen=True, slots=True)
class Done:
    """The handler returned; `result_json` is its encoded result."""

    result_json: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The job failed and is not retried."""

    error: JobError


@dataclass(frozen=True, slots=True)
class RetryLater:
    """This attempt failed, the next one starts in `after_s` seconds."""

    after_s: float
    error: JobError
    again: tuple[str, ...] = ()
    """The steps whose errors have ended this attempt: the next one calls them again."""


@dataclass(frozen=True, slots=True)
class Canceled:
    """A cancel was requested and the handler stopped."""

    partial_json: str = ""


@dataclass(frozen=True, slots=True)
class Released:
    """Available to other workers at once; counts neither as an attempt nor as a delivery."""


@dataclass(frozen=True, slots=True)
class Postponed:
    """Run it again at `until_ms`, a time since 1970; not an attempt."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class RateLimited:
    """Its queue starts no job for `for_s` seconds; then it is run again. Not an attempt."""

    for_s: float


@dataclass(frozen=True, slots=True)
class WaitsForChildren:
    """Run it again when its children have ended, at once if they have. Not an attempt."""


@dataclass(frozen=True, slots=True)
class Suspended:
    """Run it again when its record has all `names`, at once if it has, or when it is due; or when
    that is true of any of `others`. Not an attempt."""

    kind: "Literal['sleep', 'signal', 'children']"
    name: str
    """What it waits for, for people."""
    after_s: float
    """In how many seconds it is due."""
    due_field: str = ""
    """The field of the record that keeps the due time; a later wait gets the one that is kept."""
    names: tuple[str, ...] = ()
    others: "tuple[Suspended, ...]" = ()
    """What other branches of the handler wait for (D-9a)."""

    def alone(self) -> "Iterator[Suspended]":
        """Each wait without the others."""
        yield self.beside(())
        yield from self.others

    def beside(self, others: "Iterable[Suspended]") -> "Suspended":
        """The same wait, of one branch of several."""
        return replace(self, others=tuple(others))


@dataclass(frozen=True, slots=True)
class Restarted:
    """Run it again with another payload and a record that has only its unread signals. Not an
    attempt."""

    payload_json: str
    read: tuple[str, ...] = ()
    """The signals that the run has read."""


Outcome: TypeAlias = (
    Done
    | Failed
    | RetryLater
    | Canceled
    | Released
    | Postponed
    | RateLimited
    | WaitsForChildren
    | Suspended
    | Restarted
)


class SettleAnswer(StrEnum):
    """The result of a settle. The same call repeated gets the same answer."""

    SETTLED = "settled"
    """The outcome is written."""
    ALREADY = "already"
    """The job had ended before, by another worker; nothing was written."""
    LOST = "lost"
    """Another worker has the job; nothing was written."""
    GONE = "gone"
    """The job's record is gone or unreadable; its queue entry was acknowledged."""
    REFUSED = "refused"
    """The server refuses the write, and the lease is still ours: retry."""


class Settled(NamedTuple):
    """The answers to a batch, in its order, and the next jobs, started and leased."""

    answers: "list[SettleAnswer]"
    leased: "list[LeasedJob]"
