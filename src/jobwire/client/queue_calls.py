"""The methods of queues as plans of requests and pauses. Pure."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from jobwire.client.calls import (
    MAX_WAIT_S,
    ApiRequest,
    Plan,
    encode_payload,
    fetch,
    prefer,
    read,
    send,
)
from jobwire.client.errors import TimedOut
from jobwire.client.queue_messages import (
    AddedToQueue,
    AddedToQueueList,
    AffectedJobs,
    CancelResult,
    FlowIds,
    FlowInfo,
    PausedState,
    QueueJobChange,
    QueueJobInfo,
    QueueJobPage,
    SchedulerPage,
    SchedulerSet,
)
from jobwire.client.retry_budget import RetryBudget

QUEUES: Final = "/v1/queues"


class _Options(Struct, rename={"job_id": "jobId"}):
    """The part of a job's options that is used."""

    job_id: str = ""

    @classmethod
    def read(cls, opts: object) -> "_Options":
        try:
            return msgspec.convert(opts or {}, cls)
        except msgspec.ValidationError:
            return cls()  # the gateway refuses them


def queue_path(queue: str) -> str:
    """The path of a queue; the name is quoted, so it cannot change the path."""
    return f"{QUEUES}/{quote(queue, safe='')}"


def job_path(queue: str, job_id: str) -> str:
    """The path of a job of a queue."""
    return f"{queue_path(queue)}/jobs/{quote(job_id, safe='')}"


def events_path(queue: str, job_id: str | None) -> str:
    """The path of the events of a queue, or of one of its jobs."""
    return f"{queue_path(queue) if job_id is None else job_path(queue, job_id)}/events"


def add(
    queue: str, jobs: Sequence[Mapping[str, object]], budget: RetryBudget
) -> Plan[list[AddedToQueue]]:
    """Add jobs, all or none. A request whose response is lost is repeated only if all jobs have
    ids: it could add the others twice."""
    encoded = [{**job, "data": encode_payload(job.get("data"))} for job in jobs]
    body = msgspec.json.encode({"jobs": encoded})
    request = ApiRequest("POST", f"{queue_path(queue)}/jobs", body)
    named = all(_Options.read(job.get("opts")).job_id for job in jobs)
    response = yield from send(request, budget if named else RetryBudget(0.0))
    return read(response, AddedToQueueList).jobs


def list_jobs(
    queue: str, state: str, first: int, limit: int | None, budget: RetryBudget
) -> Plan[QueueJobPage]:
    """A page of the jobs in a state."""
    query = {"state": state, "first": first} | ({} if limit is None else {"limit": limit})
    return fetch(f"{queue_path(queue)}/jobs?{urlencode(query)}", QueueJobPage, budget)


def get(
    queue: str, job_id: str, budget: RetryBudget, wait_s: float | None = None
) -> Plan[QueueJobInfo]:
    """The job now, or when it has ended or `wait_s` have passed."""
    headers = {"Prefer": prefer(wait_s)} if wait_s else {}
    held_s = min(wait_s or 0.0, MAX_WAIT_S)
    request = ApiRequest("GET", job_path(queue, job_id), None, headers, wait_s=held_s)
    return read((yield from send(request, budget)), QueueJobInfo)


def wait(
    queue: str, job_id: str, budget: RetryBudget, timeout_s: float | None
) -> Plan[QueueJobInfo]:
    """Wait until the job has ended; raises TimedOut."""
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left_s = MAX_WAIT_S if deadline_s is None else deadline_s - time.monotonic()
        job = yield from get(queue, job_id, budget, max(0.0, min(left_s, MAX_WAIT_S)))
        if job.ended:
            return job
        if deadline_s is not None and timeout_s is not None and time.monotonic() >= deadline_s:
            raise TimedOut(job_id, timeout_s)


def change(queue: str, job_id: str, verb: str, budget: RetryBudget) -> Plan[QueueJobChange]:
    """`retry` or `promote` one job."""
    request = ApiRequest("POST", f"{job_path(queue, job_id)}/{verb}")
    return read((yield from send(request, budget)), QueueJobChange)


def cancel(queue: str, job_id: str, budget: RetryBudget) -> Plan[CancelResult]:
    """Remove a job that waits; stop one that runs."""
    request = ApiRequest("POST", f"{job_path(queue, job_id)}/cancel")
    return read((yield from send(request, budget)), CancelResult)


def delete(queue: str, job_id: str, budget: RetryBudget) -> Plan[None]:
    """Delete a job; one that runs is canceled."""
    yield from send(ApiRequest("DELETE", job_path(queue, job_id)), budget)


def set_paused(queue: str, verb: str, budget: RetryBudget) -> Plan[bool]:
    """`pause` or `resume`; whether the queue is paused."""
    request = ApiRequest("POST", f"{queue_path(queue)}/{verb}")
    return read((yield from send(request, budget)), PausedState).paused


def affect(queue: str, verb: str, body: object, budget: RetryBudget) -> Plan[int]:
    """`drain`, `clean`, `retry` or `promote` many jobs; how many."""
    encoded = None if body is None else msgspec.json.encode(body)
    request = ApiRequest("POST", f"{queue_path(queue)}/{verb}", encoded)
    return read((yield from send(request, budget)), AffectedJobs).count


def add_flow(queue: str, flow: Mapping[str, object], budget: RetryBudget) -> Plan[FlowIds]:
    """Add a tree of jobs. A request whose response is lost is repeated only if all jobs have ids:
    it could add the others twice."""
    body = msgspec.json.encode(_flow(flow))
    request = ApiRequest("POST", f"{queue_path(queue)}/flows", body)
    named = all(_Options.read(job.get("opts")).job_id for job in _jobs(flow))
    return read((yield from send(request, budget if named else RetryBudget(0.0))), FlowIds)


def get_flow(
    queue: str, job_id: str, depth: int | None, width: int | None, budget: RetryBudget
) -> Plan[FlowInfo]:
    """A job with its parent and the tree of its children."""
    asked = {"depth": depth, "width": width}
    query = urlencode({name: value for name, value in asked.items() if value is not None})
    return fetch(f"{job_path(queue, job_id)}/flow?{query}", FlowInfo, budget)


def list_schedulers(
    queue: str, first: int, limit: int | None, budget: RetryBudget
) -> Plan[SchedulerPage]:
    """A page of schedulers."""
    query = {"first": first} | ({} if limit is None else {"limit": limit})
    return fetch(f"{queue_path(queue)}/schedulers?{urlencode(query)}", SchedulerPage, budget)


def set_scheduler(
    queue: str, scheduler_id: str, body: Mapping[str, object], budget: RetryBudget
) -> Plan[SchedulerSet]:
    """Set a scheduler; repeated, it is the same."""
    encoded = msgspec.json.encode({**body, "data": encode_payload(body.get("data"))})
    request = ApiRequest("PUT", _scheduler_path(queue, scheduler_id), encoded)
    return read((yield from send(request, budget)), SchedulerSet)


def remove_scheduler(queue: str, scheduler_id: str, budget: RetryBudget) -> Plan[None]:
    """Remove a scheduler and its delayed job."""
    yield from send(ApiRequest("DELETE", _scheduler_path(queue, scheduler_id)), budget)


def _scheduler_path(queue: str, scheduler_id: str) -> str:
    return f"{queue_path(queue)}/schedulers/{quote(scheduler_id, safe='')}"


def _flow(job: Mapping[str, object]) -> dict[str, object]:
    """A job of a flow with the data of each job encoded."""
    encoded = {**job, "data": encode_payload(job.get("data"))}
    if children := _children(job):
        encoded["children"] = [_flow(child) for child in children]
    return encoded


def _jobs(job: Mapping[str, object]) -> Iterable[Mapping[str, object]]:
    yield job
    for child in _children(job):
        yield from _jobs(child)


def _children(job: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
    return cast("Sequence[Mapping[str, object]]", job.get("children") or ())
