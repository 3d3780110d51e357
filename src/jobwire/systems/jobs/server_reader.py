"""What routes read of the server besides single jobs: counts, the last hour, failures.

The gateway has one. `ShardedReader` reads the same of all shards.
"""

from collections.abc import Sequence
from typing import NamedTuple

from jobwire.job.messages import JobId
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.depth import Depth, depth
from jobwire.systems.jobs.failures import KindOfFailure, failures
from jobwire.systems.jobs.overview import JobsOverview, OverviewReader
from jobwire.systems.jobs.registry import WorkerRegistry
from jobwire.systems.jobs.stats import LastHour, MinuteStats
from jobwire.valkey import Connection


class FoundFailures(NamedTuple):
    """Kinds of failures."""

    kinds: Sequence[KindOfFailure]
    incomplete: tuple[int, ...] = ()
    """Shards that did not answer."""


class LastHourCounts(NamedTuple):
    """The minutes of the last hour, oldest first; the last one is still running."""

    minutes: Sequence[MinuteStats]
    incomplete: tuple[int, ...] = ()


class ServerReader:
    def __init__(self, connection: Connection, keys: StreamsKeys, registry: WorkerRegistry) -> None:
        self.connection = connection
        self.keys = keys
        self._hour = LastHour(connection, keys)
        self._overview = OverviewReader(connection, keys, registry)

    def place(self, job_id: JobId) -> tuple[Connection, StreamsKeys] | None:  # noqa: ARG002 - by shard
        """Where the keys of a job are; None if there is no such shard."""
        return self.connection, self.keys

    async def depth(self, names: Sequence[str]) -> Depth:
        """That of the named queues; BackendUnavailable if the server does not answer."""
        return await depth(self.connection, self.keys, names)

    async def last_hour(self) -> LastHourCounts:
        """The counters of the last hour."""
        return LastHourCounts(await self._hour.read())

    async def overview(self, names: Sequence[str]) -> JobsOverview:
        """The named queues, the workers and the last hour."""
        return await self._overview.read(names)

    async def failures(self, tenant: str, hours: int) -> FoundFailures:
        """A tenant's failures of the last hours."""
        return FoundFailures(await failures(self.connection, self.keys, tenant, hours))
