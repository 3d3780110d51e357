"""Messages published on channels, on an exclusive socket that reconnects.

Opened by `connection.subscribe`. Publishing is fire-and-forget: messages published while the socket
was down are lost. Where messages may have been missed, the iterator returns None, and the reader
reads the state itself; nothing may depend on a message alone.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, Self

from jobwire.valkey.dial import backoff_s
from jobwire.valkey.errors import ConnectionLost, NotSent, ValkeyError
from jobwire.valkey.resp_socket import Push, RespSocket
from jobwire.valkey.write_refusal import answered

PING_EVERY_S: Final = 10.0
MAX_UNREAD: Final = 10_000


class Dial(Protocol):
    """Connects a socket once; returns it and its client id."""

    async def __call__(self, *, on_push: Callable[[Push], None]) -> tuple[RespSocket, int]: ...


class Subscription:
    def __init__(self, dial: Dial, channels: tuple[str, ...], *, sharded: bool = False) -> None:
        """`sharded` channels are those of SPUBLISH: they belong to a slot of a Cluster."""
        self._dial = dial
        self._channels = channels
        self._command = "SSUBSCRIBE" if sharded else "SUBSCRIBE"
        self._sock: RespSocket | None = None
        self._messages: deque[tuple[str, str]] = deque()
        self._changed = asyncio.Event()
        self._missed = False

    async def __aenter__(self) -> Self:
        self._sock = await self._connect()
        return self

    async def __aexit__(self, *_exception: object) -> None:
        if self._sock is not None:
            await self._sock.close("unsubscribed")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[str, str] | None:
        """The next (channel, message), or None where some may have been missed."""
        assert self._sock is not None, "enter the subscription first"
        while True:
            if self._missed:
                self._missed = False
                return None
            if self._messages:
                return self._messages.popleft()
            if self._sock.closed.done():
                self._sock = await self._reconnect()
                return None
            self._changed.clear()
            try:
                async with asyncio.timeout(PING_EVERY_S):
                    await self._changed.wait()
            except TimeoutError:
                await self._ping(self._sock)

    async def _connect(self) -> RespSocket:
        sock, _ = await self._dial(on_push=self._store)
        sock.closed.add_done_callback(lambda _: self._changed.set())
        try:
            sock.on_not_primary = sock.retire
            sock.send_unanswered(self._command, *self._channels)
            await answered(sock.call("PING"))  # its reply follows SUBSCRIBE's
        except BaseException:  # also cancelled: nothing else would close it
            await sock.close("not subscribed")
            raise
        return sock

    async def _reconnect(self) -> RespSocket:
        attempts = 0
        while True:
            await asyncio.sleep(backoff_s(attempts))
            attempts += 1
            try:
                return await self._connect()
            except ValkeyError:
                continue

    async def _ping(self, sock: RespSocket) -> None:
        """Detect a dead peer: the reply's deadline fails the socket."""
        try:
            await answered(sock.call("PING"))
        except (ConnectionLost, NotSent):
            return

    def _store(self, push: Push) -> None:
        match push:
            case ["message" | "smessage", str(channel), str(text)]:
                if len(self._messages) >= MAX_UNREAD:
                    self._messages.clear()
                    self._missed = True
                self._messages.append((channel, text))
                self._changed.set()
            case _:
                pass
