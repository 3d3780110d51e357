"""The operations of jobs. JSON of callers and handlers is passed byte for byte."""

from dataclasses import replace
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from jobwire.api.fleet import CRON_NOT_FOUND
from jobwire.api.operation import Header, Operation
from jobwire.api.problems import UNAVAILABLE, ProblemKind
from jobwire.api.wire import WireJob

JOBS: Final = "/v1/jobs"
DEFAULT_QUEUE: Final = "default"
QUEUE_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"
MAX_TTL_S: Final = 2_592_000
MAX_ATTEMPTS: Final = 1_000
MAX_BATCH: Final = 1_000
MAX_PAYLOAD_BYTES: Final = 204_800
MAX_JOB_BODY: Final = MAX_PAYLOAD_BYTES + 4096
"""The largest payload, and the other members."""
MAX_BATCH_BODY: Final = 8 << 20
MAX_SIGNAL_BYTES: Final = 65_536
MAX_PAGE: Final = 200
_EVENT_ID: Final = r"^([0-9]{1,19}(-[0-9]{1,19})?)?$"
"""Empty, as a browser sends it before the first event: from the beginning."""
_CURSOR: Final = r"^[0-9]{1,16}-[\x21-\x7e]{1,512}$(?!\n)"

StatusName = Literal["queued", "running", "done", "error", "canceled"]
STATUSES: Final = ("queued", "running", "done", "error", "canceled")
ENDED: Final = frozenset({"done", "error", "canceled"})
STATE_EVENTS: Final = frozenset({*STATUSES, "retrying", "suspended", "step_done"})
"""Types of events that are never taken back; all others are reports of a handler."""
Status = Annotated[str, Meta(extra_json_schema={"enum": list(STATUSES)})]
Anything = Annotated[Any, Meta(extra_json_schema={})]
Object = Annotated[Any, Meta(extra_json_schema={"type": "object"})]
ErrorValue = Annotated[Any, Meta(extra_json_schema={"type": ["object", "string", "null"]})]

# ── requests ─────────────────────────────────────────────────────────────────────────────────────


Whole = Annotated[float, Meta(multiple_of=1, extra_json_schema={"type": "integer"})]
"""In JSON 5.0 is a whole number as well."""


_NAME: Final = (
    "1 to 100 letters, digits, `_`, `.` and `-`, of which the first is a letter or a digit"
)
_KEY: Final = "1 to 255 printable ASCII characters"


class SubmitRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A job to submit."""

    task: Annotated[str, Meta(min_length=1, max_length=200)]
    payload: Annotated[Raw, Meta(extra_json_schema={"type": "object"})]
    ttl_s: Annotated[Whole, Meta(ge=1, le=MAX_TTL_S)] | None = None
    delay_s: Annotated[float, Meta(ge=0, le=MAX_TTL_S)] | None = None
    max_attempts: Annotated[Whole, Meta(ge=1, le=MAX_ATTEMPTS)] | None = None
    timeout_s: Annotated[float, Meta(gt=0, le=MAX_TTL_S)] | None = None
    deadline_s: (
        Annotated[float, Meta(gt=0, le=MAX_TTL_S, description="the whole job, with its waits")]
        | None
    ) = None
    queue: Annotated[str, Meta(pattern=rf"^{QUEUE_NAME}$(?!\n)", description=_NAME)] | None = None


class BatchItem(SubmitRequest, frozen=True, forbid_unknown_fields=True):
    """An item of a batch; it may have its own idempotency key."""

    idempotency_key: (
        Annotated[str, Meta(pattern=r"^[\x20-\x7e]{1,255}$(?!\n)", description=_KEY)] | None
    ) = None


_Item = Annotated[
    Raw,
    Meta(
        description="as the body of `POST /v1/jobs`, optionally with `idempotency_key`",
        extra_json_schema={},
    ),
]


class Batch(Struct, frozen=True, forbid_unknown_fields=True):
    """Many jobs at once; a fault in one of them is reported in its result."""

    jobs: Annotated[list[_Item], Meta(min_length=1, max_length=MAX_BATCH)]


class JobFilter(Struct, frozen=True):
    """The query of a list of jobs."""

    status: Annotated[
        StatusName | None, Meta(description="only jobs in this state", examples=["error"])
    ] = None
    task: Annotated[str, Meta(description="only jobs of this task", examples=["chat"])] = ""
    q: Annotated[
        str,
        Meta(
            max_length=200,
            description="only jobs with this text in their id or task, in any case",
            examples=["cha"],
        ),
    ] = ""
    delayed: Annotated[
        Literal["true", "false"] | None,
        Meta(
            description="`true`: of the waiting jobs only those that are not due yet; `false`: "
            "only those in the queue. Selects waiting jobs.",
            examples=["true"],
        ),
    ] = None
    limit: Annotated[
        int, Meta(ge=1, le=MAX_PAGE, description="how many; default 50", examples=[20])
    ] = 50
    cursor: Annotated[
        Annotated[str, Meta(pattern=_CURSOR)] | None,
        Meta(
            description="`cursor` of the previous page",
            examples=["1767225600000-0b7c1d52-7d0e-4c55-9a0f-2f6d1c1f7a10"],
            extra={"fault": "is not a cursor of a list"},
        ),
    ] = None
    tenant: Annotated[
        str | None,
        Meta(
            description="for a key of the tenant `*`: the jobs of this tenant",
            examples=["default"],
        ),
    ] = None


class RetryOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """How to retry a job."""

    keep_steps: Annotated[
        bool,
        Meta(
            description="the new job has the recorded steps, ended sleeps, signals and done "
            "children of the old one, and goes on after them"
        ),
    ] = False


class EventFilter(Struct, frozen=True):
    """The query of a job's event stream."""

    last_event_id: Annotated[
        str,
        Meta(
            description="as the header `Last-Event-ID`, for clients that cannot send it",
            examples=["1767225600000-0"],
            extra_json_schema={"pattern": _EVENT_ID},  # the endpoint has a problem of its own
        ),
    ] = ""
    data: Annotated[
        Literal["plain", "whole", "message"],
        Meta(
            description="`plain`: only the event's data in `data:`; `message`: every event is "
            "named `message`, for an EventSource that does not know all types",
            examples=["plain"],
        ),
    ] = "whole"
    view: Annotated[
        Literal["plain", "clean"],
        Meta(
            description="`clean`: without the reports of runs that a later run has superseded; a "
            "reader that has some gets `rollback`",
            examples=["clean"],
        ),
    ] = "plain"


# ── answers ──────────────────────────────────────────────────────────────────────────────────────


class Failure(Struct, frozen=True):
    """Why a job failed, as far as it is known."""

    code: str = ""
    message: str = ""
    retryable: bool = False
    attempt: int = 1
    partial: Any = None
    """The partial result, if the handler reported one."""


class WaitsFor(Struct, frozen=True, kw_only=True):
    """What a suspended job waits for."""

    kind: Annotated[
        str,
        Meta(extra_json_schema={"enum": ["sleep", "signal", "children"]}),
    ] = msgspec.field(name="for")
    name: str
    until: Annotated[int, Meta(description="when it goes on in any case")]
    more: Annotated[
        int | UnsetType,
        Meta(description="how many other waits its branches have; absent without any"),
    ] = UNSET


class JobLine(Struct, frozen=True, kw_only=True):
    """A job in a list: without members that may be large. Times are milliseconds since 1970."""

    job_id: str
    task: str
    status: Status
    error: ErrorValue = None
    created_ts: int
    started_ts: int | None = None
    updated_ts: int
    attempt: int = 1
    worker: str | None = None
    progress: Anything = None
    cancel_ts: int | None = None
    due_ts: Annotated[int | None, Meta(description="when a delayed or suspended job is due")] = None
    retry_of: str | None = None
    queue: str = DEFAULT_QUEUE
    waits_for: Annotated[
        WaitsFor | UnsetType | None, Meta(description="only where the job is suspended")
    ] = UNSET

    @property
    def ended(self) -> bool:
        """Whether the job is done, failed or canceled."""
        return self.status in ENDED

    @property
    def failure(self) -> Failure:
        """The error as an object; a foreign worker may have written any JSON."""
        if self.error is None:
            return Failure()
        try:
            return msgspec.convert(self.error, Failure)
        except msgspec.ValidationError:
            text = self.error if isinstance(self.error, str) else msgspec.json.encode(self.error)
            return Failure(message=text if isinstance(text, str) else text.decode())


class StepInfo(Struct, frozen=True, kw_only=True):
    """A recorded step of a job. Without an end it was started, and has no result."""

    name: str
    ended_ts: int | None
    ms: Annotated[int | None, Meta(description="how long its function took")]
    bytes: Annotated[int | None, Meta(description="of its result, as JSON")]


class StepAnswer(StepInfo, frozen=True, kw_only=True):
    """A recorded step with its result."""

    result: Anything = None


class ParentInfo(Struct, frozen=True, kw_only=True):
    """The job that submitted this one with `ctx.submit`."""

    job_id: str
    name: Annotated[str, Meta(description="of this job, in the record of its parent")]


class ChildInfo(Struct, frozen=True, kw_only=True):
    """A child of a job."""

    job_id: str
    name: str
    task: str
    status: Annotated[str | None, Meta(description="how it ended; null: it has not")]


class ChildrenInfo(Struct, frozen=True, kw_only=True):
    """The children of a job."""

    total: int
    open: int
    done: int
    error: int
    canceled: int
    first: Annotated[list[ChildInfo], Meta(description="at most 100, by name")]


class SignalAnswer(Struct, frozen=True):
    """The result of a signal."""

    job_id: str
    name: str
    outcome: Annotated[
        str,
        Meta(
            description="`recorded`: now. `same`: it has this value since an earlier request.",
            extra_json_schema={"enum": ["recorded", "same"]},
        ),
    ]


class Job(JobLine, frozen=True, kw_only=True):
    """The current state of a job. Times are milliseconds since 1970, by Valkey's clock. Without
    the scope `read`, `payload`, `result`, `error` and `progress` are omitted. `exception_type`,
    `exception_message` and `traceback` are those of the latest failed attempt; they need the scope
    `admin`."""

    payload: Object = None
    result: Anything = None
    ttl_s: int
    max_attempts: int | None = None
    timeout_s: float | None = None
    deadline_s: float | None = None
    steps: Annotated[
        list[StepInfo] | None, Meta(description="recorded steps by their end; left out: none")
    ] = None
    durability: Annotated[
        Annotated[str, Meta(extra_json_schema={"enum": ["memory", "disk"]})] | None,
        Meta(description="in the answer to a submission: what the job survives"),
    ] = None
    on_failure: Annotated[
        str | None, Meta(description="the job that followed this failed one; left out: none")
    ] = None
    failure_of: Annotated[
        str | None, Meta(description="the failed job that this one follows; left out: none")
    ] = None
    parent: Annotated[ParentInfo | None, Meta(description="left out: none")] = None
    children: Annotated[ChildrenInfo | None, Meta(description="left out: none")] = None
    exception_type: str | None = None
    exception_message: str | None = None
    traceback: str | None = None


class JobPage(Struct, frozen=True, omit_defaults=True):
    """A page of jobs, newest first."""

    jobs: list[JobLine]
    scanned: Annotated[int, Meta(description="how many jobs were scanned for this page")]
    total: Annotated[
        int, Meta(description="how many jobs are stored; may count some that have just expired")
    ]
    cursor: Annotated[
        str | None, Meta(description="where the next page begins; null on the last page")
    ]
    incomplete: Annotated[
        list[int], Meta(description="shards that did not answer; absent if all did")
    ] = []


class CancelAnswer(Struct, frozen=True):
    """The result of a cancel request."""

    job_id: str
    outcome: Annotated[
        str,
        Meta(
            description="`canceled`: the job has ended. `canceling`: its worker was notified. "
            "`cancel_requested`: its worker is not ours and may ignore the request.",
            extra_json_schema={"enum": ["canceled", "canceling", "cancel_requested"]},
        ),
    ]


_ProblemDocument = Annotated[Any, Meta(extra_json_schema={"$ref": "#/components/schemas/Problem"})]


class BatchResult(Struct, frozen=True, omit_defaults=True):
    """The result of one item."""

    status: Annotated[int, Meta(description="the status that `POST /v1/jobs` would return")]
    job_id: str | None = None
    replayed: bool = False
    durability: str | None = None
    problem: _ProblemDocument = None


class BatchAnswer(Struct, frozen=True):
    """The result of each item, in order."""

    results: list[BatchResult]


class ServerSentEvent(Struct, frozen=True):
    """Each event of a stream; its `data` is JSON."""

    event: str
    data: str
    id: Annotated[
        str | UnsetType, Meta(description="position to resume after; not on `hello` and `gap`")
    ] = UNSET


class Hello(Struct, frozen=True):
    """The first event of every stream; it has no id."""

    job_id: str
    status: Status


# ── problems ─────────────────────────────────────────────────────────────────────────────────────

JOB_NOT_FOUND: Final = ProblemKind(
    "job_not_found", 404, "there is no such job; a job is removed when its time to live is over"
)
STEP_NOT_FOUND: Final = ProblemKind(
    "step_not_found",
    404,
    "the job has no result of a step of this name; GET /v1/jobs/{id} lists its steps",
)
BAD_IDEMPOTENCY_KEY: Final = ProblemKind(
    "bad_idempotency_key", 400, "Idempotency-Key must be 1 to 255 printable ASCII characters"
)
UNKNOWN_TASK: Final = ProblemKind(
    "unknown_task", 422, "no worker has or had this task; GET /v1/tasks lists the known tasks"
)
INVALID_PAYLOAD: Final = ProblemKind(
    "invalid_payload", 422, "the payload must be a strict JSON object, at most 64 levels deep"
)
PAYLOAD_TOO_LARGE: Final = ProblemKind(
    "payload_too_large", 413, "the payload must not have more than 204800 bytes"
)
IDEMPOTENCY_MISMATCH: Final = ProblemKind(
    "idempotency_mismatch", 409, "this Idempotency-Key was used with another request body"
)
UNKNOWN_QUEUE: Final = ProblemKind(
    "unknown_queue", 422, "the job cannot be put into this queue; GET /v1/jobs/queues lists them"
)
QUEUE_FULL: Final = ProblemKind("queue_full", 429, "too many jobs are waiting; retry later")
NOT_DURABLE: Final = ProblemKind(
    "not_durable", 503, "the server does not meet the level of `jobs.durability`"
)
ALREADY_FINISHED: Final = ProblemKind("already_finished", 409, "the job has already ended")
ALREADY_SIGNALED: Final = ProblemKind(
    "already_signaled", 409, "the signal has another value, or its wait is over"
)
BAD_SIGNAL: Final = ProblemKind(
    "bad_signal",
    422,
    "a signal has a name of 1 to 100 of A-Z a-z 0-9 _ . - and a strict JSON value",
)
TOO_MANY_SIGNALS: Final = ProblemKind(
    "too_many_signals", 409, "the job has 100 signals, or too many bytes of them"
)
NOT_RETRYABLE: Final = ProblemKind(
    "not_retryable", 409, "only a failed or canceled job can be retried"
)
CONTRACT_VIOLATED: Final = ProblemKind(
    "contract_violated", 502, "another program has written an invalid job"
)

# ── operations ───────────────────────────────────────────────────────────────────────────────────

_ID: Final = "0b7c1d52-7d0e-4c55-9a0f-2f6d1c1f7a10"
_NEW: Final[dict[str, object]] = {
    "job_id": _ID,
    "task": "chat",
    "status": "queued",
    "payload": {"prompt": "Say hello in one sentence."},
    "result": None,
    "error": None,
    "created_ts": 1767225600000,
    "started_ts": None,
    "updated_ts": 1767225600000,
    "ttl_s": 86400,
    "attempt": 1,
    "max_attempts": None,
    "timeout_s": None,
    "deadline_s": None,
    "worker": None,
    "progress": None,
    "cancel_ts": None,
    "due_ts": None,
    "retry_of": None,
    "queue": "default",
}
_DONE: Final = {
    **_NEW,
    "status": "done",
    "result": {"text": "Hello!"},
    "started_ts": 1767225600004,
    "updated_ts": 1767225601204,
    "worker": "jobwire-host-4711-a1b2c3d4",
}
_REQUEST: Final = {"task": "chat", "payload": {"prompt": "Say hello in one sentence."}}
_IDEMPOTENCY_KEY: Final = Header(
    "Idempotency-Key",
    "A second request with the same key and the same body returns the first job.",
    Annotated[str, Meta(pattern=r"^[\x20-\x7e]*$", min_length=1, max_length=255)],
    "order-4711",
)
_PREFER: Final = Header(
    "Prefer",
    "`wait=N`: respond when the job has ended, or after N seconds (at most 60).",
    str,
    "wait=10",
)
_ALSO: Final = {
    200: "The existing job of this Idempotency-Key, or a job that has ended while the request "
    "waited"
}
_SUBMITTING: Final = (
    BAD_IDEMPOTENCY_KEY,
    UNKNOWN_TASK,
    UNKNOWN_QUEUE,
    INVALID_PAYLOAD,
    IDEMPOTENCY_MISMATCH,
    QUEUE_FULL,
    NOT_DURABLE,
    UNAVAILABLE,
)

SUBMIT: Final = Operation(
    "POST",
    JOBS,
    "submit",
    "Submit a job",
    tag="jobs",
    headers=(_IDEMPOTENCY_KEY, _PREFER),
    body=SubmitRequest,
    body_example=_REQUEST,
    max_body=MAX_JOB_BODY,
    too_deep=INVALID_PAYLOAD,
    answer=Job,
    example={**_NEW, "durability": "memory"},
    status=202,
    also=_ALSO,
    problems=(*_SUBMITTING, PAYLOAD_TOO_LARGE),
)
BATCH: Final = Operation(
    "POST",
    f"{JOBS}/batch",
    "submit",
    "Submit up to 1000 jobs at once",
    tag="jobs",
    takes=Batch,  # a fault in one item does not affect the others
    body_example={"jobs": [{**_REQUEST, "idempotency_key": "order-4711"}]},
    max_body=MAX_BATCH_BODY,
    answer=BatchAnswer,
    example={"results": [{"status": 202, "job_id": _ID, "durability": "memory"}]},
    problems=(NOT_DURABLE, UNAVAILABLE),
    hides=True,
)
GET: Final = Operation(
    "GET",
    JOBS + "/{id}",
    "read",
    "The current state of a job",
    tag="jobs",
    headers=(_PREFER,),
    answer=Job,
    example=_DONE,
    problems=(JOB_NOT_FOUND, CONTRACT_VIOLATED, UNAVAILABLE),
)
STEP: Final = Operation(
    "GET",
    JOBS + "/{id}/steps/{name}",
    "read",
    "The result of a recorded step",
    tag="jobs",
    answer=StepAnswer,
    example={
        "name": "transcribe",
        "ended_ts": 1767225600000,
        "ms": 1200,
        "bytes": 16,
        "result": "hello, everyone",
    },
    problems=(JOB_NOT_FOUND, STEP_NOT_FOUND, CONTRACT_VIOLATED, UNAVAILABLE),
)
LIST: Final = Operation(
    "GET",
    JOBS,
    "read",
    "Jobs, newest first",
    tag="jobs",
    description="At most 1000 jobs are scanned for a page, however few of them match.",
    query=JobFilter,
    answer=JobPage,
    example={
        "jobs": [
            {
                "job_id": _ID,
                "task": "chat",
                "status": "done",
                "error": None,
                "created_ts": 1767225600000,
                "started_ts": 1767225600004,
                "updated_ts": 1767225601204,
                "attempt": 1,
                "worker": "jobwire-host-4711-a1b2c3d4",
                "progress": None,
                "cancel_ts": None,
                "due_ts": None,
                "retry_of": None,
                "queue": "default",
            }
        ],
        "scanned": 1,
        "total": 1,
        "cursor": None,
    },
    problems=(UNAVAILABLE,),
)
CANCEL: Final = Operation(
    "POST",
    JOBS + "/{id}/cancel",
    "submit",
    "Cancel a job",
    tag="jobs",
    answer=CancelAnswer,
    example={"job_id": _ID, "outcome": "canceled"},
    also={202: "The job is running: its worker was asked to stop"},
    problems=(JOB_NOT_FOUND, ALREADY_FINISHED, CONTRACT_VIOLATED, UNAVAILABLE),
)
DELETE: Final = replace(CANCEL, method="DELETE", path=JOBS + "/{id}")
SIGNAL: Final = Operation(
    "POST",
    JOBS + "/{id}/signals/{name}",
    "signal",
    "Send a signal to a job",
    tag="jobs",
    description="The body is the signal's value, any JSON; without a body it is null. A signal has "
    "one value. One that comes before the job waits for it is kept.",
    parameter_types={"name": Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]},
    takes=Anything,
    body_example={"by": "ann"},
    max_body=MAX_SIGNAL_BYTES,
    answer=SignalAnswer,
    example={"job_id": _ID, "name": "approval", "outcome": "recorded"},
    status=202,
    also={200: "The signal has this value since an earlier request"},
    problems=(
        JOB_NOT_FOUND,
        ALREADY_FINISHED,
        ALREADY_SIGNALED,
        TOO_MANY_SIGNALS,
        BAD_SIGNAL,
        UNAVAILABLE,
    ),
)
RETRY: Final = Operation(
    "POST",
    JOBS + "/{id}/retry",
    "submit",
    "Retry a failed or canceled job as a new job",
    tag="jobs",
    headers=(_IDEMPOTENCY_KEY, _PREFER),
    body=RetryOptions | None,
    body_example={"keep_steps": True},
    answer=Job,
    example={**_NEW, "retry_of": "5f1c1f7a-7d0e-4c55-9a0f-0b7c1d522f6d"},
    status=202,
    also=_ALSO,
    problems=(*_SUBMITTING, JOB_NOT_FOUND, NOT_RETRYABLE, CONTRACT_VIOLATED),
)
RUN_CRON: Final = Operation(
    "POST",
    "/v1/crons/{name}/run",
    "admin",
    "Run a cron entry now, also a paused one",
    tag="fleet",
    description="A job as at a due time; the schedule is not changed.",
    headers=(_IDEMPOTENCY_KEY, _PREFER),
    answer=Job,
    example=_NEW,
    status=202,
    also=_ALSO,
    problems=(*_SUBMITTING, CRON_NOT_FOUND),
)
EVENTS: Final = Operation(
    "GET",
    JOBS + "/{id}/events",
    "read",
    "Live events of a job",
    tag="jobs",
    description="Server-sent events: `hello` first, then every event since the beginning (or since "
    "`Last-Event-ID`), each with its id; the stream ends after `done`, `error` or `canceled`. "
    '`gap` is sent where events may be missing. With `view=clean`, `rollback` (`{"to": id}`): the '
    "reports after that event do not count any more.",
    query=EventFilter,
    headers=(
        Header(
            "Last-Event-ID",
            "the id of the last event received",
            Annotated[str, Meta(pattern=_EVENT_ID)],
            "1767225600000-0",
        ),
    ),
    answer=ServerSentEvent,
    media_type="text/event-stream",
    example={
        "id": "1767225600000-0",
        "event": "queued",
        "data": '{"type":"queued","ts":1767225600000,"step":"gateway.enqueue","data":{}}',
    },
    also={204: "`Last-Event-ID` is the job's last event: no events follow, do not reconnect"},
    problems=(JOB_NOT_FOUND, CONTRACT_VIOLATED, UNAVAILABLE),
    stream=True,
)
WIRE: Final = Operation(
    "GET",
    JOBS + "/{id}/wire",
    "read",
    "The keys of a job, as they are on the server",
    tag="jobs",
    description="For authors of other clients. Read-only; long values are cut, of the events "
    "the last 50 are shown.",
    answer=WireJob,
    example={
        "job_id": _ID,
        "wire": "streams",
        "now_ts": 1767225601204,
        "keys": [
            {
                "key": f"job:{_ID}",
                "type": "hash",
                "ttl_ms": 86_400_000,
                "size": 9,
                "fields": [{"name": "status", "value": "done"}],
                "command": ["HGETALL", f"job:{_ID}"],
                "path": f"/v1/jobs/{_ID}",
            }
        ],
    },
    problems=(JOB_NOT_FOUND, UNAVAILABLE),
)
