"""Job ids, fencing tokens and the random fractions that backoffs take as an argument."""

import secrets
from random import SystemRandom
from typing import Final

from jobwire.job.messages import JobId, Token

_random: Final = SystemRandom()
_random_bytes: Final = _random.randbytes
# The digit of the UUID's variant: two of its bits are fixed, two are random.
_VARIANT: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def new_job_id() -> JobId:
    """A random job id (UUID 4): 122 random bits, so that it cannot be guessed."""
    return _job_id(_random_bytes(16).hex())


def new_job_ids(count: int) -> list[JobId]:
    """Many job ids from one read of the system's randomness, which is most of an id's cost."""
    digits = _random_bytes(16 * count).hex()
    return [_job_id(digits[at : at + 32]) for at in range(0, 32 * count, 32)]


def _job_id(digits: str) -> JobId:
    # Not by `uuid`: that costs three times as much, once per job.
    version, variant = f"4{digits[13:16]}", f"{_VARIANT[digits[16]]}{digits[17:20]}"
    return JobId(f"{digits[:8]}-{digits[8:12]}-{version}-{variant}-{digits[20:]}")


def new_tokens(count: int) -> list[Token]:
    """Fencing tokens for a batch of jobs.

    Random and not counted: after a failover a counter could be handed out twice (J-33).
    """
    digits = secrets.token_bytes(16 * count).hex()
    return [Token(digits[at : at + 32]) for at in range(0, 32 * count, 32)]


def random_fraction() -> float:
    """A random number, 0 ≤ x < 1."""
    return _random.random()
