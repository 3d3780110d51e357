"""How much one key may ask for: a rate, and a number of open streams.

Counted in this process; a fleet of gateways allows each its own share. Never waits: what is over
the limit is refused at once, with the time to come back.
"""

from collections import Counter
from collections.abc import Callable

from jobwire.gateway.problems import RATE_LIMITED, TOO_MANY_STREAMS, Problem, retry_after


class RateLimit:
    """A bucket of tokens for each key: a second's worth may come at once."""

    def __init__(self, per_s: float, now_s: Callable[[], float]) -> None:
        self._per_s = per_s
        self._burst = max(1.0, per_s)
        self._now_s = now_s
        # key → (tokens left, when that was); as many entries as the settings have keys
        self._buckets: dict[str, tuple[float, float]] = {}

    def spend(self, key: str, cost: int = 1) -> None:
        """Take `cost` tokens from the key's bucket; a Problem if they are not there.

        What costs more than a full bucket holds passes when the bucket is full, and leaves a debt.
        """
        if not self._per_s:
            return
        needed = min(float(cost), self._burst)
        now_s = self._now_s()
        tokens, then_s = self._buckets.get(key, (self._burst, now_s))
        tokens = min(self._burst, tokens + (now_s - then_s) * self._per_s)
        if tokens < needed:
            self._buckets[key] = (tokens, now_s)
            raise Problem(RATE_LIMITED, headers=retry_after((needed - tokens) / self._per_s))
        self._buckets[key] = (tokens - cost, now_s)


class StreamCount:
    """How many streams each key holds open."""

    def __init__(self, per_key: int) -> None:
        self._per_key = per_key
        self._open: Counter[str] = Counter()

    def enter(self, key: str) -> None:
        """Count one more; a Problem if the key has all it may have."""
        if self._open[key] >= self._per_key:
            raise Problem(TOO_MANY_STREAMS, headers=retry_after(5))
        self._open[key] += 1

    def leave(self, key: str) -> None:
        """Count one less."""
        self._open[key] -= 1
        if not self._open[key]:
            del self._open[key]
