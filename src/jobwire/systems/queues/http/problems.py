"""Refusals of the wire as the problems that requests about queues are answered with (B-19)."""

from typing import Final

from jobwire.api import queue_jobs
from jobwire.api.queues import QUEUE_ACTIVE
from jobwire.api.schedulers import SCHEDULER_BUSY
from jobwire.gateway.problems import Problem
from jobwire.systems.queues.contract import Refusal

_BY_REFUSAL: Final = {
    Refusal.MISSING: queue_jobs.JOB_NOT_FOUND,
    Refusal.WRONG_STATE: queue_jobs.WRONG_STATE,
    Refusal.LOCKED: queue_jobs.LOCKED,
    Refusal.SCHEDULED: queue_jobs.SCHEDULED,
    Refusal.NO_PARENT: queue_jobs.PARENT_NOT_FOUND,
    Refusal.HAS_PARENT: queue_jobs.HAS_PARENT,
    Refusal.COLLISION: SCHEDULER_BUSY,
    Refusal.BUSY: SCHEDULER_BUSY,
    Refusal.ACTIVE: QUEUE_ACTIVE,
    Refusal.NOT_PAUSED: QUEUE_ACTIVE,
}


def refused(refusal: Refusal, detail: str = "") -> Problem:
    """The problem that a refusal of the wire is answered with."""
    return Problem(_BY_REFUSAL[refusal], detail)
