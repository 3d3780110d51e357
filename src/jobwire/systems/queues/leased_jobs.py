"""Job hashes as the worker's LeasedJobs, and outcomes as ends and failures of the wire. Pure."""

import logging
from typing import Final, cast

import msgspec
from msgspec import UNSET

from jobwire.job.errors import RefusedError
from jobwire.job.messages import (
    Canceled,
    Done,
    Failed,
    JobError,
    JobId,
    JobInfo,
    Json,
    LeasedJob,
    Outcome,
    ParentJob,
    Policy,
    RetryLater,
    Token,
)
from jobwire.job.retry import Backoff
from jobwire.systems.queues import settle_args
from jobwire.systems.queues.checks import job_of_key
from jobwire.systems.queues.codec import JobHash, number_of
from jobwire.systems.queues.contract import CANCELED, Opt
from jobwire.systems.queues.settings import BullSettings
from jobwire.systems.queues.settle_args import End, FailedAttempt
from jobwire.valkey import Arg

_log = logging.getLogger("jobwire.bullmq")
_LONGEST_BACKOFF_S: Final = 10 * 365 * 86_400.0
_BACKOFF: Final = Opt.BACKOFF.value
_NO_POLICY: Final = Policy()
_CANCELED: Final = FailedAttempt(CANCELED)
_STARTED_TOO_OFTEN: Final = Failed(
    JobError("started_too_often", "job started more than allowable limit")
)
_DEFAULTS: Final = BullSettings()
_decode: Final = msgspec.json.Decoder().decode


def leased_job(
    job: JobHash, token: str, queue: str, settings: BullSettings = _DEFAULTS
) -> LeasedJob:
    """A started job. One that must not run has its outcome already."""
    payload = job.payload
    if payload is UNSET:
        payload = cast(Json, _decode(job.data_json)) if not job.problem else None
    info = JobInfo(
        JobId(job.id),
        queue,
        job.name,
        payload,
        job.attempts_made + 1,
        job.attempts_started,
        job.timestamp_ms,
        "",
        "",
        job.opts,
        job.priority,
        _parent(job.parent_key, settings.prefix) if job.parent_key else None,
    )
    attempts = job.attempts
    policy = _NO_POLICY
    if attempts or _BACKOFF in job.opts:
        # B-23: every program of the wire runs a job as often as its producer has chosen.
        policy = Policy(attempts or None, None, _backoff(job, attempts), limited=False)
    preset = _preset(job) if job.problem or job.deferred_failure else None
    if preset is None and 0 < settings.max_started < job.attempts_started:
        preset = _STARTED_TOO_OFTEN
    return LeasedJob(info, Token(token), policy, preset, job)


def _parent(key: str, prefix: str) -> ParentJob | None:
    found = job_of_key(key, prefix)
    return found and ParentJob(*found)


def _preset(job: JobHash) -> Outcome | None:
    if job.deferred_failure == CANCELED:
        return Canceled()
    if job.deferred_failure:
        return Failed(JobError("deferred_failure", job.deferred_failure))
    if job.problem:
        return Failed(JobError("invalid_job", job.problem))
    return None


def _backoff(job: JobHash, attempts: int) -> Backoff | None:
    """The job's own backoff; None where its handler's applies."""
    rule = job.opts.get(_BACKOFF)
    if not isinstance(rule, dict):
        delay_ms = number_of(rule)
        # A job with attempts and no backoff is retried at once, as by every program of the wire.
        return _fixed(delay_ms or 0, 0.0) if attempts or delay_ms else None
    delay_ms, kind = number_of(rule.get("delay")) or 0, rule.get("type")
    jitter = rule.get("jitter")
    part = jitter if isinstance(jitter, int | float) and 0 <= jitter <= 1 else 0.0
    if kind == "exponential":
        base_s = min(max(0, delay_ms) / 1000, _LONGEST_BACKOFF_S)
        return Backoff("exponential", base_s, _LONGEST_BACKOFF_S, float(part))
    return _fixed(delay_ms, float(part)) if kind == "fixed" else None


def _fixed(delay_ms: int, jitter: float) -> Backoff:
    delay_s = min(max(0, delay_ms) / 1000, _LONGEST_BACKOFF_S)
    return Backoff("fixed", delay_s, delay_s, jitter)


def failure_of(error: JobError) -> FailedAttempt:
    """`failedReason` and the stack: the exception's own text, as a Node worker writes it (B-14)."""
    return FailedAttempt(error.cause_text or error.cause_type or error.message, error.detail)


def settle_call(
    leased: LeasedJob, outcome: Outcome, settings: BullSettings
) -> tuple[str, list[Arg]]:
    """The script that settles one job, and its arguments, for a process that ends: what would wait
    for children or for a limit is released instead."""
    job, token = cast(JobHash, leased.wire), leased.token
    if (end := end_of(leased, outcome, settings)) is not None:
        return "settle", [settings.metrics_points, 1, *end]
    if isinstance(outcome, RetryLater):
        failure, delay_ms = failure_of(outcome.error), round(outcome.after_s * 1000)
        if delay_ms > 0:
            return "delay", [*settle_args.delayed(job, token, delay_ms, failure)]
        return "retry", [*settle_args.retried(job, token, failure)]
    return "release", [job.id, token]


def end_of(leased: LeasedJob, outcome: Outcome, settings: BullSettings) -> End | None:
    """The end of the job; None where the outcome does not end it."""
    job, token, keep = cast(JobHash, leased.wire), leased.token, settings.keep_failed
    if isinstance(outcome, Done):
        try:
            return settle_args.completed(job, token, outcome.result_json, settings.keep_completed)
        except RefusedError as error:
            # A handler's result need not fit the wire; its job ends nevertheless.
            _log.warning(
                "outcome cannot be written job_id=%(job_id)s error=%(error)s",
                {"job_id": leased.job.id, "error": error},
            )
            return settle_args.failed(job, token, FailedAttempt(str(error)), keep)
    if isinstance(outcome, Failed):
        return settle_args.failed(job, token, failure_of(outcome.error), keep)
    if isinstance(outcome, Canceled):
        return settle_args.failed(job, token, _CANCELED, keep)
    return None
