"""Messages published on channels, from a socket of their own that comes back by itself.

Opened by `connection.subscribe`. Publishing is fire-and-forget on the server: what was published
while the socket was down is gone. So a time in which messages may have been missed is told as
None, and the reader then looks at the state itself; nothing may depend on a message alone.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from jobwire.valkey.config import Config
from jobwire.valkey.dial import dial
from jobwire.valkey.errors import ConnectionLost, NotSent, ValkeyError
from jobwire.valkey.resp_socket import Push, RespSocket

PING_EVERY_S: Final = 10.0
MAX_UNREAD: Final = 10_000


class Subscription:
    def __init__(
        self, config: Config, name: str, channels: tuple[str, ...], pause_s: Callable[[int], float]
    ) -> None:
        self._config = config
        self._name = name
        self._channels = channels
        self._pause_s = pause_s
        self._wire: RespSocket | None = None
        self._messages: deque[tuple[str, str]] = deque()
        self._news = asyncio.Event()
        self._missed = False

    async def __aenter__(self) -> Self:
        self._wire = await self._connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._wire is not None:
            await self._wire.close("unsubscribed")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[str, str] | None:
        """The next (channel, message), or None where some may have been missed."""
        assert self._wire is not None, "enter the subscription first"
        while True:
            if self._missed:
                self._missed = False
                return None
            if self._messages:
                return self._messages.popleft()
            if self._wire.closed.done():
                self._wire = await self._reconnect()
                return None
            self._news.clear()
            try:
                async with asyncio.timeout(PING_EVERY_S):
                    await self._news.wait()
            except TimeoutError:
                await self._ping(self._wire)

    async def _connect(self) -> RespSocket:
        wire, _ = await dial(self._config, self._name, on_push=self._keep)
        wire.closed.add_done_callback(lambda _: self._news.set())
        wire.send_unanswered("SUBSCRIBE", *self._channels)
        await wire.call("PING")  # answered after SUBSCRIBE took effect
        return wire

    async def _reconnect(self) -> RespSocket:
        tries = 0
        while True:
            await asyncio.sleep(self._pause_s(tries))
            tries += 1
            try:
                return await self._connect()
            except ValkeyError:
                continue

    async def _ping(self, wire: RespSocket) -> None:
        """Find out a peer that has gone silently: its reply's deadline gives the socket up."""
        try:
            await wire.call("PING")
        except (ConnectionLost, NotSent):
            return

    def _keep(self, push: Push) -> None:
        match push:
            case ["message", str(channel), str(text)]:
                if len(self._messages) >= MAX_UNREAD:
                    self._messages.clear()
                    self._missed = True
                self._messages.append((channel, text))
                self._news.set()
            case _:
                pass
