"""A consumer of a group over any object with the `Client` protocol, such as a fake in a test.

The steps that are one script on a `Connection` are several commands here, so they hold only while
no other program claims the same entries. Plain commands do not lower an entry's delivery count: a
postponed entry counts as delivered once.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from jobwire.valkey.connection import Connection
from jobwire.valkey.group_consumer import GroupConsumer, GroupReader
from jobwire.valkey.operations import Client, Pending, StreamMessage
from jobwire.valkey.scripted_group import DEAD_MAXLEN, ScriptedGroupConsumer

_PAUSE_S: Final = 0.01


def group_consumer(client: Client, stream: str, group: str, consumer: str) -> GroupConsumer:
    """Return the operations of one consumer, by scripts where the client is a `Connection`."""
    if isinstance(client, Connection):
        return ScriptedGroupConsumer(client, stream, group, consumer)
    return PlainGroupConsumer(client, stream, group, consumer)


class _PlainReader:
    def __init__(self, client: Client, consumer: GroupConsumer) -> None:
        self._client = client
        self._consumer = consumer

    async def read(self, count: int, block_s: float) -> list[StreamMessage]:
        of, start_s = self._consumer, time.monotonic()
        found = await self._client.xreadgroup(
            of.group, of.consumer, of.stream, count=count, block_s=block_s
        )
        if not found and time.monotonic() - start_s < block_s:
            await asyncio.sleep(_PAUSE_S)  # a fake may not block at all
        return found

    async def unblock(self) -> None:
        """Nothing: a read ends by its block time."""


class PlainGroupConsumer(GroupConsumer):
    """The same operations by plain commands."""

    @contextlib.asynccontextmanager
    async def reader(self) -> AsyncGenerator[GroupReader]:
        yield _PlainReader(self._client, self)

    async def pending(
        self, after: str, limit: int, *, holder: str | None = None, idle_s: float = 0.0
    ) -> list[Pending]:
        """None where the client, as a fake may, cannot list them: it reads new entries only."""
        if not callable(getattr(self._client, "xpending_range", None)):
            return []
        return await super().pending(after, limit, holder=holder, idle_s=idle_s)

    async def claim(self, entries: Sequence[Pending], *, idle_s: float) -> list[StreamMessage]:
        if not entries:
            return []
        ids = [entry.id for entry in entries]
        return await self._client.xclaim(self.stream, self.group, self.consumer, idle_s, *ids)

    async def renew(self, ids: Sequence[str]) -> list[str]:  # noqa: ARG002 - the interface
        return []

    async def release(self, ids: Sequence[str]) -> None:
        """Nothing: the entries stay pending until a reclaimer finds them idle."""

    async def postpone(self, id_: str) -> None:
        """Nothing: the entry is kept in this process."""

    async def resume(self, id_: str) -> bool:  # noqa: ARG002 - the interface
        return True

    async def dead_letter(self, entry: Pending, reason: str, *, idle_s: float) -> bool:
        claimed = await self.claim([entry], idle_s=idle_s)
        fields = {
            "entry_id": entry.id,
            "reason": reason,
            "deliveries": entry.deliveries,
            "fields": json.dumps(claimed[0].fields if claimed else {}),
        }
        await self._client.xadd_maxlen(self.dead_stream, DEAD_MAXLEN, fields, approximate=True)
        await self.ack(entry.id)
        return True

    async def remove_idle_consumers(self, idle_s: float) -> list[str]:  # noqa: ARG002 - the interface
        return []
