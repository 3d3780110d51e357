"""The API's methods as plans of requests and pauses. Pure.

A plan is a generator. It yields an `ApiRequest` and is sent the `ApiResponse` (or the error), or
yields a `Pause`; its return value is the method's result. `aio` and `sync` execute plans, each with
a retry budget of its own.
"""

import json
import math
import secrets
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, fields, replace
from types import NoneType
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from jobwire.api import jobs as api
from jobwire.api.jobs import Job
from jobwire.api.operation import Operation
from jobwire.api.queue_jobs import QueueJobInfo
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
from jobwire.client.messages import NewJob
from jobwire.client.retry_budget import RetryBudget
from jobwire.job.ids import random_fraction
from jobwire.job.messages import Json
from jobwire.task import HasTask, task_of

T = TypeVar("T")
J = TypeVar("J", Job, QueueJobInfo)
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


def send(budget: RetryBudget, request: ApiRequest) -> Plan[ApiResponse]:
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


def read(body: bytes, kind: type[T]) -> T:
    """Decode the body of a response."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadAnswer(f"a response that cannot be read ({error}): is this jobwire?") from None


def request_of(
    operation: Operation[Any],
    *places: str,
    body: bytes | None = None,
    key: str | None = None,
    wait_s: float | None = None,
) -> ApiRequest:
    """The request of an operation with its headers: an idempotency key, and how long the gateway
    may hold the request until the job has ended."""
    headers = {} if key is None else {"Idempotency-Key": key}
    held_s = min(wait_s or 0.0, MAX_WAIT_S)
    if held_s:
        headers["Prefer"] = f"wait={math.ceil(held_s)}"
    return ApiRequest(operation.method, operation.url(*places), body, headers, wait_s=held_s)


def call(
    budget: RetryBudget,
    operation: Operation[T],
    *places: str,
    body: object = None,
    **query: object,
) -> Plan[T]:
    """Call an operation: the values of its path, its body and its query; returns its answer."""
    encoded = None if body is None else msgspec.json.encode(body)
    request = ApiRequest(operation.method, operation.url(*places, **query), encoded)
    response = yield from send(budget, request)
    return read(b"null" if operation.answer is NoneType else response.body, operation.answer)


def wait_until_ended(
    budget: RetryBudget, operation: Operation[J], *places: str, timeout_s: float | None
) -> Plan[J]:
    """Fetch a job until it has ended; raises TimedOut. Its id is the last one of `places`."""
    deadline_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
    while True:
        # The job is fetched even if no time is left: it may have ended already.
        left_s = max(0.0, min(deadline_s - time.monotonic(), MAX_WAIT_S))
        response = yield from send(budget, request_of(operation, *places, wait_s=left_s))
        job = read(response.body, operation.answer)
        if job.ended:
            return job
        if timeout_s is not None and time.monotonic() >= deadline_s:
            raise TimedOut(places[-1], timeout_s)


# ── the methods ──────────────────────────────────────────────────────────────────────────────────


def submit(budget: RetryBudget, new: NewJob, wait_s: float | None = None) -> Plan[Job]:
    """Create one job. The body is encoded once, so that every try sends the same bytes."""
    body = msgspec.json.encode(_members(new, key=None))
    request = request_of(api.SUBMIT, body=body, key=new.idempotency_key or new_key(), wait_s=wait_s)
    return read((yield from send(budget, request)).body, Job)


def wait(budget: RetryBudget, job_id: str, timeout_s: float | None) -> Plan[Job]:
    """Wait until the job has ended; raises TimedOut."""
    return wait_until_ended(budget, api.GET, job_id, timeout_s=timeout_s)


def run(budget: RetryBudget, new: NewJob, timeout_s: float | None) -> Plan[Json]:
    """Submit, wait and return the result."""
    began_s = time.monotonic()
    job = yield from submit(budget, new, MAX_WAIT_S if timeout_s is None else timeout_s)
    if not job.ended:
        spent_s = time.monotonic() - began_s
        try:
            left_s = None if timeout_s is None else max(0.0, timeout_s - spent_s)
            job = yield from wait(budget, job.job_id, left_s)
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


def cancel(budget: RetryBudget, job_id: str) -> Plan[api.CancelAnswer]:
    """Cancel a job."""
    try:
        return (yield from call(budget, api.CANCEL, job_id))
    except AlreadyFinished:
        # A response was lost: the first try may have canceled the job.
        if budget.tries:
            job = yield from call(budget, api.GET, job_id)
            if job.status == "canceled":
                return api.CancelAnswer(job_id, "canceled")
        raise


def retry(budget: RetryBudget, job_id: str, keep_steps: bool) -> Plan[Job]:
    """Create a new job like one that failed or was canceled."""
    body = msgspec.json.encode(api.RetryOptions(keep_steps=True)) if keep_steps else None
    request = request_of(api.RETRY, job_id, body=body, key=new_key())
    return read((yield from send(budget, request)).body, Job)


def run_cron(budget: RetryBudget, name: str) -> Plan[Job]:
    """Create the job of a cron entry."""
    return read((yield from send(budget, request_of(api.RUN_CRON, name, key=new_key()))).body, Job)


def batch(budget: RetryBudget, jobs: Sequence[NewJob]) -> Plan[list[str | ApiError]]:
    """Create any number of jobs, in requests of MAX_BATCH; returns for each its id or its error."""
    created: list[str | ApiError] = []
    for first in range(0, len(jobs), api.MAX_BATCH):
        portion = [
            _members(job, job.idempotency_key or new_key())
            for job in jobs[first : first + api.MAX_BATCH]
        ]
        answer = yield from call(budget, api.BATCH, body={"jobs": portion})
        results = answer.results
        if len(results) != len(portion):
            raise BadAnswer(f"{len(results)} results for {len(portion)} jobs: is this jobwire?")
        created += [
            from_problem({"status": result.status, **(result.problem or {})})
            if result.job_id is None
            else result.job_id
            for result in results
        ]
    return created


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
