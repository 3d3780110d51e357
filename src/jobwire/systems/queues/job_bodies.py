"""Jobs, schedulers and refusals of the wire as the API has them. Pure."""

from typing import Final, TypeAlias

from jobwire.api import queue_jobs
from jobwire.api.problems import ProblemKind
from jobwire.api.queue_jobs import AddedToQueue, QueueJobInfo
from jobwire.api.queues import QUEUE_ACTIVE
from jobwire.api.schedulers import SCHEDULER_BUSY, RepeatOptions, SchedulerInfo, SchedulerRepeat
from jobwire.systems.queues.add_batcher import Added, Deduplicated, Duplicate
from jobwire.systems.queues.codec import JobHash, json_or_text, readable
from jobwire.systems.queues.contract import BullState, Refusal
from jobwire.systems.queues.schedulers import Repeat, Scheduler, upcoming_ms

_RUNS: Final = 3
"""How many next runs of a scheduler are shown."""

Outcome: TypeAlias = Added | Duplicate | Deduplicated


def added_body(answer: Outcome) -> AddedToQueue:
    match answer:
        case Added(job_id):
            return AddedToQueue(readable(job_id), "added")
        case Duplicate(job_id):
            return AddedToQueue(readable(job_id), "duplicate")
        case Deduplicated(job_id):
            return AddedToQueue(readable(job_id), "deduplicated")


def job_body(job: JobHash, queue: str, state: BullState | str) -> QueueJobInfo:
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


def repeat_of(given: RepeatOptions) -> Repeat:
    return Repeat(
        every_ms=given.every or 0,
        offset_ms=given.offset or 0,
        pattern=given.pattern or "",
        tz=given.tz or "",
        immediately=given.immediately,
        limit=given.limit,
        start_ms=given.startDate,
        end_ms=given.endDate,
    )


def scheduler_body(scheduler: Scheduler) -> SchedulerInfo:
    repeat = scheduler.repeat
    return SchedulerInfo(
        id=readable(scheduler.id),
        name=readable(scheduler.name),
        next=scheduler.next_ms if scheduler.pending else None,
        next_runs=upcoming_ms(scheduler, _RUNS),
        made=scheduler.made,
        # Another program wrote them: they are shown as they are, not checked.
        repeat=SchedulerRepeat(
            every=repeat.every_ms or None,
            offset=repeat.offset_ms or None,
            pattern=readable(repeat.pattern) or None,
            tz=readable(repeat.tz) or None,
            limit=repeat.limit,
            startDate=repeat.start_ms,
            endDate=repeat.end_ms,
        ),
        data=scheduler.data,
        opts=scheduler.opts,
    )


_PROBLEMS: Final = {
    Refusal.MISSING: queue_jobs.JOB_NOT_FOUND,
    Refusal.WRONG_STATE: queue_jobs.WRONG_STATE,
    Refusal.LOCKED: queue_jobs.LOCKED,
    Refusal.NO_RELATION: queue_jobs.WRONG_STATE,
    Refusal.SCHEDULED: queue_jobs.SCHEDULED,
    Refusal.NO_PARENT: queue_jobs.PARENT_NOT_FOUND,
    Refusal.HAS_PARENT: queue_jobs.HAS_PARENT,
    Refusal.COLLISION: SCHEDULER_BUSY,
    Refusal.BUSY: SCHEDULER_BUSY,
    Refusal.ACTIVE: QUEUE_ACTIVE,
    Refusal.NOT_PAUSED: QUEUE_ACTIVE,
}


def problem_of(refusal: Refusal) -> ProblemKind:
    """The problem of the API that a refusal of the wire is."""
    return _PROBLEMS[refusal]
