"""Operations of one consumer of a group on the entries of its stream.

Used by the consumer and the reclaimer. `scripted_group` implements them on a `Connection`,
`plain_group` on any other client.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from jobwire.valkey.errors import GroupExists
from jobwire.valkey.operations import Client, Pending, StreamMessage


class GroupReader(Protocol):
    """Reads new entries of a group."""

    async def read(self, count: int, block_s: float) -> list[StreamMessage]:
        """Wait for entries that were not delivered to the group yet."""
        ...

    async def unblock(self) -> None:
        """Make a `read` in progress return now."""
        ...


class GroupConsumer(ABC):
    """One consumer of one group of one stream."""

    def __init__(self, client: Client, stream: str, group: str, consumer: str) -> None:
        self.stream = stream
        self.group = group
        self.consumer = consumer
        self._client = client

    @property
    def dead_stream(self) -> str:
        return f"{self.stream}:dead"

    async def ensure_group(self) -> None:
        """Create group and stream if they are missing; the group reads from the stream's start."""
        with contextlib.suppress(GroupExists):
            await self._client.xgroup_create_mkstream(self.stream, self.group, "0")

    async def ack(self, id_: str) -> None:
        """Acknowledge an entry."""
        await self._client.xack(self.stream, self.group, id_)

    async def pending(
        self, after: str, limit: int, *, holder: str | None = None, idle_s: float = 0.0
    ) -> list[Pending]:
        """A page of pending entries from `after` on (`-` for the start, `(id` to continue)."""
        return await self._client.xpending_range(
            self.stream, self.group, after, limit, consumer=holder, idle_s=idle_s
        )

    @abstractmethod
    def reader(self) -> AbstractAsyncContextManager[GroupReader]:
        """Open a reader of new entries."""

    @abstractmethod
    async def claim(self, entries: Sequence[Pending], *, idle_s: float) -> list[StreamMessage]:
        """Claim entries that still have the holder that was seen."""

    @abstractmethod
    async def renew(self, ids: Sequence[str]) -> list[str]:
        """Reset the idle time of entries in flight; returns the ids that this consumer lost."""

    @abstractmethod
    async def release(self, ids: Sequence[str]) -> None:
        """Release entries that were not started, for the next scan of a reclaimer."""

    @abstractmethod
    async def postpone(self, id_: str) -> None:
        """Keep an entry that is handled later; this delivery is not counted."""

    @abstractmethod
    async def resume(self, id_: str) -> bool:
        """Count a delivery of a postponed entry; False if it was lost or deleted."""

    @abstractmethod
    async def dead_letter(self, entry: Pending, reason: str, *, idle_s: float) -> bool:
        """Move an entry to the dead-letter stream; False if there was nothing to move."""

    @abstractmethod
    async def remove_idle_consumers(self, idle_s: float) -> list[str]:
        """Remove consumers that are idle for `idle_s` and have no pending entries; their names."""
