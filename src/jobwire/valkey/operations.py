"""The server's commands as typed methods; each method is one command.

`Client` is the protocol, for users who want to replace the connection; `Operations` implements it
with `call`, and the connection inherits it.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Protocol, cast

from jobwire.valkey.errors import ServerError, StreamNotFound
from jobwire.valkey.resp_socket import Arg, Reply


@dataclass(frozen=True, slots=True)
class StreamMessage:
    id: str
    fields: dict[str, str]
    """Empty if the entry was deleted while it was pending."""


@dataclass(frozen=True, slots=True)
class PendingInfo:
    count: int
    consumers: dict[str, int]
    """Pending entries of each consumer that has any."""


@dataclass(frozen=True, slots=True)
class Pending:
    """An entry that was delivered and not acknowledged."""

    id: str
    holder: str
    idle_ms: int
    deliveries: int


class Client(Protocol):
    """The commands that the toolkit needs of a connection. Another object with these methods can
    take its place, such as a fake in a test."""

    async def ping(self) -> str: ...
    async def close(self) -> None: ...
    async def xadd(self, stream: str, fields: Mapping[str, Arg]) -> str: ...
    async def xadd_maxlen(
        self, stream: str, maxlen: int, fields: Mapping[str, Arg], *, approximate: bool = False
    ) -> str: ...
    async def xreadgroup(
        self,
        group: str,
        consumer: str,
        stream: str,
        *,
        start: str = ">",
        count: int = 10,
        block_s: float | None = None,
    ) -> list[StreamMessage]: ...
    async def xack(self, stream: str, group: str, *ids: str) -> int: ...
    async def xclaim(
        self, stream: str, group: str, consumer: str, min_idle_s: float, *ids: str
    ) -> list[StreamMessage]: ...
    async def xpending(self, stream: str, group: str) -> PendingInfo: ...
    async def xpending_range(
        self,
        stream: str,
        group: str,
        start: str,
        limit: int,
        *,
        consumer: str | None = None,
        idle_s: float = 0.0,
    ) -> list[Pending]: ...
    async def xtrim(self, stream: str, maxlen: int, *, approximate: bool = False) -> int: ...
    async def xgroup_create(self, stream: str, group: str, start: str = "0") -> None: ...
    async def xgroup_create_mkstream(self, stream: str, group: str, start: str = "0") -> None: ...
    async def group_exists(self, stream: str, group: str) -> bool: ...
    async def hset(self, key: str, fields: Mapping[str, Arg]) -> int: ...
    async def hgetall(self, key: str) -> dict[str, str]: ...
    async def expire(self, key: str, ttl_s: float) -> bool: ...
    async def delete(self, *keys: str) -> int: ...


class Operations(ABC):
    @abstractmethod
    def call(self, *args: Arg) -> Awaitable[Reply]: ...

    @abstractmethod
    async def block(self, *args: Arg, block_s: float) -> Reply: ...

    async def ping(self) -> str:
        return cast(str, await self.call("PING"))

    # Streams

    async def xadd(self, stream: str, fields: Mapping[str, Arg]) -> str:
        """Append an entry; returns its id."""
        return cast(str, await self.call("XADD", stream, "*", *_flat(fields)))

    async def xadd_maxlen(
        self, stream: str, maxlen: int, fields: Mapping[str, Arg], *, approximate: bool = False
    ) -> str:
        """Append an entry and trim to `maxlen` in the same step."""
        sign = "~" if approximate else "="
        return cast(
            str, await self.call("XADD", stream, "MAXLEN", sign, maxlen, "*", *_flat(fields))
        )

    async def xreadgroup(
        self,
        group: str,
        consumer: str,
        stream: str,
        *,
        start: str = ">",
        count: int = 10,
        block_s: float | None = None,
    ) -> list[StreamMessage]:
        """Entries for a consumer; empty if there are none. `start` other than `>` reads the
        consumer's pending entries. With `block_s` it waits, on an exclusive socket."""
        head = ("XREADGROUP", "GROUP", group, consumer, "COUNT", count)
        if block_s is None:
            reply = await self.call(*head, "STREAMS", stream, start)
        else:
            # BLOCK 0 means forever; the minimum is one millisecond.
            block_ms = max(1, round(block_s * 1000))
            reply = await self.block(
                *head, "BLOCK", block_ms, "STREAMS", stream, start, block_s=block_s
            )
        by_stream = cast("dict[str, list[Reply]] | None", reply) or {}
        return [message for entries in by_stream.values() for message in messages_of(entries)]

    async def xack(self, stream: str, group: str, *ids: str) -> int:
        """Acknowledge entries; returns how many were pending."""
        return cast(int, await self.call("XACK", stream, group, *ids)) if ids else 0

    async def xclaim(
        self, stream: str, group: str, consumer: str, min_idle_s: float, *ids: str
    ) -> list[StreamMessage]:
        """Claim pending entries that have been idle for at least `min_idle_s`."""
        idle_ms = round(min_idle_s * 1000)
        if not ids:
            return []
        reply = await self.call("XCLAIM", stream, group, consumer, idle_ms, *ids)
        return messages_of(cast("list[Reply]", reply))

    async def xpending(self, stream: str, group: str) -> PendingInfo:
        count, _, _, consumers = cast("list[Reply]", await self.call("XPENDING", stream, group))
        pairs = cast("list[tuple[str, str]] | None", consumers) or []
        return PendingInfo(cast(int, count), {name: int(number) for name, number in pairs})

    async def xpending_range(
        self,
        stream: str,
        group: str,
        start: str,
        limit: int,
        *,
        consumer: str | None = None,
        idle_s: float = 0.0,
    ) -> list[Pending]:
        """Pending entries from `start` on (`-` for the first, `(id` to continue), of one consumer
        or of all, idle for at least `idle_s`."""
        idle = ("IDLE", round(idle_s * 1000)) if idle_s else ()
        of = (consumer,) if consumer is not None else ()
        reply = await self.call("XPENDING", stream, group, *idle, start, "+", limit, *of)
        return [Pending(*row) for row in cast("list[tuple[str, str, int, int]]", reply)]

    async def xtrim(self, stream: str, maxlen: int, *, approximate: bool = False) -> int:
        """Delete the oldest entries beyond `maxlen`; returns how many."""
        sign = "~" if approximate else "="
        return cast(int, await self.call("XTRIM", stream, "MAXLEN", sign, maxlen))

    async def xgroup_create(self, stream: str, group: str, start: str = "0") -> None:
        """Create a group on an existing stream; raises GroupExists or StreamNotFound."""
        try:
            await self.call("XGROUP", "CREATE", stream, group, start)
        except ServerError as error:
            if "requires the key to exist" in str(error):
                raise StreamNotFound(
                    f"ERR no stream {stream!r} to create group {group!r} on"
                ) from error
            raise

    async def xgroup_create_mkstream(self, stream: str, group: str, start: str = "0") -> None:
        """Create a group, and the stream if it is missing."""
        await self.call("XGROUP", "CREATE", stream, group, start, "MKSTREAM")

    async def group_exists(self, stream: str, group: str) -> bool:
        """False for a missing stream, too."""
        try:
            groups = cast("list[dict[str, Reply]]", await self.call("XINFO", "GROUPS", stream))
        except ServerError as error:
            if "no such key" in str(error):
                return False
            raise
        return any(info["name"] == group for info in groups)

    # Hashes and keys

    async def hset(self, key: str, fields: Mapping[str, Arg]) -> int:
        """Set fields; returns how many are new."""
        return cast(int, await self.call("HSET", key, *_flat(fields)))

    async def hgetall(self, key: str) -> dict[str, str]:
        """Empty for a missing key."""
        return cast("dict[str, str]", await self.call("HGETALL", key))

    async def expire(self, key: str, ttl_s: float) -> bool:
        """False if there is no such key."""
        return await self.call("PEXPIRE", key, round(ttl_s * 1000)) == 1

    async def delete(self, *keys: str) -> int:
        """Delete keys; returns how many existed."""
        return cast(int, await self.call("DEL", *keys)) if keys else 0


def _flat(fields: Mapping[str, Arg]) -> list[Arg]:
    return [part for pair in fields.items() for part in pair]


def messages_of(entries: list[Reply]) -> list[StreamMessage]:
    """Parse entries of a reply: pairs of an id and its fields as a flat list."""
    messages: list[StreamMessage] = []
    for entry in cast("list[tuple[str, list[str] | None]]", entries):
        flat = entry[1] or []
        messages.append(StreamMessage(entry[0], dict(zip(flat[::2], flat[1::2], strict=True))))
    return messages
