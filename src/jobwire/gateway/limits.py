"""Limits per API key: request rate, number of open streams, bytes of bodies in memory.

Counted in this process: each gateway of a fleet allows the full limit. A request over the limit is
refused at once with `Retry-After`; it is never delayed.
"""

from collections import Counter
from collections.abc import Callable

from jobwire.api.problems import BUSY, RATE_LIMITED, TOO_MANY_BODIES, TOO_MANY_STREAMS
from jobwire.gateway.problems import Problem, retry_after


class RequestRate:
    """A token bucket for each key, with a burst of one second."""

    def __init__(self, per_s: float, now_s: Callable[[], float]) -> None:
        self._per_s = per_s
        self._burst = max(1.0, per_s)
        self._now_s = now_s
        # key → (tokens left, at which time); at most one entry for each key in the settings
        self._buckets: dict[str, tuple[float, float]] = {}

    def spend(self, key: str, cost: int = 1) -> None:
        """Take `cost` tokens from the key's bucket, or raise a Problem.

        A cost above the burst passes when the bucket is full, and leaves a debt.
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
    """Counts the open streams of each key; 0 means no limit."""

    def __init__(self, per_key: int) -> None:
        self._per_key = per_key or float("inf")
        self._open: Counter[str] = Counter()

    def enter(self, key: str) -> None:
        """Count one more stream; a Problem if the key has reached its limit."""
        if self._open[key] >= self._per_key:
            raise Problem(TOO_MANY_STREAMS, headers=retry_after(5))
        self._open[key] += 1

    def leave(self, key: str) -> None:
        """Count one stream less."""
        self._open[key] -= 1
        if not self._open[key]:
            del self._open[key]


class BodyBudget:
    """Counts the bytes of request bodies that are held in memory (O-15).

    A key may hold a quarter of the budget, or one body if that is larger. Senders that have not
    proved anything yet are one key together.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._share = max_bytes // 4
        self._by_key: Counter[str] = Counter()
        self.held = 0

    def take(self, key: str, size: int, own: int) -> None:
        """Count `size` more bytes of a request that holds `own` bytes, or raise a Problem."""
        of_key = self._by_key[key]
        if of_key > own and of_key + size > self._share:
            raise Problem(TOO_MANY_BODIES, headers=retry_after(1))
        if self.held + size > self._max_bytes:
            raise Problem(BUSY, headers=retry_after(1))
        self._by_key[key] = of_key + size
        self.held += size

    def release(self, key: str, size: int) -> None:
        """The request has ended."""
        self.held -= size
        self._by_key[key] -= size
        if not self._by_key[key]:
            del self._by_key[key]
