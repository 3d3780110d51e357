"""The wall clock of this process, for wires whose documents use the caller's time.

The predictions' objects carry the caller's time, so it is passed in and a test can control it.
Leases and delays of queued jobs use the server's clock instead.
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
