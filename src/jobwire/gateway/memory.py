"""How a gateway divides the memory that it may use (O-15). Used by the parts that hold bytes of
clients."""

from typing import Final, NamedTuple

from jobwire.gateway.settings import GatewaySettings
from jobwire.spawn import usable_memory

_MIB: Final = 1 << 20
_MAX_BODIES: Final = 256 * _MIB
_MAX_UNREAD: Final = 128 * _MIB
_OF_CONNECTION: Final = 128 << 10
"""Memory for each connection: an event stream that is not read holds an event of up to 64 KiB,
and what is being written of it."""


class MemoryBudgets(NamedTuple):
    """Bytes, but for `connections`. A setting wins over the part of the memory."""

    bodies: int
    unread: int
    streams: int
    """Buffers of all event streams."""
    connections: int

    @classmethod
    def of(cls, settings: GatewaySettings) -> "MemoryBudgets":
        memory = settings.max_memory_mb * _MIB or usable_memory()
        return cls(
            bodies=settings.body_budget_mb * _MIB or min(_MAX_BODIES, memory // 16),
            unread=settings.unread_budget_mb * _MIB or min(_MAX_UNREAD, memory // 16),
            streams=memory // 16,
            connections=max(1, memory // _OF_CONNECTION),
        )
