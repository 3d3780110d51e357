"""Whether a failed attempt is retried, and when. Pure.

Callers of the consumer pass the job and the kind of its error to `decide`; the random fraction is
an argument.
"""

from math import floor
from typing import Final, NamedTuple

from jobwire.wires.bullmq.codec import Job
from jobwire.wires.bullmq.contract import Opt

_LARGEST_EXPONENT: Final = 40
"""2⁴⁰ ms is 35 years; a larger exponent only overflows."""


class RetryAfter(NamedTuple):
    """The job is run again: at once where `delay_ms` is 0."""

    delay_ms: int


class GiveUp(NamedTuple):
    """The job has failed for good."""


def decide(
    job: Job, *, retryable: bool, random_fraction: float, after_ms: int | None = None
) -> RetryAfter | GiveUp:
    """`after_ms`, requested by the handler, precedes the job's backoff; negative gives up.

    Counted by `atm` alone: another program's `attemptsMade` is ignored (B-5).
    """
    if not retryable or job.attempts_made + 1 >= job.attempts:
        return GiveUp()
    if after_ms is None:
        return RetryAfter(backoff_ms(job, random_fraction))
    return GiveUp() if after_ms < 0 else RetryAfter(after_ms)


def backoff_ms(job: Job, random_fraction: float) -> int:
    """The wait that the job's `backoff` asks for; 0 where it has none."""
    rule = job.opts.get(Opt.BACKOFF)
    if isinstance(rule, int | float) and not isinstance(rule, bool):
        return max(0, int(rule))
    if not isinstance(rule, dict):
        return 0
    delay, jitter = rule.get("delay"), rule.get("jitter")
    if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 < delay < 1e14:
        return 0
    longest = float(delay)
    if rule.get("type") == "exponential":
        longest = round(2 ** min(job.attempts_made, _LARGEST_EXPONENT) * delay)
    if isinstance(jitter, bool) or not isinstance(jitter, int | float) or not 0 < jitter <= 1:
        return int(longest)
    return floor(random_fraction * longest * jitter + longest * (1 - jitter))
