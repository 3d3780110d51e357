"""Job ids, fencing tokens and the random fractions that backoffs take as an argument."""

import hashlib
import re
import secrets
from random import SystemRandom
from typing import Final

from jobwire.job.messages import JobId, Token

_random: Final = SystemRandom()
_random_bytes: Final = _random.randbytes
# The digit of the UUID's variant: two of its bits are fixed, two are random.
_SHARD_ID: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
)
_VARIANT: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def new_job_id() -> JobId:
    """A random job id (UUID 4): 122 random bits, so that it cannot be guessed."""
    return _job_id(_random_bytes(16).hex())


def new_job_ids(count: int) -> list[JobId]:
    """Many job ids from one read of the system's randomness, which is most of an id's cost."""
    digits = _random_bytes(16 * count).hex()
    return [_job_id(digits[at : at + 32]) for at in range(0, 32 * count, 32)]


def new_shard_id(shard: int) -> JobId:
    """A job id of a shard. Those of shards after the first are UUIDs of version 8 that begin with
    the shard's number (G-3): 114 random bits."""
    return _shard_id(shard, _random_bytes(16).hex()) if shard else new_job_id()


def new_shard_ids(shard: int, count: int) -> list[JobId]:
    """Many job ids of a shard, as `new_job_ids`."""
    if not shard:
        return new_job_ids(count)
    digits = _random_bytes(16 * count).hex()
    return [_shard_id(shard, digits[at : at + 32]) for at in range(0, 32 * count, 32)]


def shard_of(job_id: str) -> int:
    """The shard of a job, by its id: the only function that parses one (G-3). Every id that is no
    UUID of version 8 is of the first shard."""
    if job_id[14:15] != "8" or _SHARD_ID.fullmatch(job_id) is None:
        return 0
    return int(job_id[:2], 16)


def child_job_id(parent: JobId, name: str) -> JobId:
    """The id of a job's child: the same for the same name, however often it is submitted. Others
    cannot choose it. It is in the parent's shard."""
    digits = hashlib.sha256(f"{parent}\0{name}".encode()).hexdigest()[:32]
    shard = shard_of(parent)
    return _shard_id(shard, digits) if shard else _job_id(digits)


def _shard_id(shard: int, digits: str) -> JobId:
    return _job_id(f"{shard:02x}{digits[2:]}", "8")


def _job_id(digits: str, version: str = "4") -> JobId:
    # Not by `uuid`: that costs three times as much, once per job.
    third, variant = f"{version}{digits[13:16]}", f"{_VARIANT[digits[16]]}{digits[17:20]}"
    return JobId(f"{digits[:8]}-{digits[8:12]}-{third}-{variant}-{digits[20:]}")


def new_tokens(count: int) -> list[Token]:
    """Fencing tokens for a batch of jobs.

    Random and not counted: after a failover a counter could be handed out twice (J-33).
    """
    digits = secrets.token_bytes(16 * count).hex()
    return [Token(digits[at : at + 32]) for at in range(0, 32 * count, 32)]


def random_fraction() -> float:
    """A random number, 0 ≤ x < 1."""
    return _random.random()
