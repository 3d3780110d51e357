"""The methods of queues as plans of requests and pauses. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, cast
from urllib.parse import quote

import msgspec
from msgspec import Struct

from jobwire.client.calls import (
    ApiRequest,
    Plan,
    delete,
    encode_payload,
    fetch,
    post,
    read,
    send,
    wait_until_ended,
    with_query,
)
from jobwire.client.errors import Invalid
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
    QueueLogPage,
    SchedulerPage,
    SchedulerSet,
)
from jobwire.client.retry_budget import RetryBudget

QUEUES: Final = "/v1/queues"


class _Options(Struct, rename={"job_id": "jobId"}):
    """The part of a job's options that is used."""

    job_id: str = ""


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
    budget: RetryBudget, queue: str, jobs: Sequence[Mapping[str, object]]
) -> Plan[list[AddedToQueue]]:
    """Add jobs, all or none. A request whose response is lost is repeated only if all jobs have
    ids: it could add the others twice."""
    encoded = [{**job, "data": encode_payload(job.get("data"))} for job in jobs]
    path = f"{queue_path(queue)}/jobs"
    answer = yield from post(_if_named(budget, jobs), path, AddedToQueueList, {"jobs": encoded})
    return answer.jobs


def list_jobs(
    budget: RetryBudget, queue: str, state: str, first: int, limit: int | None
) -> Plan[QueueJobPage]:
    """A page of the jobs in a state."""
    path = with_query(f"{queue_path(queue)}/jobs", state=state, first=first, limit=limit)
    return fetch(budget, path, QueueJobPage)


def get(budget: RetryBudget, queue: str, job_id: str) -> Plan[QueueJobInfo]:
    """The job now."""
    return fetch(budget, job_path(queue, job_id), QueueJobInfo)


def wait(
    budget: RetryBudget, queue: str, job_id: str, timeout_s: float | None
) -> Plan[QueueJobInfo]:
    """Wait until the job has ended; raises TimedOut."""
    path = job_path(queue, job_id)
    return wait_until_ended(budget, path, QueueJobInfo, job_id, timeout_s)


def logs(budget: RetryBudget, queue: str, job_id: str, first: int) -> Plan[QueueLogPage]:
    """Lines of a job's log."""
    path = with_query(f"{job_path(queue, job_id)}/logs", first=first)
    return fetch(budget, path, QueueLogPage)


def change(
    budget: RetryBudget, queue: str, job_id: str, verb: Literal["retry", "promote"]
) -> Plan[QueueJobChange]:
    """Retry or promote one job."""
    return post(budget, f"{job_path(queue, job_id)}/{verb}", QueueJobChange)


def cancel(budget: RetryBudget, queue: str, job_id: str) -> Plan[CancelResult]:
    """Remove a job that waits; stop one that runs."""
    return post(budget, f"{job_path(queue, job_id)}/cancel", CancelResult)


def delete_job(budget: RetryBudget, queue: str, job_id: str) -> Plan[None]:
    """Delete a job; one that runs is canceled."""
    return delete(budget, job_path(queue, job_id))


def set_paused(budget: RetryBudget, queue: str, verb: Literal["pause", "resume"]) -> Plan[bool]:
    """Pause or resume a queue; whether it is paused."""
    return (yield from post(budget, f"{queue_path(queue)}/{verb}", PausedState)).paused


def affect(
    budget: RetryBudget,
    queue: str,
    verb: Literal["drain", "clean", "retry", "promote", "obliterate"],
    **body: object,
) -> Plan[int]:
    """Change many jobs; how many."""
    path = f"{queue_path(queue)}/{verb}"
    return (yield from post(budget, path, AffectedJobs, body or None)).count


def add_flow(budget: RetryBudget, queue: str, flow: Mapping[str, object]) -> Plan[FlowIds]:
    """Add a tree of jobs. A request whose response is lost is repeated only if all jobs have ids:
    it could add the others twice."""
    budget = _if_named(budget, _jobs(flow))
    return post(budget, f"{queue_path(queue)}/flows", FlowIds, _flow(flow))


def get_flow(
    budget: RetryBudget, queue: str, job_id: str, depth: int | None, width: int | None
) -> Plan[FlowInfo]:
    """A job with its parent and the tree of its children."""
    path = with_query(f"{job_path(queue, job_id)}/flow", depth=depth, width=width)
    return fetch(budget, path, FlowInfo)


def list_schedulers(
    budget: RetryBudget, queue: str, first: int, limit: int | None
) -> Plan[SchedulerPage]:
    """A page of schedulers."""
    path = with_query(f"{queue_path(queue)}/schedulers", first=first, limit=limit)
    return fetch(budget, path, SchedulerPage)


def set_scheduler(
    budget: RetryBudget, queue: str, scheduler_id: str, body: Mapping[str, object]
) -> Plan[SchedulerSet]:
    """Set a scheduler; repeated, it is the same."""
    encoded = msgspec.json.encode({**body, "data": encode_payload(body.get("data"))})
    request = ApiRequest("PUT", _scheduler_path(queue, scheduler_id), encoded)
    return read((yield from send(budget, request)), SchedulerSet)


def remove_scheduler(budget: RetryBudget, queue: str, scheduler_id: str) -> Plan[None]:
    """Remove a scheduler and its delayed job."""
    return delete(budget, _scheduler_path(queue, scheduler_id))


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
    children = job.get("children") or ()
    if isinstance(children, Sequence) and not isinstance(children, str):
        listed = cast("Sequence[object]", children)
        if all(isinstance(child, Mapping) for child in listed):
            return cast("Sequence[Mapping[str, object]]", listed)
    message = f"the children of the job {job.get('name')!r} are not a list of jobs"
    raise Invalid(message, code="invalid_request", status=422)


def _if_named(budget: RetryBudget, jobs: Iterable[Mapping[str, object]]) -> RetryBudget:
    """The budget if all jobs have ids, else one without retries."""
    try:
        options = [msgspec.convert(job.get("opts") or {}, _Options) for job in jobs]
    except msgspec.ValidationError:
        return RetryBudget(0.0)  # the gateway refuses them
    return budget if all(each.job_id for each in options) else RetryBudget(0.0)
