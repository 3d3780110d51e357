"""The time by the store's clock, which all processes of a bot share (P-39).

Functions run on machines whose clocks differ. The age of a task decides whether the provider is
asked a second time, so it is judged by one clock: that of the bucket, which is named in its
answers. Until the first answer the machine's own clock counts.
"""

from __future__ import annotations

from typing import Final

from jobwire.job.clock import Clock, SystemClock
from jobwire.objects import Bucket

# The store names whole seconds, and an answer takes a while.
_SAME_MS: Final = 2000


class StoreClock:
    """The machine's clock, corrected by what the store named last."""

    def __init__(self, bucket: Bucket, local: Clock | None = None) -> None:
        self._local = local or SystemClock()
        self._ahead_ms = 0
        bucket.calls.on_date = self._observe

    def now_ms(self) -> int:
        return self._local.now_ms() + self._ahead_ms

    def _observe(self, store_ms: int) -> None:
        ahead_ms = store_ms - self._local.now_ms()
        self._ahead_ms = 0 if abs(ahead_ms) <= _SAME_MS else ahead_ms
