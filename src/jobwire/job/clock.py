"""Time, ids and randomness: the only place where the heart's callers get them.

Deadlines and backoffs of this process are computed from a `Clock` that is handed in, so a test can
hold time still. Leases, delays and timestamps of jobs are not: they use the server's own clock.
"""

import secrets
import time
from random import SystemRandom
from typing import Final, Protocol

from jobwire.job.messages import JobId, Token


class Clock(Protocol):
    """What time it is, for this process."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds; may jump."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that only move forward; for deadlines."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that stands still until it is told otherwise; for tests."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._elapsed_s = 0.0

    def now_ms(self) -> int:
        return self._now_ms + round(self._elapsed_s * 1000)

    def monotonic_s(self) -> float:
        return self._elapsed_s

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        self._elapsed_s += seconds


_random_bytes: Final = SystemRandom().randbytes
# The digit that says the variant: two of its bits are fixed, two are random.
_VARIANT: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def new_job_id() -> JobId:
    """A random job id (UUID 4): 122 random bits, so that it cannot be guessed."""
    return _job_id(_random_bytes(16).hex())


def new_job_ids(count: int) -> list[JobId]:
    """Many at a time: asking the system for randomness is most of what an id costs."""
    digits = _random_bytes(16 * count).hex()
    return [_job_id(digits[at : at + 32]) for at in range(0, 32 * count, 32)]


def _job_id(digits: str) -> JobId:
    # By hand: the library's way costs three times as much, once a job.
    version, variant = f"4{digits[13:16]}", f"{_VARIANT[digits[16]]}{digits[17:20]}"
    return JobId(f"{digits[:8]}-{digits[8:12]}-{version}-{variant}-{digits[20:]}")


def new_tokens(count: int) -> list[Token]:
    """Fencing tokens, made many at a time because a batch needs one a job.

    Random and not counted: after a failover a counter could be handed out twice (J-33).
    """
    digits = secrets.token_bytes(16 * count).hex()
    return [Token(digits[at : at + 32]) for at in range(0, 32 * count, 32)]


def random_fraction() -> float:
    """A random number, 0 ≤ x < 1; what `retry.py` takes as its argument."""
    return secrets.randbits(53) / (1 << 53)
