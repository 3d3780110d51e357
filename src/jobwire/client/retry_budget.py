"""Which requests are retried, after which pause, and for how long. Pure: time and randomness are
arguments.

Every request may be repeated: those that create something carry an idempotency key. Temporary
errors are retried: connection refused, a gateway that stops or starts, a rate limit. A full queue
is not retried, so that the producer notices it and slows down.
"""

from dataclasses import dataclass
from typing import Final

from jobwire.client.errors import ClientError, QueueFull, RateLimited, Unavailable, Unreachable
from jobwire.job import retry

_BACKOFF: Final = retry.Backoff("exponential", 0.1, 5.0, 0.5)


@dataclass(slots=True)
class RetryBudget:
    """The retries of one call: since when it fails, and when to try again."""

    limit_s: float
    """How long a call may fail before its error is raised."""
    since_s: float | None = None
    tries: int = 0

    def pause_s(self, error: ClientError, now_s: float, random_fraction: float) -> float | None:
        """Seconds until the next try; None: raise the error."""
        if isinstance(error, QueueFull) or not isinstance(
            error, Unreachable | Unavailable | RateLimited
        ):
            return None
        if self.since_s is None:
            self.since_s = now_s
        self.tries += 1
        pause_s = retry.delay_s(_BACKOFF, self.tries, random_fraction)
        retry_after_s = getattr(error, "retry_after_s", None)
        if retry_after_s is not None:
            pause_s = max(pause_s, retry_after_s)
        return pause_s if now_s + pause_s - self.since_s <= self.limit_s else None

    def responded(self, *, healthy: bool = True) -> None:
        """The gateway responded: the time limit starts anew. The backoff starts anew only if the
        connection was healthy: a gateway that accepts and closes at once is not flooded."""
        self.since_s = None
        if healthy:
            self.tries = 0
