"""Time spans counted in buckets, so that quantiles can be computed from sums. Pure.

Bucket 0 is below a millisecond, bucket 1 begins at one; `PER_OCTAVE` buckets later is twice as
long. Used by the wires for the statistics of the last hour.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

PER_OCTAVE: Final = 4


def bucket_of(span_ms: float) -> int:
    """The bucket of a time span."""
    return 0 if span_ms < 1 else math.floor(math.log2(span_ms) * PER_OCTAVE) + 1


def counted(spans_ms: Iterable[float]) -> dict[int, int]:
    """Bucket → count."""
    return Counter(map(bucket_of, spans_ms))


def merged(buckets: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Bucket → count, of all of them."""
    totals: Counter[int] = Counter()
    for counts in buckets:
        totals.update(counts)
    return totals


def quantiles_ms(counts: Mapping[int, int], shares: Iterable[float]) -> list[float | None]:
    """For each share the time span that this part of all did not exceed; None without counts."""
    ordered, total = sorted(counts.items()), sum(counts.values())
    return [_quantile_ms(ordered, share * total) for share in shares]


def _quantile_ms(ordered: Iterable[tuple[int, int]], remaining: float) -> float | None:
    for bucket, count in ordered:
        remaining -= count
        if remaining <= 0:
            return _middle_ms(bucket)
    return None


def _middle_ms(bucket: int) -> float:
    if bucket == 0:
        return 0.0
    return round(math.exp2((bucket - 0.5) / PER_OCTAVE), 1)
