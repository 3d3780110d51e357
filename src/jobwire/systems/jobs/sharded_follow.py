"""Live events of all shards: one follower a server, over one tracked socket (G-4)."""

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Final

from jobwire.job.ids import shard_of
from jobwire.job.messages import JobId
from jobwire.systems.jobs.clean_view import RollbackReader
from jobwire.systems.jobs.events import StreamEvent
from jobwire.systems.jobs.follow import Follower
from jobwire.systems.jobs.shards import Shard, Shards
from jobwire.valkey.stream_ids import START, Position
from jobwire.valkey.stream_subscriptions import EventReader

_FIRST: Final = 0
_CONNECT_S: Final = 0.1
"""For further attempts at the start to connect to a server that has answered."""


class ShardedFollower:
    """The methods of `Follower`."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._servers = {shard.connection: Follower(self) for shard in shards}

    def _shard(self, job_id: str) -> Shard:
        return self._shards.get(shard_of(job_id)) or self._shards[_FIRST]

    def events(self, job_id: str) -> str:
        """The key of a job's events."""
        return self._shard(job_id).keys.events(job_id)

    def _of(self, job_id: JobId) -> Follower:
        return self._servers[self._shard(job_id).connection]

    @property
    def followed(self) -> int:
        """How many jobs have subscriptions."""
        return sum(each.followed for each in self._servers.values())

    @property
    def table_use(self) -> float:
        """How much of the fullest server's table of tracked keys is in use (G-16)."""
        return max(each.table_use for each in self._servers.values())

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Follow inside the block, servers that are silent at its start from when they answer; at
        its end all waiters are released."""
        async with contextlib.AsyncExitStack() as stack:
            for connection, follower in self._servers.items():
                # One that is known to be silent is not dialed here: a dozen would take a minute.
                timeout_s = _CONNECT_S if connection.connected else 0.0
                running = follower.running(
                    connection.config,
                    connection.name,
                    connect_timeout_s=timeout_s,
                    or_later=True,
                )
                await stack.enter_async_context(running)
            yield

    def watch(
        self,
        job_id: JobId,
        reader: EventReader[StreamEvent],
        after: Position = START,
        *,
        finished: bool = False,
    ) -> Callable[[], None]:
        """Send every event after a position to `reader`; call the result to unsubscribe."""
        return self._of(job_id).watch(job_id, reader, after, finished=finished)

    def watch_clean(
        self,
        job_id: JobId,
        reader: RollbackReader,
        after: Position = START,
        *,
        finished: bool = False,
        started_ms: int = 0,
        is_behind: bool = False,
    ) -> Callable[[], None]:
        """The same in the clean view."""
        return self._of(job_id).watch_clean(
            *(job_id, reader, after),
            finished=finished,
            started_ms=started_ms,
            is_behind=is_behind,
        )

    async def is_behind(self, job_id: JobId, position: Position) -> bool:
        """Whether the event at a position does not tell if the next one takes something back."""
        return await self._of(job_id).is_behind(job_id, position)

    async def until_ended(self, job_id: JobId, timeout_s: float) -> None:
        """Return when the job has ended, after the timeout, or when this process stops."""
        await self._of(job_id).until_ended(job_id, timeout_s)

    async def is_last(self, job_id: JobId, position: Position) -> bool:
        """Whether the event at this position is the terminal one; ValkeyError if unknown."""
        return await self._of(job_id).is_last(job_id, position)

    def release_waiters(self) -> None:
        """Release all callers of `until_ended`: this process stops."""
        for follower in self._servers.values():
            follower.release_waiters()
