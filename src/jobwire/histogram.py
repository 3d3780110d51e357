"""A histogram of durations in the form that Prometheus uses. Knows no metrics library.

Counted into by the gateway for each request and by the worker for each job, so adding is cheap.
"""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts durations by upper bounds, in seconds and ascending."""

    __slots__ = ("_bounds_s", "_counts", "seconds")

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self.seconds = 0.0
        """The sum of all durations."""

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(self._bounds_s, seconds)] += 1
        self.seconds += seconds

    def cumulated(self) -> list[tuple[str, float]]:
        """For each bound, how many durations are at most as long; `+Inf` is all of them."""
        total = 0
        buckets: list[tuple[str, float]] = []
        bounds = (*map(str, self._bounds_s), "+Inf")
        # Copied first: another thread may count meanwhile.
        for bound, count in zip(bounds, tuple(self._counts), strict=True):
            total += count
            buckets.append((bound, total))
        return buckets
