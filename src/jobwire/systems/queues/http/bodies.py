"""Values of the wire as bodies of the API. Pure."""

from typing import TypeAlias

from jobwire.api.queue_jobs import AddedToQueue, QueueJobInfo
from jobwire.systems.queues.codec import Job, json_or_text, readable
from jobwire.systems.queues.contract import State
from jobwire.systems.queues.queue import Added, Deduplicated, Duplicate

Outcome: TypeAlias = Added | Duplicate | Deduplicated


def added(answer: Outcome) -> AddedToQueue:
    match answer:
        case Added(job_id):
            return AddedToQueue(readable(job_id), "added")
        case Duplicate(job_id):
            return AddedToQueue(readable(job_id), "duplicate")
        case Deduplicated(job_id):
            return AddedToQueue(readable(job_id), "deduplicated")


def shown(job: Job, queue: str, state: State | str) -> QueueJobInfo:
    """A job as the API shows it, also one that another program wrote with faults."""
    return QueueJobInfo(
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
