"""What a system's view counts: the minutes of the last hour. The answers are in `api/fleet.py`."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from jobwire.api.fleet import Now

MINUTES: Final = 60
"""Of the last hour."""


class MinuteCounts(NamedTuple):
    """What a system has counted in one minute; `submitted` is None if it does not count it. Time
    spans are counted in the buckets of `job.time_buckets`."""

    submitted: int | None = None
    done: int = 0
    error: int = 0
    canceled: int = 0
    retried: int = 0
    latency: Mapping[int, int] = {}
    duration: Mapping[int, int] = {}


class SystemStats(NamedTuple):
    """A system now, and the minutes of the last hour; the last one is incomplete."""

    now: Now
    minutes: Sequence[MinuteCounts]
