"""The methods of queues as plans of requests and pauses. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import msgspec
from msgspec import Struct

from jobwire.api import flows, queue_changes, queue_jobs, schedulers
from jobwire.client.calls import Plan, call, encode_payload, request_of, send
from jobwire.client.errors import Invalid
from jobwire.client.retry_budget import RetryBudget
from jobwire.job.messages import Json


class _Options(Struct, rename={"job_id": "jobId"}):
    """The part of a job's options that is used."""

    job_id: str = ""


def add(
    budget: RetryBudget, queue: str, jobs: Sequence[Mapping[str, object]]
) -> Plan[list[queue_jobs.AddedToQueue]]:
    """Add jobs, all or none. A request whose response is lost is repeated only if all jobs have
    ids: it could add the others twice."""
    encoded = [{**job, "data": encode_payload(job.get("data"))} for job in jobs]
    budget = _if_named(budget, jobs)
    return (yield from call(budget, queue_jobs.ADD, queue, body={"jobs": encoded})).jobs


def delete_job(budget: RetryBudget, queue: str, job_id: str) -> Plan[None]:
    """Delete a job; one that runs is canceled."""
    yield from send(budget, request_of(queue_jobs.DELETE, queue, job_id))


def update_data(
    budget: RetryBudget, queue: str, job_id: str, data: Json
) -> Plan[queue_jobs.JobChanged]:
    """Replace a job's data; safe to repeat."""
    return call(budget, queue_changes.DATA, queue, job_id, body={"data": _json(data)})


def update_progress(
    budget: RetryBudget, queue: str, job_id: str, progress: Json, message: str
) -> Plan[queue_jobs.JobChanged]:
    """Set a job's progress. A request whose response is lost is repeated only without a message:
    the log could have it twice."""
    body = {"progress": _json(progress), "message": message}
    budget = RetryBudget(0.0) if message else budget
    return call(budget, queue_changes.PROGRESS, queue, job_id, body=body)


def add_log(_: RetryBudget, queue: str, job_id: str, line: str, keep: int) -> Plan[int]:
    """Append a line to a job's log. A request whose response is lost is not repeated: the log could
    have the line twice."""
    body = queue_changes.LogRequest(line, keep)
    added = yield from call(RetryBudget(0.0), queue_changes.ADD_LOG, queue, job_id, body=body)
    return added.total


def _json(value: Json) -> msgspec.Raw:
    return msgspec.Raw(b"null") if value is None else encode_payload(value)


def add_flow(budget: RetryBudget, queue: str, flow: Mapping[str, object]) -> Plan[flows.FlowIds]:
    """Add a tree of jobs. A request whose response is lost is repeated only if all jobs have ids:
    it could add the others twice."""
    budget = _if_named(budget, _jobs(flow))
    return call(budget, flows.ADD, queue, body=_flow(flow))


def set_scheduler(
    budget: RetryBudget, queue: str, scheduler_id: str, body: Mapping[str, object]
) -> Plan[schedulers.SchedulerSet]:
    """Set a scheduler; repeated, it is the same."""
    encoded = {**body, "data": encode_payload(body.get("data"))}
    return call(budget, schedulers.SET, queue, scheduler_id, body=encoded)


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
