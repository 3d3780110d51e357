"""Waits for work: a blocking read of one entry, on a socket of its own (J-30).

The engine has one. A command that starts the fetched entry is pipelined behind the read, which
saves a round trip; an entry that was not started this way is pending under this consumer, and stays
here until the next take. A blocked read can be ended from outside without losing an entry.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Collection, Sequence
from typing import Final, cast

from jobwire.valkey import Arg, Connection, Reply, ServerError, ValkeyError
from jobwire.wires.streams.contract import GROUP
from jobwire.wires.streams.entries import FetchedEntry, read_fetched
from jobwire.wires.streams.replies import backend_unavailable
from jobwire.wires.streams.scripts import script

_JOIN: Final = script("join")
_GROUP_GONE: Final = frozenset({"NOGROUP", "UNBLOCKED"})
_UNBLOCK_RETRY_S: Final = 0.02


class BlockingReader:
    def __init__(self, connection: Connection, queue: str, consumer: str) -> None:
        self._connection = connection
        self._queue = queue
        self._consumer = consumer
        self._fetched: list[FetchedEntry] = []
        self._wait_ended: asyncio.Event | None = None
        self._client_id = 0
        self._woken = False
        self._is_nudged = False
        self._was_nudged = False
        """The last wait ended as if there were a job."""

    @property
    def fetched(self) -> list[FetchedEntry]:
        """Fetched entries that are not started yet."""
        return self._fetched

    def take_fetched(self) -> list[FetchedEntry]:
        """Remove and return them, for the caller to start."""
        fetched, self._fetched = self._fetched, []
        return fetched

    def mark_handled(self, entries: Collection[object]) -> None:
        """Forget entries that were started or dropped."""
        self._fetched = [fetched for fetched in self._fetched if fetched.entry not in entries]

    async def make_group(self) -> None:
        """Create the consumer group if it is missing; a full server allows it (J-9)."""
        try:
            await self._connection.run(_JOIN, [self._queue])
        except ValkeyError as error:
            raise backend_unavailable(error) from error

    async def wait(self, timeout_s: float, then: Sequence[Arg]) -> tuple[bool, Reply]:
        """Whether there is a job to take or to reclaim; and the reply to the command `then`, None
        where the server refused it or it was not sent."""
        if self._fetched:
            return True, None
        read = answer = None
        async with self._interruptible() as begins:
            if not begins:
                return False, None
            read, answer = await self._read(max(1, round(timeout_s * 1000)), then)
        if isinstance(read, ServerError):
            if read.code not in _GROUP_GONE:
                raise backend_unavailable(read) from read
            # The server was emptied, or the group was deleted: create it again.
            await self.make_group()
        else:
            self._fetched = read_fetched(read)
        is_ready = bool(self._fetched) or self._was_nudged
        return is_ready, None if isinstance(answer, ServerError) else answer

    @contextlib.asynccontextmanager
    async def _interruptible(self) -> AsyncGenerator[bool]:
        """A wait that `wake` and `wake_if_idle` end; False: it is to end before it begins."""
        if self._woken:
            self._woken = False
            yield False
            return
        wait_ended = self._wait_ended = asyncio.Event()
        try:
            yield True
        except ValkeyError as error:
            raise backend_unavailable(error) from error
        finally:
            self._was_nudged = self._is_nudged
            self._wait_ended, self._client_id = None, 0
            self._woken = self._is_nudged = False
            wait_ended.set()

    async def watch(self, timeout_s: float) -> bool:
        """Whether there is a job to take or to reclaim, without fetching one: for a worker that
        has no free slot, so that other workers get the job first."""
        if self._fetched:
            return True
        async with self._interruptible() as begins:
            if not begins:
                return False
            async with self._connection.socket() as own:
                self._client_id = own.client_id
                last = _last_delivered(
                    await _reply_or_error(own.call("XINFO", "GROUPS", self._queue))
                )
                block_ms = max(1, round(timeout_s * 1000))
                command = ("XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", self._queue, last)
                found = await own.call(*command, block_s=block_ms / 1000)
        return bool(found) or self._was_nudged

    async def _read(self, block_ms: int, then: Sequence[Arg]) -> tuple[Reply, Reply]:
        """The replies to the read and to the command behind it; errors of the server as values."""
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
                return await _reply_or_error(reading), await _reply_or_error(following)
            finally:
                following.cancel()

    async def wake(self) -> None:
        """End a wait; one that is about to begin ends at once."""
        self._woken = True
        await self._unblock()

    async def wake_if_idle(self) -> None:
        """End a wait as if there were a job; without a wait nothing happens."""
        if self._wait_ended is not None:
            self._is_nudged = True
            await self._unblock()

    async def _unblock(self) -> None:
        wait_ended = self._wait_ended
        while wait_ended is not None and not wait_ended.is_set():
            try:
                if self._client_id:
                    await self._connection.call("CLIENT", "UNBLOCK", self._client_id)
                async with asyncio.timeout(_UNBLOCK_RETRY_S):
                    await wait_ended.wait()
            except TimeoutError:
                continue  # it had not blocked yet: unblock it again
            except ValkeyError:
                return  # no server, so no blocked read either


async def _reply_or_error(reply: Awaitable[Reply]) -> Reply:
    """The reply, or the server's error as a value."""
    try:
        return await reply
    except ServerError as error:
        return error


def _last_delivered(reply: Reply) -> str:
    """The last entry that the group has received, by XINFO GROUPS; without a group the start."""
    if not isinstance(reply, list):
        return "0-0"
    groups = cast("list[dict[str, Reply]]", reply)
    return next((str(each["last-delivered-id"]) for each in groups if each["name"] == GROUP), "0-0")
