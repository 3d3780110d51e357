"""Between the bodies of the API and the values of the wire. Pure."""

from typing import Any, TypeAlias

from jobwire.api.queue_jobs import (
    AddedQueueJob,
    BackoffOptions,
    KeepOptions,
    NewJobOptions,
    QueueJob,
)
from jobwire.systems.queues.checks import refuse
from jobwire.systems.queues.codec import Job, json_or_text, json_text, readable
from jobwire.systems.queues.contract import State
from jobwire.systems.queues.options import Backoff, Deduplication, JobOptions, Keep, Retention
from jobwire.systems.queues.queue import Added, Deduplicated, Duplicate, NewJob

Outcome: TypeAlias = Added | Duplicate | Deduplicated


def new_job(name: str, data: Any, opts: NewJobOptions) -> NewJob:
    """RefusedError if the data cannot be written."""
    try:
        text = json_text(data)
    except RecursionError:
        raise refuse("the data is nested too deeply") from None
    return NewJob(name, text, _options(opts))


def _options(opts: NewJobOptions) -> JobOptions:
    rule = opts.deduplication
    return JobOptions(
        job_id=opts.jobId,
        delay_ms=opts.delay,
        priority=opts.priority,
        lifo=opts.lifo,
        attempts=opts.attempts,
        backoff=_backoff(opts.backoff),
        remove_on_complete=_retention(opts.removeOnComplete),
        remove_on_fail=_retention(opts.removeOnFail),
        keep_logs=opts.keepLogs,
        stack_trace_limit=opts.stackTraceLimit,
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


def _backoff(given: int | BackoffOptions | None) -> Backoff | None:
    if given is None:
        return None
    if isinstance(given, int):
        return Backoff("fixed", given)
    return Backoff(given.type, given.delay, given.jitter)


def _retention(given: bool | int | KeepOptions | None) -> Retention | None:
    if isinstance(given, KeepOptions):
        return Keep(given.count, given.age, given.limit)
    return given


def added(answer: Outcome) -> AddedQueueJob:
    match answer:
        case Added(job_id):
            return AddedQueueJob(readable(job_id), "added")
        case Duplicate(job_id):
            return AddedQueueJob(readable(job_id), "duplicate")
        case Deduplicated(job_id):
            return AddedQueueJob(readable(job_id), "deduplicated")


def shown(job: Job, queue: str, state: State | str) -> QueueJob:
    """A job as the API shows it, also one that another program wrote with faults."""
    return QueueJob(
        id=readable(job.id),
        queue=queue,
        name=readable(job.name),
        state=str(state),
        data=json_or_text(job.data_json),
        opts=job.opts,
        progress=json_or_text(job.progress_json),
        returnvalue=json_or_text(job.return_json) if job.return_json else None,
        failed_reason=readable(job.failed_reason) or None,
        stacktrace=[readable(each) for each in job.stacktrace],
        attempts_made=job.attempts_made,
        attempts_started=job.attempts_started,
        stalled=job.stalled,
        priority=job.priority,
        delay=job.delay_ms,
        timestamp=job.timestamp_ms,
        processed_on=job.processed_on_ms,
        finished_on=job.finished_on_ms,
        processed_by=readable(job.processed_by) or None,
        parent_key=readable(job.parent_key) or None,
        scheduler=readable(job.scheduler) or None,
        deduplication_id=readable(job.deduplication_id) or None,
        problem=job.problem or None,
    )
