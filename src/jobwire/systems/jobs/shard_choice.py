"""In which shard a new job is stored (G-2). Pure.

Rendezvous hashing: when shards are added, a name stays where it is or moves to one of the new
shards. The weights are pinned by a golden file: another choice would lose idempotency keys.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

_MASK: Final = (1 << 64) - 1
_MIX: Final = 0x9E3779B97F4A7C15
"""An odd number without a pattern in its bits."""


def choose(name: str, shards: Sequence[int]) -> int:
    """The shard of a name among these."""
    if len(shards) == 1:
        return shards[0]
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    seed = int.from_bytes(digest, "big")
    return max(shards, key=lambda shard: _weight(seed, shard))


def _weight(seed: int, shard: int) -> int:
    mixed = (seed ^ ((shard + 1) * _MIX & _MASK)) * _MIX & _MASK
    mixed = (mixed ^ (mixed >> 32)) * _MIX & _MASK
    return mixed ^ (mixed >> 29)
