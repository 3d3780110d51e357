"""A consumer's place in a group: what it may do with the entries of its stream.

Used by the consumer and the reclaimer. Each method is one step on the server; whatever depends
on who holds an entry is decided there, in a script, and not by a look from afar.
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
# Longer than any reclaimer waits, and well within what the server can express.
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
        """Make group and stream if they are missing; the group sees the stream from its start."""
        with contextlib.suppress(GroupExists):
            await self.connection.xgroup_create_mkstream(self.stream, self.group, "0")

    async def read_new(self, own: OwnSocket, count: int, block_s: float) -> list[StreamMessage]:
        """Wait for entries that nobody in the group has been given."""
        reply = await own.call(
            *("XREADGROUP", "GROUP", self.group, self.consumer, "COUNT", count),
            *("BLOCK", max(1, round(block_s * 1000)), "STREAMS", self.stream, ">"),
            block_s=block_s,
        )
        by_stream = cast("dict[str, list[Reply]] | None", reply) or {}
        return messages_of(by_stream.get(self.stream, []))

    async def ack(self, id_: str) -> None:
        """The entry is done."""
        await self.connection.xack(self.stream, self.group, id_)

    async def pending(
        self, after: str, limit: int, *, holder: str | None = None, idle_s: float = 0.0
    ) -> list[Pending]:
        """A page of pending entries from `after` on (`-` for the start, `(id` to go on)."""
        idle = ("IDLE", round(idle_s * 1000)) if idle_s else ()
        of = (holder,) if holder is not None else ()
        reply = await self.connection.call(
            "XPENDING", self.stream, self.group, *idle, after, "+", limit, *of
        )
        return [Pending(*row) for row in cast("list[tuple[str, str, int, int]]", reply)]

    async def claim(self, entries: Sequence[Pending], *, idle_s: float) -> list[StreamMessage]:
        """Take entries over that are still as they were seen."""
        if not entries:
            return []
        seen = [part for entry in entries for part in (entry.id, entry.holder)]
        idle_ms = round(idle_s * 1000)
        return messages_of(
            cast("list[Reply]", await self._run("claim", self.consumer, idle_ms, *seen))
        )

    async def renew(self, ids: Sequence[str]) -> list[str]:
        """Renew the idle time of entries in hand; returns those that are ours no longer."""
        return cast("list[str]", await self._run("renew", self.consumer, *ids))

    async def release(self, ids: Sequence[str]) -> None:
        """Give entries back that were not begun."""
        await self._run("release", self.consumer, _LONG_IDLE_MS, *ids)

    async def dead_letter(self, entry: Pending, reason: str, *, idle_s: float) -> bool:
        """Move a hopeless entry to the dead-letter stream; False if there was nothing to move."""
        found = await self.connection.call("XRANGE", self.stream, entry.id, entry.id)
        messages = messages_of(cast("list[Reply]", found))
        # Bytes that are no text become lone surrogates, which JSON escapes and so keeps.
        fields = json.dumps(messages[0].fields if messages else {})
        seen = (entry.id, entry.holder, round(idle_s * 1000))
        answer = await self.connection.run(
            _SCRIPTS["dead_letter"],
            [self.stream, self.dead_stream],
            [self.group, *seen, _DEAD_MAXLEN, reason, fields],
        )
        return answer == "buried"

    async def remove_idle_consumers(self, silent_s: float) -> list[str]:
        """Remove consumers that have long been silent and own nothing; returns their names."""
        return cast(
            "list[str]", await self._run("remove_idle_consumers", round(silent_s * 1000), 100)
        )

    async def _run(self, name: str, *arguments: str | int) -> Reply:
        return await self.connection.run(_SCRIPTS[name], [self.stream], [self.group, *arguments])
