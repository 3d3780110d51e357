"""Exclusive sockets for blocking commands.

At most `pool_size` at once, kept open between uses. A socket whose caller was cancelled during a
command is closed, never reused.
"""

import asyncio
from typing import Self

from jobwire.valkey.dialer import Dialer
from jobwire.valkey.errors import Unavailable
from jobwire.valkey.resp_socket import Arg, RespSocket, Waiter


class SocketPool:
    def __init__(self, dialer: Dialer, name: str) -> None:
        self.config = dialer.config
        self._dialer = dialer
        self._name = name
        self._permits = asyncio.Semaphore(self.config.pool_size)
        self._idle: list[tuple[RespSocket, int]] = []
        self._in_use: set[RespSocket] = set()
        self._closed = False

    async def take(self) -> tuple[RespSocket, int]:
        """Acquire a socket and its client id."""
        try:
            async with asyncio.timeout(self.config.dial_timeout_s):
                await self._permits.acquire()
        except TimeoutError:
            raise Unavailable(
                f"all {self.config.pool_size} sockets for blocking reads are in use;"
                " release them sooner, or raise pool_size"
            ) from None
        try:
            while self._idle:
                sock, client_id = self._idle.pop()
                if sock.idle:
                    break
            else:
                sock, client_id = await self._dialer.dial(self._name)
                # A replica accepts no writes: connect anew next time.
                sock.on_not_primary = sock.retire
        except BaseException:
            self._permits.release()
            raise
        self._in_use.add(sock)
        return sock, client_id

    async def release(self, sock: RespSocket, client_id: int) -> None:
        self._in_use.discard(sock)
        self._permits.release()
        if sock.idle and not self._closed:
            sock.reply_timeout_s = self.config.read_timeout_s
            self._idle.append((sock, client_id))
        else:
            await sock.close("released during a command")

    async def close(self) -> None:
        self._closed = True
        for sock in (*self._in_use, *(sock for sock, _ in self._idle)):
            await sock.close("the connection was closed here")
        self._idle.clear()


class OwnSocket:
    """`async with connection.socket() as own: await own.call(…, block_s=5)`."""

    def __init__(self, pool: SocketPool) -> None:
        self._pool = pool
        self._sock: RespSocket | None = None
        self.client_id = 0
        """For CLIENT UNBLOCK, from another socket."""

    async def __aenter__(self) -> Self:
        self._sock, self.client_id = await self._pool.take()
        return self

    async def __aexit__(self, *_exception: object) -> None:
        if self._sock is not None:
            sock, self._sock = self._sock, None
            await self._pool.release(sock, self.client_id)

    def call(self, *args: Arg, block_s: float = 0.0) -> Waiter:
        """Send a command now; awaiting returns its reply. `block_s` is how long this command, or an
        unanswered one before it, may block (`inf` means forever)."""
        assert self._sock is not None, "enter the socket first"
        self._sock.reply_timeout_s = self._pool.config.read_timeout_s + block_s
        return self._sock.call(*args)
