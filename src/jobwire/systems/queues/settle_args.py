"""Arguments of the script `settle`, one sequence for each job that ends. Pure.

The consumer sends those of one job, the engine those of a batch.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias, cast

from jobwire.systems.queues.checks import check_json
from jobwire.systems.queues.codec import JobHash, clean, json_text, keep_rule
from jobwire.systems.queues.contract import (
    MAX_REASON,
    MAX_STACK,
    BullField,
    EventName,
    KeepRule,
    Opt,
)
from jobwire.valkey import Arg

_COMPLETED: Final = EventName.COMPLETED.value
_FAILED: Final = EventName.FAILED.value
_ON_COMPLETE: Final = Opt.REMOVE_ON_COMPLETE.value
_ON_FAIL: Final = Opt.REMOVE_ON_FAIL.value
_NULL: Final = "null"
_VALUE: Final = 3
"""Where the result or the reason stands in the arguments of a job."""
_MAX_CHARACTERS: Final = 256 * 1024
"""Characters of results in one script."""

End: TypeAlias = Sequence[Arg]


class FailedAttempt(NamedTuple):
    """Why an attempt failed, for `failedReason` and `stacktrace`."""

    reason: str
    stack: str = ""


def completed(job: JobHash, token: str, result_json: str, keep: KeepRule | None = None) -> End:
    """The job ends with its result; RefusedError where that is not JSON."""
    if result_json != _NULL:
        check_json(result_json, "the result")
    rule = keep_rule(job.opts.get(_ON_COMPLETE), keep)
    return (job.id, token, _COMPLETED, result_json, job.attempts, *rule, 0)


def failed(job: JobHash, token: str, failure: FailedAttempt, keep: KeepRule | None = None) -> End:
    """The job ends as failed for good."""
    rule = keep_rule(job.opts.get(_ON_FAIL), keep)
    fields = failure_fields(job, failure)
    reason = clean(failure.reason, MAX_REASON)
    return (job.id, token, _FAILED, reason, job.attempts, *rule, len(fields), *fields)


def retried(job: JobHash, token: str, failure: FailedAttempt) -> Sequence[Arg]:
    """For the script `retry`: the attempt failed, and the job is requeued."""
    lifo = int(job.opts.get(Opt.LIFO) is True)
    return (job.id, token, lifo, *failure_fields(job, failure))


def delayed(
    job: JobHash, token: str, delay_ms: int, failure: FailedAttempt | None = None
) -> Sequence[Arg]:
    """For the script `delay`: the job runs again later. It counts as an attempt if it failed."""
    fields = failure_fields(job, failure) if failure else ()
    return (job.id, token, delay_ms, int(failure is not None), *fields)


def parts(ends: Sequence[End], most: int) -> Iterator[slice]:
    """Which of them go together into one script: at most so many, and not too much text."""
    first = characters = 0
    for at, end in enumerate(ends):
        size = len(cast(str, end[_VALUE]))
        if at - first >= most or (characters + size > _MAX_CHARACTERS and at > first):
            yield slice(first, at)
            first, characters = at, 0
        characters += size
    if ends:
        yield slice(first, len(ends))


def failure_fields(job: JobHash, failure: FailedAttempt) -> tuple[str, ...]:
    """What a failed attempt leaves in the hash. Stacks of earlier attempts stay, the newest last,
    up to the job's limit."""
    limit = job.opts.get(Opt.STACKTRACE_LIMIT)
    reason = clean(failure.reason, MAX_REASON)
    stacks = [*(clean(each, MAX_STACK) for each in (*job.stacktrace, failure.stack or reason))]
    if isinstance(limit, int) and not isinstance(limit, bool):
        stacks = stacks[-limit:] if limit > 0 else []
    return (BullField.FAILED_REASON, reason, BullField.STACKTRACE, json_text([*stacks]))
