"""Cancel requests of all shards of one server, over one subscription (G-6).

The engines of a worker share one. Each engine gets the messages of its own channel.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from jobwire.valkey import Connection, ValkeyError


class SharedCancels:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._channels: list[str] = []
        self._readers: dict[str, asyncio.Queue[str | ValkeyError]] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, channel: str) -> None:
        """Subscribe to a channel too; before the first `messages`."""
        self._channels.append(channel)

    @contextlib.asynccontextmanager
    async def messages(self, channel: str) -> AsyncGenerator["asyncio.Queue[str | ValkeyError]"]:
        """The messages of one channel; an error ends them."""
        queue: asyncio.Queue[str | ValkeyError] = asyncio.Queue()
        self._readers[channel] = queue
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._read())
        try:
            yield queue
        finally:
            del self._readers[channel]
            if not self._readers:
                await self._stop()

    async def _stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _read(self) -> None:
        try:
            async with self._connection.subscribe(*self._channels) as messages:
                async for message in messages:
                    if message is not None and (reader := self._readers.get(message[0])):
                        reader.put_nowait(message[1])
        except ValkeyError as error:
            for reader in self._readers.values():
                reader.put_nowait(error)
        finally:
            self._task = None
