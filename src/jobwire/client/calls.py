"""The API's methods as plans: which requests, which pauses, what comes of the answers. Pure.

A plan is a generator. It yields an `Ask` and is sent the `Answer` (or the trouble there was), or
yields a `Pause`; what it returns is the method's result. `aio` and `sync` carry plans out.
"""

import json
import math
import secrets
import time
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Final, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from jobwire.client.errors import (
    AlreadyFinished,
    ApiError,
    BadAnswer,
    Invalid,
    JobCanceled,
    JobFailed,
    TimedOut,
    Unreachable,
    from_answer,
    from_problem,
)
from jobwire.client.messages import BatchAnswer, CancelAnswer, Job, JobPage, NewJob
from jobwire.client.retry_budget import RetryBudget
from jobwire.job.ids import random_fraction
from jobwire.job.messages import Json

T = TypeVar("T")
JOBS: Final = "/v1/jobs"
MAX_BATCH: Final = 1_000
LONGEST_WAIT_S: Final = 55.0
"""A little under what the gateway allows (60), so that its answer is not cut off by a proxy."""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One HTTP request."""

    method: str
    path: str
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    wait_s: float = 0.0
    """How long the gateway may think about it, beyond the usual."""


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """What came back."""

    status: int
    body: bytes
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait a moment."""

    seconds: float


Reply: TypeAlias = ApiResponse | Unreachable | None
Plan: TypeAlias = Generator[ApiRequest | Pause, Reply, T]


def new_key() -> str:
    """An idempotency key that nobody else has."""
    return f"auto-{secrets.token_hex(16)}"


# ── one request, asked until it is answered ──────────────────────────────────────────────────────


def answered(ask: ApiRequest, patience: RetryBudget) -> Plan[ApiResponse]:
    """The answer, if it says success; ClientError for anything else.

    Every request of ours may be asked again: those that make something carry a key that makes it
    once, and the others change nothing a second time.
    """
    while True:
        reply = yield ask
        if isinstance(reply, ApiResponse):
            if reply.status < 300:
                patience.answered()
                return reply
            trouble = from_answer(reply.status, reply.body, reply.retry_after_s)
        else:
            assert reply is not None
            trouble = reply
        pause_s = patience.pause_s(trouble, time.monotonic(), random_fraction())
        if pause_s is None:
            raise trouble
        yield Pause(pause_s)


def read(answer: ApiResponse, kind: type[T]) -> T:
    """The answer's body, as a type."""
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadAnswer(f"an answer that cannot be read ({error}): is this jobwire?") from None


def asked(path: str, kind: type[T], patience: RetryBudget) -> Plan[T]:
    """What lies at a path, for reading."""
    return read((yield from answered(ApiRequest("GET", path), patience)), kind)


# ── the methods ──────────────────────────────────────────────────────────────────────────────────


def submit(new: NewJob, patience: RetryBudget, wait_s: float | None = None) -> Plan[Job]:
    """Make one job. The body is made once, so that every try is the same request to the letter."""
    headers = {"Idempotency-Key": new.idempotency_key or new_key()}
    if wait_s:
        headers["Prefer"] = _prefer(wait_s)
    body = msgspec.json.encode(_members(new, key=None))
    ask = ApiRequest("POST", JOBS, body, headers, wait_s=min(wait_s or 0.0, LONGEST_WAIT_S))
    return read((yield from answered(ask, patience)), Job)


def get(job_id: str, patience: RetryBudget, wait_s: float | None = None) -> Plan[Job]:
    """The job as it stands, or as it stands when it has ended or `wait_s` have passed."""
    headers = {"Prefer": _prefer(wait_s)} if wait_s else {}
    ask = ApiRequest(
        "GET", job_path(job_id), None, headers, wait_s=min(wait_s or 0.0, LONGEST_WAIT_S)
    )
    return read((yield from answered(ask, patience)), Job)


def wait(job_id: str, patience: RetryBudget, timeout_s: float | None) -> Plan[Job]:
    """The job when it has ended; TimedOut where it does not in time."""
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left_s = LONGEST_WAIT_S if deadline_s is None else deadline_s - time.monotonic()
        # A last look is taken even where no time is left: the job may have ended long ago.
        job = yield from get(job_id, patience, max(0.0, min(left_s, LONGEST_WAIT_S)))
        if job.ended:
            return job
        if deadline_s is not None and timeout_s is not None and time.monotonic() >= deadline_s:
            raise TimedOut(job_id, timeout_s)


def run(new: NewJob, patience: RetryBudget, timeout_s: float | None) -> Plan[Json]:
    """Submit and wait: the result, or what went wrong."""
    began_s = time.monotonic()
    job = yield from submit(new, patience, LONGEST_WAIT_S if timeout_s is None else timeout_s)
    if not job.ended:
        spent_s = time.monotonic() - began_s
        try:
            left_s = None if timeout_s is None else max(0.0, timeout_s - spent_s)
            job = yield from wait(job.job_id, patience, left_s)
        except TimedOut:
            assert timeout_s is not None
            raise TimedOut(job.job_id, timeout_s) from None
    return outcome(job)


def outcome(job: Job) -> Json:
    """The result of a job that has ended, or what became of it as an error."""
    match job.status:
        case "done":
            return job.result
        case "canceled":
            raise JobCanceled(job)
        case _:
            raise JobFailed(job)


@dataclass(frozen=True, slots=True)
class ListFilter:
    """Which jobs a list shall show."""

    status: str | None = None
    task: str | None = None
    limit: int | None = None
    cursor: str | None = None


def listing(wanted: ListFilter, patience: RetryBudget) -> Plan[JobPage]:
    """A page of jobs, newest first."""
    given = {name: value for name, value in asdict(wanted).items() if value is not None}
    path = f"{JOBS}?{urlencode(given)}" if given else JOBS
    return (yield from asked(path, JobPage, patience))


def cancel(job_id: str, patience: RetryBudget) -> Plan[CancelAnswer]:
    """Ask for the end of a job."""
    ask = ApiRequest("POST", f"{job_path(job_id)}/cancel")
    try:
        return read((yield from answered(ask, patience)), CancelAnswer)
    except AlreadyFinished:
        # Asked again after an answer was lost: the first try may be what ended it.
        if patience.tries:
            job = yield from get(job_id, patience)
            if job.status == "canceled":
                return CancelAnswer(job_id, "canceled")
        raise


def retry(job_id: str, patience: RetryBudget) -> Plan[Job]:
    """Submit a new job like one that failed or was canceled."""
    headers = {"Idempotency-Key": new_key()}
    ask = ApiRequest("POST", f"{job_path(job_id)}/retry", None, headers)
    return read((yield from answered(ask, patience)), Job)


def batch(jobs: Sequence[NewJob], patience: RetryBudget) -> Plan[list[str | ApiError]]:
    """Make many jobs; for each its id, or why there is none. Any number: sent in portions."""
    made: list[str | ApiError] = []
    for first in range(0, len(jobs), MAX_BATCH):
        portion = [
            _members(job, job.idempotency_key or new_key())
            for job in jobs[first : first + MAX_BATCH]
        ]
        ask = ApiRequest("POST", f"{JOBS}/batch", msgspec.json.encode({"jobs": portion}))
        results = read((yield from answered(ask, patience)), BatchAnswer).results
        if len(results) != len(portion):
            raise BadAnswer(f"{len(results)} results for {len(portion)} jobs: is this jobwire?")
        made += [
            from_problem({"status": result.status, **(result.problem or {})})
            if result.job_id is None
            else result.job_id
            for result in results
        ]
    return made


def job_path(job_id: str) -> str:
    """Where a job lies; whatever the id holds, it stays in its place."""
    return f"{JOBS}/{quote(job_id, safe='')}"


def _payload(value: object) -> msgspec.Raw:
    """A payload as JSON: a Raw goes out as it is, byte for byte. What has no JSON form (NaN, half a
    surrogate, a cycle) is refused here, in words."""
    if isinstance(value, msgspec.Raw):
        return value
    try:
        plain = msgspec.to_builtins({} if value is None else value)
        text = json.dumps(plain, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        return msgspec.Raw(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        said = f"the payload has no JSON form: {error}"
        raise Invalid(said, code="invalid_payload", status=422) from None


def _members(new: NewJob, key: str | None) -> dict[str, object]:
    """What a request says of a job to be made: everything that is given."""
    whole = replace(new, payload=_payload(new.payload), idempotency_key=key)
    said = {field.name: getattr(whole, field.name) for field in fields(whole)}
    return {name: value for name, value in said.items() if value is not None}


def _prefer(wait_s: float) -> str:
    return f"wait={math.ceil(min(wait_s, LONGEST_WAIT_S))}"
