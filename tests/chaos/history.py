"""Requests, responses, runs and observations of one chaos run, as plain data for the checker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from jobwire.job.ids import shard_of
from jobwire.job.messages import Json

SHORT_TTL_S: Final = 10
"""The `ttl_s` of jobs whose delay is longer than their lifetime."""
TERMINAL: Final = frozenset({"done", "error", "canceled"})
GAP: Final = "gap"


@dataclass(frozen=True, slots=True)
class Submission:
    """A job that a caller submits under an idempotency key until it is accepted."""

    key: str
    task: str = "work"
    steps: int = 0
    pause_s: float = 0.0
    fails: int = 0
    """How many attempts end in an exception."""
    max_attempts: int = 3
    delay_s: float = 0.0
    ttl_s: int = 0
    """0: the default of the gateway."""
    valid: bool = True
    """Whether the gateway may accept it."""

    def body(self) -> dict[str, object]:
        """The request."""
        work = {"steps": self.steps, "pause_s": self.pause_s, "fails": self.fails}
        body: dict[str, object] = {"task": self.task, "payload": work}
        if self.max_attempts > 1:
            body["max_attempts"] = self.max_attempts
        if self.delay_s:
            body["delay_s"] = self.delay_s
        if self.ttl_s:
            body["ttl_s"] = self.ttl_s
        if not self.valid:
            body["unheard_of"] = True
        return body


@dataclass(frozen=True, slots=True)
class Answer:
    """A gateway's response to one request. A request without an answer leaves none."""

    verb: Literal["submit", "cancel", "look"]
    about: str
    """The submission's key, or the job's id."""
    status: int
    code: str = ""
    """Of the problem, if there was one."""
    job_id: str = ""
    state: str = ""
    """The job's status, where the response has it."""
    durability: str = ""
    """The level of the response to a submission."""
    port: int = 0
    """Of the gateway that responded."""
    at_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a handler, from the lines that the handler wrote."""

    id: str
    job_id: str
    attempt: int
    worker: str
    slots: int
    began_ms: float
    ended_ms: float | None
    """None where the process died during the run."""
    task: str = "work"
    reported: int | None = None
    """How many reports the handler made; None where the process died during the run."""


@dataclass(frozen=True, slots=True)
class Event:
    id: str
    type: str
    ts: int
    data: Mapping[str, Json]
    step: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """A job at the end of the chaos run."""

    status: str
    """As the gateway returned it."""
    result: Json
    error: Json
    fields: Mapping[str, str]
    """The raw hash."""
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Watch:
    """What one reader of events saw, over all its connections."""

    job_id: str
    seen: tuple[str, ...]
    """Ids, in order; GAP where the gateway reported that events may be missing."""
    ended: bool = True


@dataclass(frozen=True, slots=True)
class Period:
    """A time at which the primary of some shards failed."""

    began_ms: float
    ended_ms: float
    shards: frozenset[int] = frozenset({0})
    """Without shards, all jobs are of the first one."""

    def has(self, job_id: str) -> bool:
        """Whether it concerns the shard of a job."""
        return shard_of(job_id) in self.shards


@dataclass(slots=True)
class History:
    """One run."""

    max_deliveries: int = 5
    lease_ms: float = 1000.0
    submissions: dict[str, Submission] = field(default_factory=dict[str, Submission])
    answers: list[Answer] = field(default_factory=list[Answer])
    runs: list[Run] = field(default_factory=list[Run])
    jobs: dict[str, Ended] = field(default_factory=dict[str, Ended])
    watches: list[Watch] = field(default_factory=list[Watch])
    listed: list[str] = field(default_factory=list[str])
    """Every job that the server knows of at the end."""
    calm: list[str] = field(default_factory=list[str])
    """Jobs submitted one after the other before the first fault."""
    cancel_requested: dict[str, float] = field(default_factory=dict[str, float])
    """Jobs that a caller tried to cancel, answered or not → when it first did, in ms."""
    collected_ms: float = 0.0
    """When the last of `jobs` had been read."""
    misplaced: list[str] = field(default_factory=list[str])
    """Unfinished jobs that were seen without a queue entry or a due time."""
    lost: list[str] = field(default_factory=list[str])
    """Short-lived jobs that were seen unfinished and then were gone."""
    worker_faults: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    """When a fault hit a worker or its connections, in ms, and which worker."""
    losses: list[Period] = field(default_factory=list[Period])
    """When a primary may have answered writes that its successor does not have (G-26)."""
    outages: list[Period] = field(default_factory=list[Period])
    """When shards had no primary."""
    full: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """When the server had no memory for more, in ms."""
    jumps: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """When the server's clock was off, in ms of the true one."""
    failed_starts: list[str] = field(default_factory=list[str])
    """Workers that did not start on a full server."""
    failed_over: list[str] = field(default_factory=list[str])
    """What went wrong when a lagging replica took over."""
    left_behind: list[str] = field(default_factory=list[str])
    emptied: list[str] = field(default_factory=list[str])
    """What went wrong after the server had been emptied."""

    @property
    def accepted(self) -> dict[str, str]:
        """Key → job, of every submission that was answered with a job; of several, the last."""
        return dict(self.answered_jobs)

    @property
    def answered_jobs(self) -> list[tuple[str, str]]:
        """The key and the job of every submission that was answered with a job."""
        return [
            (answer.about, answer.job_id)
            for answer in self.answers
            if answer.verb == "submit" and answer.job_id
        ]

    def submission_of(self, job_id: str) -> Submission | None:
        """The submission that made the job; None if no client of the run submitted it."""
        job = self.jobs.get(job_id)
        return self.submissions.get(job.fields.get("idempotency_key", "")) if job else None
