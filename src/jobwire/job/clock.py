"""The wall clock of this process, for wires whose documents use the caller's time.

BullMQ's scripts and the predictions' objects take the caller's clock, so it is passed in and a test
can control it. Leases, delays and timestamps of Streams jobs use the server's clock instead.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """A source of wall-clock time."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds; may jump."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that changes only by `advance`; for tests."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        self._now_ms += round(seconds * 1000)
