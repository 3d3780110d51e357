"""The problems of requests about queues, besides those of every request (B-19)."""

from typing import Final

from jobwire.api.problems import UNAVAILABLE, ProblemKind
from jobwire.gateway.problems import Problem
from jobwire.wires.bullmq import checks
from jobwire.wires.bullmq.contract import Refusal

QUEUE_NOT_FOUND: Final = ProblemKind("queue_not_found", 404, "there is no such queue")
JOB_NOT_FOUND: Final = ProblemKind("job_not_found", 404, "there is no such job in this queue")
WRONG_STATE: Final = ProblemKind("wrong_state", 409, "the job's state does not allow this")
LOCKED: Final = ProblemKind("locked", 409, "a worker runs the job or one of its children")
SCHEDULED: Final = ProblemKind(
    checks.SCHEDULED, 409, "the job is the next one of a scheduler: remove the scheduler instead"
)
PARENT_NOT_FOUND: Final = ProblemKind("parent_not_found", 409, "the parent does not exist")
HAS_PARENT: Final = ProblemKind("has_parent", 409, "the job exists and belongs to another parent")
BAD_QUEUE_NAME: Final = ProblemKind(
    checks.BAD_QUEUE_NAME, 422, "this cannot be the name of a queue"
)
BAD_JOB: Final = ProblemKind(checks.BAD_JOB, 422, "the queue does not accept this job")
UNKNOWN_STATE: Final = ProblemKind(checks.UNKNOWN_STATE, 422, "there is no such state of jobs")
BULK_TOO_LARGE: Final = ProblemKind(
    checks.BULK_TOO_LARGE, 413, "at most 1000 jobs and 10 MiB of data in one request"
)
SCHEDULER_NOT_FOUND: Final = ProblemKind(
    "scheduler_not_found", 404, "there is no such scheduler in this queue"
)
SCHEDULER_BUSY: Final = ProblemKind(
    "scheduler_busy",
    409,
    "jobs with the ids of the scheduler's next ones exist; remove them or choose another time",
)
QUEUE_ACTIVE: Final = ProblemKind(
    "queue_active", 409, "workers run jobs of the queue; wait for them, or use force"
)

ON_QUEUES: Final = (QUEUE_NOT_FOUND, BAD_QUEUE_NAME, UNAVAILABLE)
ON_JOBS: Final = (*ON_QUEUES, JOB_NOT_FOUND)
ON_CHANGES: Final = (*ON_JOBS, WRONG_STATE, LOCKED, SCHEDULED)
ON_ADDING: Final = (*ON_QUEUES, BAD_JOB, BULK_TOO_LARGE, PARENT_NOT_FOUND, HAS_PARENT)
ON_SCHEDULERS: Final = (*ON_QUEUES, SCHEDULER_NOT_FOUND)

_BY_REFUSAL: Final = {
    Refusal.MISSING: JOB_NOT_FOUND,
    Refusal.WRONG_STATE: WRONG_STATE,
    Refusal.LOCKED: LOCKED,
    Refusal.SCHEDULED: SCHEDULED,
    Refusal.NO_PARENT: PARENT_NOT_FOUND,
    Refusal.HAS_PARENT: HAS_PARENT,
    Refusal.COLLISION: SCHEDULER_BUSY,
    Refusal.BUSY: SCHEDULER_BUSY,
    Refusal.ACTIVE: QUEUE_ACTIVE,
    Refusal.NOT_PAUSED: QUEUE_ACTIVE,
}


def refused(refusal: Refusal, detail: str = "") -> Problem:
    """The problem that a refusal of the wire is answered with."""
    return Problem(_BY_REFUSAL[refusal], detail)
