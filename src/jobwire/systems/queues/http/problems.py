"""Refusals of the wire as the problems that requests about queues are answered with (B-19)."""

from jobwire.gateway.problems import Problem
from jobwire.systems.queues.contract import Refusal
from jobwire.systems.queues.job_bodies import problem_of


def refused(refusal: Refusal, detail: str = "") -> Problem:
    """The problem that a refusal of the wire is answered with."""
    return Problem(problem_of(refusal), detail)
