"""Whether and when a failed attempt is tried again. Pure: chance comes in as an argument.

The worker's runner calls it with what became of an attempt; the answer is an outcome to settle.
"""

from dataclasses import dataclass
from typing import Final, Literal

from jobwire.job.messages import Failed, JobError, RetryLater


@dataclass(frozen=True, slots=True)
class Backoff:
    """How the waits between attempts grow.

    `jitter` is the part of each wait that is left to chance: 0 none of it, 1 all of it (full
    jitter), so that jobs which failed together do not come back together.
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
    """The same wait every time."""
    return Backoff("fixed", delay_s, delay_s, jitter)


def exponential(base_s: float = 1.0, cap_s: float = 300.0, *, jitter: float = 1.0) -> Backoff:
    """Waits that double, up to `cap_s`."""
    return Backoff("exponential", base_s, cap_s, jitter)


DEFAULT: Final = exponential()


def delay_s(backoff: Backoff, attempt: int, chance: float) -> float:
    """Seconds to wait after attempt number `attempt` (the first is 1); 0 ≤ `chance` < 1."""
    whole = backoff.base_s
    if backoff.kind == "exponential":
        # 2**63 seconds is past any cap, and a bigger exponent only costs time.
        whole = min(backoff.cap_s, backoff.base_s * 2.0 ** min(attempt - 1, 63))
    return whole * (1.0 - backoff.jitter) + whole * backoff.jitter * chance


def outcome(
    error: JobError,
    *,
    attempt: int,
    max_attempts: int,
    backoff: Backoff,
    chance: float,
    after_s: float | None = None,
) -> RetryLater | Failed:
    """What becomes of a job whose attempt ended with `error`.

    An error that is not retryable ends it; so does the last attempt. `after_s` is the handler's own
    wish and goes before the backoff.
    """
    if not error.retryable or attempt >= max_attempts:
        return Failed(error)
    return RetryLater(delay_s(backoff, attempt, chance) if after_s is None else after_s, error)
