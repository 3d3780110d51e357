"""Settings of the BullMQ wire. Passed to the queue and the consumer."""

from dataclasses import dataclass
from typing import Final

from jobwire.wires.bullmq import contract

RENEWALS_PER_LOCK: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BullSettings:
    prefix: str = contract.DEFAULT_PREFIX
    """The first part of every key; a Node team's `prefix` option."""
    extras: bool = True
    """Whether the published contract's additional fields and events are written."""
    lock_ms: int = contract.LOCK_MS
    """Time without a renewal after which a job is stalled."""
    stalled_interval_ms: int = contract.STALLED_INTERVAL_MS
    max_stalled: int = contract.MAX_STALLED
    """How often a job may stall before it fails."""
    limit_max: int = 0
    """How many jobs may start in `limit_ms`; 0 means any number."""
    limit_ms: int = 0
    announce: bool = True
    """Whether `getWorkers` of Node and Python finds this worker: two named sockets per queue."""
    metrics_points: int = 0
    """How many minutes of counts are kept; 0 turns the counts off."""

    @property
    def renew_every_ms(self) -> int:
        """B-3: the gap between renewals stays below half of the lock time."""
        return self.lock_ms // RENEWALS_PER_LOCK
