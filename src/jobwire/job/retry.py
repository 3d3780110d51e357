"""Whether and when a failed attempt is retried. Pure: randomness comes in as an argument.

`Backoff` and `delay_s` also serve every other retry of the worker.
"""

from dataclasses import dataclass
from typing import Final, Literal

from jobwire.job.messages import Failed, JobError, RetryLater


@dataclass(frozen=True, slots=True)
class Backoff:
    """How the delays between attempts grow.

    `jitter` is the random part of each delay: 0 none of it, 1 all of it (full jitter), so that jobs
    which failed together are not retried together.
    """

    kind: Literal["fixed", "exponential"] = "exponential"
    base_s: float = 1.0
    cap_s: float = 300.0
    jitter: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.base_s <= self.cap_s < float("inf"):
            raise ValueError(
                f"backoff: base_s={self.base_s} and cap_s={self.cap_s} must be 0 ≤ base_s ≤ cap_s"
            )
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"backoff: jitter={self.jitter} must lie between 0 and 1")


def fixed(delay_s: float, *, jitter: float = 0.0) -> Backoff:
    """The same delay every time."""
    return Backoff("fixed", delay_s, delay_s, jitter)


def exponential(base_s: float = 1.0, cap_s: float = 300.0, *, jitter: float = 1.0) -> Backoff:
    """Delays that double, up to `cap_s`."""
    return Backoff("exponential", base_s, cap_s, jitter)


DEFAULT: Final = exponential()


def delay_s(backoff: Backoff, attempt: int, random_fraction: float) -> float:
    """Seconds to wait after attempt `attempt` (the first is 1); 0 ≤ `random_fraction` < 1."""
    whole = backoff.base_s
    if backoff.kind == "exponential":
        # 2**63 seconds exceeds any cap, and a bigger exponent only costs time.
        whole = min(backoff.cap_s, backoff.base_s * 2.0 ** min(attempt - 1, 63))
    return whole * (1.0 - backoff.jitter) + whole * backoff.jitter * random_fraction


def outcome(
    error: JobError,
    *,
    attempt: int,
    max_attempts: int,
    backoff: Backoff,
    random_fraction: float,
    after_s: float | None = None,
) -> RetryLater | Failed:
    """The outcome of a job whose attempt ended with `error`.

    A permanent error and the last attempt end the job. `after_s`, the delay that the handler
    requested, takes precedence over the backoff.
    """
    if not error.retryable or attempt >= max_attempts:
        return Failed(error)
    if after_s is None:
        after_s = delay_s(backoff, attempt, random_fraction)
    return RetryLater(after_s, error)


def deadline_exceeded(partial_json: str = "") -> Failed:
    """The outcome of a job whose deadline is over: no attempt could follow (D-29)."""
    message = "the job did not end within its deadline"
    return Failed(JobError("deadline_exceeded", message, partial_json=partial_json))
