"""Sockets that one caller at a time has for itself, for commands that block.

Given out by the connection; at most `pool_size` at once, kept open between uses. A socket whose
caller left in the middle of a command is closed, never handed on.
"""

import asyncio
from types import TracebackType
from typing import Self

from jobwire.valkey.config import Config
from jobwire.valkey.dial import dial
from jobwire.valkey.errors import Unavailable
from jobwire.valkey.resp_socket import Arg, RespSocket, Waiter


class SocketPool:
    def __init__(self, config: Config, name: str) -> None:
        self.config = config
        self._name = name
        self._places = asyncio.Semaphore(config.pool_size)
        self._idle: list[tuple[RespSocket, int]] = []
        self._out: set[RespSocket] = set()
        self._closed = False

    async def take(self) -> tuple[RespSocket, int]:
        """A socket and its id on the server."""
        try:
            async with asyncio.timeout(self.config.dial_timeout_s):
                await self._places.acquire()
        except TimeoutError:
            raise Unavailable(
                f"all {self.config.pool_size} sockets for blocking reads are in use;"
                " give them back sooner, or raise pool_size"
            ) from None
        try:
            while self._idle:
                wire, client_id = self._idle.pop()
                if wire.idle:
                    break
            else:
                wire, client_id = await dial(self.config, self._name)
                # A server that became a replica answers and is of no use: dial anew next time.
                wire.on_unfit = wire.retire
        except BaseException:
            self._places.release()
            raise
        self._out.add(wire)
        return wire, client_id

    async def give_back(self, wire: RespSocket, client_id: int) -> None:
        self._out.discard(wire)
        self._places.release()
        if wire.idle and not self._closed:
            wire.patience_s = self.config.read_timeout_s
            self._idle.append((wire, client_id))
        else:
            await wire.close("given back in the middle of a command")

    async def close(self) -> None:
        self._closed = True
        for wire in (*self._out, *(wire for wire, _ in self._idle)):
            await wire.close("the connection was closed here")
        self._idle.clear()


class OwnSocket:
    """`async with connection.socket() as own: await own.call(…, block_s=5)`."""

    def __init__(self, pool: SocketPool) -> None:
        self._pool = pool
        self._wire: RespSocket | None = None
        self.client_id = 0
        """For CLIENT UNBLOCK, from another socket."""

    async def __aenter__(self) -> Self:
        self._wire, self.client_id = await self._pool.take()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._wire is not None:
            wire, self._wire = self._wire, None
            await self._pool.give_back(wire, self.client_id)

    def call(self, *args: Arg, block_s: float = 0.0) -> Waiter:
        """Send a command now; awaiting gives its reply. `block_s` says for how long it, or one
        before it that is not answered yet, may block (`inf` for ever)."""
        assert self._wire is not None, "enter the socket first"
        self._wire.patience_s = self._pool.config.read_timeout_s + block_s
        return self._wire.call(*args)
