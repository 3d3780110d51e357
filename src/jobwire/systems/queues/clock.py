"""The caller's clock: scripts of this wire take the time as an argument and never ask the server.

The queue and the consumer use it; tests pass a clock of their own.
"""

import time
from collections.abc import Callable
from typing import TypeAlias

NowMs: TypeAlias = Callable[[], int]


def system_now_ms() -> int:
    """Milliseconds since 1970, by this machine."""
    return time.time_ns() // 1_000_000
