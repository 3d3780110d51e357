"""What is asked again, when, and for how long. Pure: time and chance come in as arguments.

Asked again is what cannot do harm twice (every call of ours carries a key that makes it so) and
what may well be better soon: nobody there, a gateway that stops or starts, a rate limit. A full
queue is not: it is to be felt by whoever fills it.
"""

from dataclasses import dataclass
from typing import Final

from jobwire.client.errors import ClientError, QueueFull, RateLimited, Unavailable, Unreachable
from jobwire.job import retry

_BACKOFF: Final = retry.Backoff("exponential", 0.1, 5.0, 0.5)


@dataclass(slots=True)
class RetryBudget:
    """One for each call: how long trouble has lasted, and when to try again."""

    limit_s: float
    """How long trouble may last before it is told."""
    since_s: float | None = None
    tries: int = 0

    def pause_s(self, trouble: ClientError, now_s: float, chance: float) -> float | None:
        """Seconds until the next try; None: tell it."""
        if isinstance(trouble, QueueFull) or not isinstance(
            trouble, Unreachable | Unavailable | RateLimited
        ):
            return None
        if self.since_s is None:
            self.since_s = now_s
        self.tries += 1
        pause_s = retry.delay_s(_BACKOFF, self.tries, chance)
        asked_s = getattr(trouble, "retry_after_s", None)
        if asked_s is not None:
            pause_s = max(pause_s, asked_s)
        return pause_s if now_s + pause_s - self.since_s <= self.limit_s else None

    def answered(self, *, well: bool = True) -> None:
        """There was an answer: trouble begins anew, if it does; and if all was well, so do the
        pauses. A gateway that greets and hangs up at once is not asked ten times a second."""
        self.since_s = None
        if well:
            self.tries = 0
