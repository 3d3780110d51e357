"""Operations of one consumer of a group on the entries of its stream.

Used by the consumer and the reclaimer. Each method is one step on the server; decisions that
depend on an entry's holder are made in a script, so that no check is stale.
"""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from jobwire.valkey.connection import Connection
from jobwire.valkey.errors import GroupExists
from jobwire.valkey.operations import StreamMessage, messages_of
from jobwire.valkey.pool import OwnSocket
from jobwire.valkey.resp_socket import Reply
from jobwire.valkey.scripts import load_scripts

_SCRIPTS: Final = load_scripts("jobwire.valkey.lua")
_DEAD_MAXLEN: Final = 10_000
# Longer than any reclaimer's idle timeout, and within the server's range.
_LONG_IDLE_MS: Final = 30 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Pending:
    """An entry that was delivered and not acknowledged."""

    id: str
    holder: str
    idle_ms: int
    deliveries: int


class GroupConsumer:
    """One consumer of one group of one stream."""

    def __init__(self, connection: Connection, stream: str, group: str, consumer: str) -> None:
        self.connection = connection
        self.stream = stream
        self.group = group
        self.consumer = consumer

    @property
    def dead_stream(self) -> str:
        return f"{self.stream}:dead"

    async def ensure_group(self) -> None:
        """Create group and stream if they are missing; the group reads from the stream's start."""
        with contextlib.suppress(GroupExists):
            await self.connection.xgroup_create_mkstream(self.stream, self.group, "0")

    async def read_new(self, own: OwnSocket, count: int, block_s: float) -> list[StreamMessage]:
        """Wait for entries that were not delivered to the group yet."""
        reply = await own.call(
            *("XREADGROUP", "GROUP", self.group, self.consumer, "COUNT", count),
            *("BLOCK", max(1, round(block_s * 1000)), "STREAMS", self.stream, ">"),
            block_s=block_s,
        )
        by_stream = cast("dict[str, list[Reply]] | None", reply) or {}
        return messages_of(by_stream.get(self.stream, []))

    async def ack(self, id_: str) -> None:
        """Acknowledge an entry."""
        await self.connection.xack(self.stream, self.group, id_)

    async def pending(
        self, after: str, limit: int, *, holder: str | None = None, idle_s: float = 0.0
    ) -> list[Pending]:
        """A page of pending entries from `after` on (`-` for the start, `(id` to continue)."""
        idle = ("IDLE", round(idle_s * 1000)) if idle_s else ()
        filter_ = (holder,) if holder is not None else ()
        reply = await self.connection.call(
            "XPENDING", self.stream, self.group, *idle, after, "+", limit, *filter_
        )
        return [Pending(*row) for row in cast("list[tuple[str, str, int, int]]", reply)]

    async def claim(self, entries: Sequence[Pending], *, idle_s: float) -> list[StreamMessage]:
        """Claim entries that still have the holder that was seen."""
        if not entries:
            return []
        seen = [part for entry in entries for part in (entry.id, entry.holder)]
        idle_ms = round(idle_s * 1000)
        return messages_of(
            cast("list[Reply]", await self._run("claim", self.consumer, idle_ms, *seen))
        )

    async def renew(self, ids: Sequence[str]) -> list[str]:
        """Reset the idle time of entries in flight; returns the ids that this consumer lost."""
        return cast("list[str]", await self._run("renew", self.consumer, *ids))

    async def release(self, ids: Sequence[str]) -> None:
        """Release entries that were not started."""
        await self._run("release", self.consumer, _LONG_IDLE_MS, *ids)

    async def dead_letter(self, entry: Pending, reason: str, *, idle_s: float) -> bool:
        """Move an exhausted entry to the dead-letter stream; False if there was nothing to move."""
        found = await self.connection.call("XRANGE", self.stream, entry.id, entry.id)
        messages = messages_of(cast("list[Reply]", found))
        # Bytes that are not UTF-8 are lone surrogates here; JSON escapes and keeps them.
        fields = json.dumps(messages[0].fields if messages else {})
        seen = (entry.id, entry.holder, round(idle_s * 1000))
        result = await self.connection.run(
            _SCRIPTS["dead_letter"],
            [self.stream, self.dead_stream],
            [self.group, *seen, _DEAD_MAXLEN, reason, fields],
        )
        return result == "dead_lettered"

    async def remove_idle_consumers(self, idle_s: float) -> list[str]:
        """Remove consumers that are idle for `idle_s` and have no pending entries; their names."""
        return cast(
            "list[str]", await self._run("remove_idle_consumers", round(idle_s * 1000), 100)
        )

    async def _run(self, name: str, *arguments: str | int) -> Reply:
        return await self.connection.run(_SCRIPTS[name], [self.stream], [self.group, *arguments])
