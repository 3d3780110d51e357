"""Jobs in the form of npm BullMQ, `{"name", "data", "opts"}`, as jobs of the wire. Pure.

The HTTP routes, `BullQueue` and handlers that add children use it. Each refusal has what is wrong.
"""

from collections.abc import Callable
from typing import Any, Final

from jobwire.api.flows import NewFlowJob
from jobwire.api.queue_jobs import BackoffOptions, KeepOptions, NewJobOptions
from jobwire.job.errors import RefusedError
from jobwire.systems.queues.checks import BULK_TOO_LARGE, refuse
from jobwire.systems.queues.codec import json_text
from jobwire.systems.queues.contract import MAX_FLOW_JOBS
from jobwire.systems.queues.flows import MAX_DEPTH, FlowNode
from jobwire.systems.queues.options import (
    BullBackoff,
    BullJobOptions,
    Deduplication,
    Keep,
    Parent,
    ParentPolicy,
    Retention,
)
from jobwire.systems.queues.queue import NewBullJob, QueueProducer

_POLICIES: Final[dict[ParentPolicy, str]] = {
    "fail": "failParentOnFailure",
    "continue": "continueParentOnFailure",
    "ignore": "ignoreDependencyOnFailure",
    "remove": "removeDependencyOnFailure",
}


def new_job(name: str, data: Any, opts: NewJobOptions, prefix: str) -> NewBullJob:
    """RefusedError if the data cannot be written, or the options exclude each other."""
    chosen = policy(opts)
    if chosen and opts.parent is None:
        raise refuse(f"the job has no parent: remove {_POLICIES[chosen]}")
    return NewBullJob(name, data_text(data), _options(opts, prefix, chosen))


def flow_tree(
    flow: NewFlowJob,
    queue: str,
    prefix: str,
    open_queue: Callable[[str], QueueProducer],
    where: str = "flow",
    parent: Parent | None = None,
) -> FlowNode:
    """A tree of jobs, each checked by its queue, which `open_queue` gives. A job without
    `queueName` is of its parent's queue. `parent` is the job that waits for the root."""
    _check_size(flow)
    chosen = policy(flow.opts)
    if chosen and parent is None and flow.opts.parent is None:
        raise refuse(f"the root of a flow has no parent: remove {_POLICIES[chosen]}")
    above = None if parent is None else Parent(parent.queue, parent.id, chosen)
    return _node(flow, queue, prefix, open_queue, where, above)


def policy(opts: NewJobOptions) -> ParentPolicy:
    """The effect of a failure on the job's parent; RefusedError if there are two."""
    chosen: list[ParentPolicy] = [each for each, name in _POLICIES.items() if getattr(opts, name)]
    if len(chosen) > 1:
        names = " and ".join(_POLICIES[each] for each in chosen)
        raise refuse(f"{names} exclude each other; choose one")
    return chosen[0] if chosen else ""


def _node(
    given: NewFlowJob,
    queue: str,
    prefix: str,
    open_queue: Callable[[str], QueueProducer],
    where: str,
    parent: Parent | None = None,
) -> FlowNode:
    opened = open_queue(queue)
    try:
        chosen = policy(given.opts)
        options = _options(given.opts, prefix, chosen, parent)
        job = NewBullJob(given.name, data_text(given.data), options)
        opened.check(job)
    except RefusedError as error:
        raise refuse(f"{where}: {error.message}", error.code) from None
    children: list[FlowNode] = []
    for number, child in enumerate(given.children):
        there = f"{where}.children[{number}]"
        if child.opts.parent is not None:
            raise refuse(f"{there}: the job's parent is the one above it; remove parent")
        children.append(_node(child, child.queueName or queue, prefix, open_queue, there))
    return FlowNode(queue, job, children, chosen)


def _check_size(flow: NewFlowJob) -> None:
    """Refuse a flow that is too large before each of its jobs is checked. Not recursive: a body may
    have more levels than the stack."""
    level = [flow]
    total = 0
    for _ in range(MAX_DEPTH):
        total += len(level)
        if total > MAX_FLOW_JOBS:
            raise refuse(f"a flow may have {MAX_FLOW_JOBS} jobs", BULK_TOO_LARGE)
        level = [child for job in level for child in job.children]
        if not level:
            return
    raise refuse(f"a flow may have {MAX_DEPTH} levels", BULK_TOO_LARGE)


def data_text(data: Any) -> str:
    """Decoded JSON as a text of the wire."""
    try:
        return json_text(data)
    except RecursionError:
        raise refuse("the data is nested too deeply") from None


def _options(
    opts: NewJobOptions, prefix: str, chosen: ParentPolicy, parent: Parent | None = None
) -> BullJobOptions:
    rule, telemetry = opts.deduplication, opts.telemetry
    if parent is None and opts.parent is not None:
        parent = Parent(opts.parent.queue.removeprefix(f"{prefix}:"), opts.parent.id, chosen)
    return BullJobOptions(
        job_id=opts.jobId,
        delay_ms=opts.delay,
        priority=opts.priority,
        lifo=opts.lifo,
        attempts=opts.attempts,
        backoff=_backoff(opts.backoff),
        timestamp_ms=opts.timestamp,
        remove_on_complete=_retention(opts.removeOnComplete),
        remove_on_fail=_retention(opts.removeOnFail),
        keep_logs=opts.keepLogs,
        stack_trace_limit=opts.stackTraceLimit,
        size_limit=opts.sizeLimit,
        telemetry_metadata=telemetry.metadata if telemetry else "",
        omit_context=telemetry is not None and telemetry.omitContext,
        parent=parent,
        deduplication=rule
        and Deduplication(
            id=rule.id,
            ttl_ms=rule.ttl,
            extend=rule.extend,
            replace=rule.replace,
            keep_last_if_active=rule.keepLastIfActive,
            reschedule=rule.reschedule,
        ),
    )


def _backoff(given: int | BackoffOptions | None) -> BullBackoff | None:
    if given is None:
        return None
    if isinstance(given, int):
        return BullBackoff("fixed", given)
    return BullBackoff(given.type, given.delay, given.jitter)


def _retention(given: bool | int | KeepOptions | None) -> Retention | None:
    if isinstance(given, KeepOptions):
        return Keep(given.count, given.age, given.limit)
    return given
