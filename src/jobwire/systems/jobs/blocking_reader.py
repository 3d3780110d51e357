"""Waits for work: a blocking read of one entry, on a socket of its own (J-30).

The engine has one, for all queues of its worker (J-53): a read of several streams may bring one
entry of each. A command that starts the fetched entries is pipelined behind the read, which saves a
round trip; an entry that was not started this way is pending under this consumer, and stays here
until the next take. A blocked read can be ended from outside without losing an entry.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Collection, Sequence
from typing import Final, cast

from jobwire.systems.jobs.contract import GROUP, StreamsKeys
from jobwire.systems.jobs.entries import FetchedEntry, read_fetched
from jobwire.systems.jobs.replies import backend_unavailable
from jobwire.systems.jobs.scripts import script
from jobwire.valkey import Arg, Connection, Reply, ServerError, ValkeyError
from jobwire.valkey.errors import Moved

_JOIN: Final = script("join")
_GROUP_GONE: Final = frozenset({"NOGROUP", "UNBLOCKED"})
_UNBLOCK_RETRY_S: Final = 0.02


class BlockingReader:
    def __init__(
        self, connection: Connection, keys: StreamsKeys, queues: Sequence[str], consumer: str
    ) -> None:
        self._connection = connection
        self._default_queue = keys.queue
        self._queues = tuple(queues)
        self._streams = {keys.named_queue(name): name for name in queues}
        """Stream → the queue's name."""
        self._readable = tuple(self._streams)
        self._consumer = consumer
        self._fetched: list[FetchedEntry] = []
        self._wait_ended: asyncio.Event | None = None
        self._client_id = 0
        self._woken = False
        self._is_nudged = False
        self._asleep: asyncio.Event | None = None
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

    def mark_handled(self, names: Collection[str]) -> None:
        """Forget entries that were started or dropped, by their names."""
        self._fetched = [fetched for fetched in self._fetched if fetched.name not in names]

    def pause(self, paused: Collection[str]) -> None:
        """Do not read these queues from now on."""
        self._readable = tuple(key for key, name in self._streams.items() if name not in paused)

    async def make_groups(self) -> None:
        """Create the consumer groups that are missing; a full server allows it (J-9)."""
        try:
            await self._connection.run(_JOIN, [self._default_queue], self._queues)
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
            if not self._readable:
                await self._sleep(timeout_s)
                return self._is_nudged, None
            read, answer = await self._read(max(1, round(timeout_s * 1000)), then)
        if isinstance(read, Moved):
            pass  # nothing was fetched: the next read is at the node that has the slot now
        elif isinstance(read, ServerError):
            if read.code not in _GROUP_GONE:
                raise backend_unavailable(read) from read
            # The server was emptied, or a group was deleted: create it again.
            await self.make_groups()
        else:
            self._fetched = read_fetched(read, self._streams)
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
        found = None
        async with self._interruptible() as begins:
            if not begins:
                return False
            streams = self._readable
            if not streams:
                await self._sleep(timeout_s)
                return self._is_nudged
            async with self._connection.socket() as own:
                self._client_id = own.client_id
                calls = [own.call("XINFO", "GROUPS", stream) for stream in streams]
                last = [_last_delivered(await _reply_or_error(call)) for call in calls]
                block_ms = max(1, round(timeout_s * 1000))
                command = ("XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", *streams, *last)
                with contextlib.suppress(Moved):
                    found = await own.call(*command, block_s=block_ms / 1000)
        return bool(found) or self._was_nudged

    async def _sleep(self, timeout_s: float) -> None:
        """Wait without a read: all queues are paused."""
        self._asleep = asyncio.Event()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._asleep.wait()
        self._asleep = None

    async def _read(self, block_ms: int, then: Sequence[Arg]) -> tuple[Reply, Reply]:
        """The replies to the read and to the command behind it; errors of the server as values."""
        block_s = block_ms / 1000
        streams = self._readable
        async with self._connection.socket() as own:
            self._client_id = own.client_id
            reading = own.call(
                *("XREADGROUP", "GROUP", GROUP, self._consumer, "COUNT", 1),
                *("BLOCK", block_ms, "STREAMS", *streams, *(">" for _ in streams)),
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
        if self._asleep is not None:
            self._asleep.set()
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
