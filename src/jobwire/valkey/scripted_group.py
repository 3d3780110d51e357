"""A consumer of a group on a `Connection`.

Each method is one step on the server; decisions that depend on an entry's holder are made in a
script, so that no check is stale.
"""

import contextlib
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Final, cast

from jobwire.valkey.connection import Connection
from jobwire.valkey.group_consumer import GroupConsumer, GroupReader
from jobwire.valkey.operations import Pending, StreamMessage, messages_of
from jobwire.valkey.pool import OwnSocket
from jobwire.valkey.resp_socket import Reply
from jobwire.valkey.scripts import load_scripts

_SCRIPTS: Final = load_scripts("jobwire.valkey.lua")
DEAD_MAXLEN: Final = 10_000
# Longer than any reclaimer's idle timeout, and within the server's range.
_LONG_IDLE_MS: Final = 30 * 24 * 3600 * 1000


class _SocketReader:
    """Reads on a socket of its own."""

    def __init__(self, consumer: GroupConsumer, connection: Connection, own: OwnSocket) -> None:
        self._consumer = consumer
        self._connection = connection
        self._own = own

    async def read(self, count: int, block_s: float) -> list[StreamMessage]:
        of = self._consumer
        reply = await self._own.call(
            *("XREADGROUP", "GROUP", of.group, of.consumer, "COUNT", count),
            *("BLOCK", max(1, round(block_s * 1000)), "STREAMS", of.stream, ">"),
            block_s=block_s,
        )
        by_stream = cast("dict[str, list[Reply]] | None", reply) or {}
        return messages_of(by_stream.get(of.stream, []))

    async def unblock(self) -> None:
        await self._connection.call("CLIENT", "UNBLOCK", self._own.client_id)


class ScriptedGroupConsumer(GroupConsumer):
    """The operations as scripts."""

    def __init__(self, connection: Connection, stream: str, group: str, consumer: str) -> None:
        super().__init__(connection, stream, group, consumer)
        self._connection = connection

    @contextlib.asynccontextmanager
    async def reader(self) -> AsyncGenerator[GroupReader]:
        async with self._connection.socket() as own:
            yield _SocketReader(self, self._connection, own)

    async def claim(self, entries: Sequence[Pending], *, idle_s: float) -> list[StreamMessage]:
        if not entries:
            return []
        seen = [part for entry in entries for part in (entry.id, entry.holder)]
        idle_ms = round(idle_s * 1000)
        return messages_of(
            cast("list[Reply]", await self._run("claim", self.consumer, idle_ms, *seen))
        )

    async def renew(self, ids: Sequence[str]) -> list[str]:
        return cast("list[str]", await self._run("renew", self.consumer, *ids))

    async def release(self, ids: Sequence[str]) -> None:
        await self._run("release", self.consumer, _LONG_IDLE_MS, *ids)

    async def postpone(self, id_: str) -> None:
        await self._run("release", self.consumer, 0, id_)

    async def resume(self, id_: str) -> bool:
        return bool(await self.claim([Pending(id_, self.consumer, 0, 0)], idle_s=0.0))

    async def dead_letter(self, entry: Pending, reason: str, *, idle_s: float) -> bool:
        found = await self._connection.call("XRANGE", self.stream, entry.id, entry.id)
        messages = messages_of(cast("list[Reply]", found))
        # Bytes that are not UTF-8 are lone surrogates here; JSON escapes and keeps them.
        fields = json.dumps(messages[0].fields if messages else {})
        seen = (entry.id, entry.holder, round(idle_s * 1000))
        result = await self._connection.run(
            _SCRIPTS["dead_letter"],
            [self.stream, self.dead_stream],
            [self.group, *seen, DEAD_MAXLEN, reason, fields],
        )
        return result == "dead_lettered"

    async def remove_idle_consumers(self, idle_s: float) -> list[str]:
        return cast(
            "list[str]", await self._run("remove_idle_consumers", round(idle_s * 1000), 100)
        )

    async def _run(self, name: str, *arguments: str | int) -> Reply:
        return await self._connection.run(_SCRIPTS[name], [self.stream], [self.group, *arguments])
