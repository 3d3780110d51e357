"""Waiting for work: a blocking read of one entry, on a socket of its own (J-30).

The engine has one. Behind the read it sends a command that starts what came, so that this costs no
further round trip; what was not started so is pending under our name, and stays here until the next
take. A read that blocks can be ended from outside without losing what it brings.
"""

import asyncio
from collections.abc import Awaitable, Collection, Sequence
from typing import Final

from jobwire.valkey import Arg, Connection, Reply, ServerError, ValkeyError
from jobwire.wires.streams.contract import GROUP
from jobwire.wires.streams.entries import FetchedEntry, read_fetched
from jobwire.wires.streams.replies import backend_unavailable
from jobwire.wires.streams.scripts import script

_JOIN: Final = script("join")
_GROUP_GONE: Final = frozenset({"NOGROUP", "UNBLOCKED"})
_PATIENCE_S: Final = 0.02


class BlockingReader:
    def __init__(self, connection: Connection, queue: str, consumer: str) -> None:
        self._connection = connection
        self._queue = queue
        self._consumer = consumer
        self._brought: list[FetchedEntry] = []
        self._over: asyncio.Event | None = None
        self._client_id = 0
        self._woken = False
        self._nudged = False

    @property
    def fetched(self) -> list[FetchedEntry]:
        """What is here, not started yet."""
        return self._brought

    def take_fetched(self) -> list[FetchedEntry]:
        """The same, for the caller to start; nothing is left here."""
        brought, self._brought = self._brought, []
        return brought

    def mark_handled(self, entries: Collection[object]) -> None:
        """These need no take any more."""
        self._brought = [one for one in self._brought if one.entry not in entries]

    async def make_group(self) -> None:
        """Create the group of workers if it is missing; a full server allows it (J-9)."""
        try:
            await self._connection.run(_JOIN, [self._queue])
        except ValkeyError as error:
            raise backend_unavailable(error) from error

    async def wait(self, timeout_s: float, then: Sequence[Arg]) -> tuple[bool, Reply]:
        """Whether there is something to take; and what the command `then` answered, None where the
        server would not run it or was not asked."""
        if self._brought:
            return True, None
        if self._woken:
            self._woken = False
            return False, None
        over = self._over = asyncio.Event()
        try:
            read, answer = await self._read(max(1, round(timeout_s * 1000)), then)
            nudged = self._nudged
        except ValkeyError as error:
            raise backend_unavailable(error) from error
        finally:
            self._over, self._client_id = None, 0
            self._woken = self._nudged = False
            over.set()
        if isinstance(read, ServerError):
            if read.code not in _GROUP_GONE:
                raise backend_unavailable(read) from read
            # The server was emptied, or the group removed, under our feet: begin anew.
            await self.make_group()
        else:
            self._brought = read_fetched(read)
        return bool(self._brought) or nudged, None if isinstance(answer, ServerError) else answer

    async def _read(self, block_ms: int, then: Sequence[Arg]) -> tuple[Reply, Reply]:
        """What the read and the command behind it answered, errors of the server among it."""
        block_s = block_ms / 1000
        async with self._connection.socket() as own:
            self._client_id = own.client_id
            reading = own.call(
                *("XREADGROUP", "GROUP", GROUP, self._consumer, "COUNT", 1),
                *("BLOCK", block_ms, "STREAMS", self._queue, ">"),
                block_s=block_s,
            )
            following = own.call(*then, block_s=block_s)
            try:
                return await _said(reading), await _said(following)
            finally:
                following.cancel()

    async def wake(self) -> None:
        """End a wait; one that is about to begin ends at once."""
        self._woken = True
        await self._unblock()

    async def wake_if_idle(self) -> None:
        """End a wait as if something had come; nobody waiting, nothing happens."""
        if self._over is not None:
            self._nudged = True
            await self._unblock()

    async def _unblock(self) -> None:
        over = self._over
        while over is not None and not over.is_set():
            try:
                if self._client_id:
                    await self._connection.call("CLIENT", "UNBLOCK", self._client_id)
                async with asyncio.timeout(_PATIENCE_S):
                    await over.wait()
            except TimeoutError:
                continue  # it had not blocked yet: ask again
            except ValkeyError:
                return  # no server, so no blocked read either


async def _said(answer: Awaitable[Reply]) -> Reply:
    """A refusal is an answer, too."""
    try:
        return await answer
    except ServerError as error:
        return error
