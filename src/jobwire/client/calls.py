"""The API's methods as plans of requests and pauses. Pure.

A plan is a generator. It yields an `ApiRequest` and is sent the `ApiResponse` (or the error), or
yields a `Pause`; its return value is the method's result. `aio` and `sync` execute plans.
"""

import json
import math
import secrets
import time
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, TypeAlias, TypeVar
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
    from_problem,
    from_response,
)
from jobwire.client.messages import (
    BatchAnswer,
    CancelAnswer,
    Job,
    JobPage,
    NewJob,
    PauseAnswer,
    PurgeAnswer,
)
from jobwire.client.retry_budget import RetryBudget
from jobwire.job.ids import random_fraction
from jobwire.job.messages import Json
from jobwire.task import HasTask, task_of

T = TypeVar("T")
JOBS: Final = "/v1/jobs"
QUEUES: Final = "/v1/jobs/queues"
PREDICTIONS: Final = "/v1/predictions"
MAX_BATCH: Final = 1_000
MAX_WAIT_S: Final = 55.0
"""Below the gateway's limit (60), so that a proxy does not cut the response off."""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One HTTP request."""

    method: str
    path: str
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    wait_s: float = 0.0
    """How long the gateway may hold the request (`Prefer: wait`)."""


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """One HTTP response."""

    status: int
    body: bytes
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """Sleep before the next step."""

    seconds: float


Reply: TypeAlias = ApiResponse | Unreachable | None
Plan: TypeAlias = Generator[ApiRequest | Pause, Reply, T]


def new_key() -> str:
    """Return a random idempotency key."""
    return f"auto-{secrets.token_hex(16)}"


# ── one request with its retries ─────────────────────────────────────────────────────────────────


def send(request: ApiRequest, budget: RetryBudget) -> Plan[ApiResponse]:
    """Return the successful response; raises ClientError otherwise.

    Every request may be repeated: those that create something carry an idempotency key, and the
    others are idempotent.
    """
    while True:
        reply = yield request
        if isinstance(reply, ApiResponse):
            if reply.status < 300:
                budget.responded()
                return reply
            error = from_response(reply.status, reply.body, reply.retry_after_s)
        else:
            assert reply is not None
            error = reply
        pause_s = budget.pause_s(error, time.monotonic(), random_fraction())
        if pause_s is None:
            raise error
        yield Pause(pause_s)


def read(response: ApiResponse, kind: type[T]) -> T:
    """Decode the body."""
    try:
        return msgspec.json.decode(response.body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadAnswer(f"a response that cannot be read ({error}): is this jobwire?") from None


def fetch(path: str, kind: type[T], budget: RetryBudget) -> Plan[T]:
    """GET a path and decode the body."""
    return read((yield from send(ApiRequest("GET", path), budget)), kind)


# ── the methods ──────────────────────────────────────────────────────────────────────────────────


def submit(new: NewJob, budget: RetryBudget, wait_s: float | None = None) -> Plan[Job]:
    """Create one job. The body is encoded once, so that every try sends the same bytes."""
    headers = {"Idempotency-Key": new.idempotency_key or new_key()}
    if wait_s:
        headers["Prefer"] = prefer(wait_s)
    body = msgspec.json.encode(_members(new, key=None))
    request = ApiRequest("POST", JOBS, body, headers, wait_s=min(wait_s or 0.0, MAX_WAIT_S))
    return read((yield from send(request, budget)), Job)


def get(job_id: str, budget: RetryBudget, wait_s: float | None = None) -> Plan[Job]:
    """Return the job now, or when it has ended or `wait_s` have passed."""
    headers = {"Prefer": prefer(wait_s)} if wait_s else {}
    request = ApiRequest(
        "GET", job_path(job_id), None, headers, wait_s=min(wait_s or 0.0, MAX_WAIT_S)
    )
    return read((yield from send(request, budget)), Job)


def wait(job_id: str, budget: RetryBudget, timeout_s: float | None) -> Plan[Job]:
    """Wait until the job has ended; raises TimedOut."""
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left_s = MAX_WAIT_S if deadline_s is None else deadline_s - time.monotonic()
        # The job is fetched even if no time is left: it may have ended already.
        job = yield from get(job_id, budget, max(0.0, min(left_s, MAX_WAIT_S)))
        if job.ended:
            return job
        if deadline_s is not None and timeout_s is not None and time.monotonic() >= deadline_s:
            raise TimedOut(job_id, timeout_s)


def run(new: NewJob, budget: RetryBudget, timeout_s: float | None) -> Plan[Json]:
    """Submit, wait and return the result."""
    began_s = time.monotonic()
    job = yield from submit(new, budget, MAX_WAIT_S if timeout_s is None else timeout_s)
    if not job.ended:
        spent_s = time.monotonic() - began_s
        try:
            left_s = None if timeout_s is None else max(0.0, timeout_s - spent_s)
            job = yield from wait(job.job_id, budget, left_s)
        except TimedOut:
            assert timeout_s is not None
            raise TimedOut(job.job_id, timeout_s) from None
    return outcome(job)


def task_name(task: HasTask[Any, Any] | str) -> str:
    """Return the name of a task that may be given as `Task` or as its handler's function."""
    return task if isinstance(task, str) else task_of(task).name


def typed_result(task: HasTask[Any, Any] | str, result: Json) -> object:
    """Return the result as the task's own type; by name, as JSON has it."""
    if isinstance(task, str):
        return result
    try:
        return task_of(task).read_result(result)
    except ValueError as error:
        name = task_of(task).name
        raise BadAnswer(f"the result of {name!r} is not of its type: {error}") from None


def outcome(job: Job) -> Json:
    """Return the result of an ended job; raises JobFailed or JobCanceled."""
    match job.status:
        case "done":
            return job.result
        case "canceled":
            raise JobCanceled(job)
        case _:
            raise JobFailed(job)


@dataclass(frozen=True, slots=True)
class ListFilter:
    """The query of a list."""

    status: str | None = None
    task: str | None = None
    limit: int | None = None
    cursor: str | None = None


def list_jobs(filters: ListFilter, budget: RetryBudget) -> Plan[JobPage]:
    """Return a page of jobs, newest first."""
    query = {name: value for name, value in asdict(filters).items() if value is not None}
    path = f"{JOBS}?{urlencode(query)}" if query else JOBS
    return (yield from fetch(path, JobPage, budget))


def failures_path(hours: int) -> str:
    """Return the path of the kinds of failures of the last hours."""
    return f"/v1/failures?{urlencode({'hours': hours})}"


def search_path(text: str) -> str:
    """Return the path of a search."""
    return f"/v1/search?{urlencode({'q': text})}"


def cancel(job_id: str, budget: RetryBudget) -> Plan[CancelAnswer]:
    """Cancel a job."""
    request = ApiRequest("POST", f"{job_path(job_id)}/cancel")
    try:
        return read((yield from send(request, budget)), CancelAnswer)
    except AlreadyFinished:
        # A response was lost: the first try may have canceled the job.
        if budget.tries:
            job = yield from get(job_id, budget)
            if job.status == "canceled":
                return CancelAnswer(job_id, "canceled")
        raise


def retry(job_id: str, budget: RetryBudget) -> Plan[Job]:
    """Create a new job like one that failed or was canceled."""
    headers = {"Idempotency-Key": new_key()}
    request = ApiRequest("POST", f"{job_path(job_id)}/retry", None, headers)
    return read((yield from send(request, budget)), Job)


def batch(jobs: Sequence[NewJob], budget: RetryBudget) -> Plan[list[str | ApiError]]:
    """Create any number of jobs, in requests of MAX_BATCH; returns for each its id or its error."""
    created: list[str | ApiError] = []
    for first in range(0, len(jobs), MAX_BATCH):
        portion = [
            _members(job, job.idempotency_key or new_key())
            for job in jobs[first : first + MAX_BATCH]
        ]
        request = ApiRequest("POST", f"{JOBS}/batch", msgspec.json.encode({"jobs": portion}))
        results = read((yield from send(request, budget)), BatchAnswer).results
        if len(results) != len(portion):
            raise BadAnswer(f"{len(results)} results for {len(portion)} jobs: is this jobwire?")
        created += [
            from_problem({"status": result.status, **(result.problem or {})})
            if result.job_id is None
            else result.job_id
            for result in results
        ]
    return created


def pause_queue(name: str, budget: RetryBudget) -> Plan[PauseAnswer]:
    """Let workers start no job of a queue."""
    request = ApiRequest("POST", f"{queue_path(name)}/pause")
    return read((yield from send(request, budget)), PauseAnswer)


def resume_queue(name: str, budget: RetryBudget) -> Plan[PauseAnswer]:
    """Let workers start the jobs of a queue again."""
    request = ApiRequest("POST", f"{queue_path(name)}/resume")
    return read((yield from send(request, budget)), PauseAnswer)


def purge_queue(name: str, budget: RetryBudget) -> Plan[PurgeAnswer]:
    """Cancel all jobs of a queue that wait or are delayed."""
    request = ApiRequest("POST", f"{queue_path(name)}/purge")
    return read((yield from send(request, budget)), PurgeAnswer)


def queue_path(name: str) -> str:
    """Return the path of a queue."""
    return f"{QUEUES}/{quote(name, safe='')}"


def job_path(job_id: str) -> str:
    """Return the path of a job; the id is quoted, so it cannot change the path."""
    return f"{JOBS}/{quote(job_id, safe='')}"


def encode_payload(value: object) -> msgspec.Raw:
    """Encode a payload; a Raw is sent byte for byte. A value without a JSON form (NaN, a lone
    surrogate, a cycle) raises Invalid."""
    if isinstance(value, msgspec.Raw):
        return value
    try:
        if dump := getattr(value, "model_dump", None):  # a pydantic model
            value = dump(mode="json")
        builtins = msgspec.to_builtins({} if value is None else value)
        text = json.dumps(builtins, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        return msgspec.Raw(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        message = f"the payload has no JSON form: {error}"
        raise Invalid(message, code="invalid_payload", status=422) from None


def _members(new: NewJob, key: str | None) -> dict[str, object]:
    """Return the JSON members of a new job, without those that are None."""
    whole = replace(new, payload=encode_payload(new.payload), idempotency_key=key)
    members = {field.name: getattr(whole, field.name) for field in fields(whole)}
    return {name: value for name, value in members.items() if value is not None}


def prefer(wait_s: float) -> str:
    """The header that lets the gateway hold a request."""
    return f"wait={math.ceil(min(wait_s, MAX_WAIT_S))}"


def chosen_path(path: str, system: str | None, wire: str | None) -> str:
    """A path that may be asked for one system or one wire."""
    given = {"system": system, "wire": wire}
    query = urlencode({name: value for name, value in given.items() if value})
    return f"{path}?{query}" if query else path


def predictions_path(limit: int, after: str) -> str:
    """The path of a page of the photo bot's tasks."""
    query = {"limit": str(limit), **({"after": after} if after else {})}
    return f"{PREDICTIONS}?{urlencode(query)}"


def prediction_path(prediction_id: str) -> str:
    """The path of one task of the photo bot."""
    return f"{PREDICTIONS}/{quote(prediction_id, safe='')}"
