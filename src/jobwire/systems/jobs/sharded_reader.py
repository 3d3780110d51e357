"""Counts, the last hour, failures and workers of all shards, added up (G-4).

The gateway of an installation with shards has them in place of `ServerReader`, `WorkerRegistry` and
`JobQueueAdmin`. A shard that does not answer is left out and named, unless the caller needs all.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from jobwire.job import time_buckets
from jobwire.job.errors import BackendUnavailable
from jobwire.job.ids import shard_of
from jobwire.job.messages import JobId, MissingRequirement, TaskDefinition
from jobwire.systems.jobs.contract import DEFAULT_QUEUE, StreamsKeys
from jobwire.systems.jobs.depth import Depth, QueueDepth
from jobwire.systems.jobs.failures import KindOfFailure
from jobwire.systems.jobs.overview import JobsOverview, QueueRow
from jobwire.systems.jobs.queue_admin import JobQueueAdmin
from jobwire.systems.jobs.registry import (
    ConsumerRow,
    RegisteredWorker,
    Registration,
    WorkerRegistry,
)
from jobwire.systems.jobs.server_reader import FoundFailures, LastHourCounts, ServerReader
from jobwire.systems.jobs.shards import Shard, Shards
from jobwire.systems.jobs.stats import MinuteStats
from jobwire.valkey import Connection


class ShardedReader:
    """The methods of `ServerReader`."""

    def __init__(self, shards: Shards, registry: WorkerRegistry) -> None:
        self._shards = shards
        self._readers = {
            shard.number: ServerReader(shard.connection, shard.keys, registry) for shard in shards
        }
        self.connection, self.keys = shards.first.connection, shards.first.keys

    def _reader(self, shard: Shard) -> ServerReader:
        return self._readers[shard.number]

    def place(self, job_id: JobId) -> tuple[Connection, StreamsKeys] | None:
        """Where the keys of a job are; None if there is no such shard."""
        shard = self._shards.get(shard_of(job_id))
        return None if shard is None else (shard.connection, shard.keys)

    async def depth(self, names: Sequence[str]) -> Depth:
        """That of the named queues."""
        found = await self._shards.gather(lambda shard: self._reader(shard).depth(names))
        return replace(merged_depth(found.values), incomplete=found.silent)

    async def last_hour(self) -> LastHourCounts:
        """The counters of the last hour."""
        found = await self._shards.gather(lambda shard: self._reader(shard).last_hour())
        minutes = merged_minutes([each.minutes for each in found.values])
        return LastHourCounts(minutes, found.silent)

    async def overview(self, names: Sequence[str]) -> JobsOverview:
        """The named queues, the workers and the last hour."""
        found = await self._shards.gather(lambda shard: self._reader(shard).overview(names))
        return merged_overview(found.values)._replace(incomplete=found.silent)

    async def failures(self, tenant: str, hours: int) -> FoundFailures:
        """A tenant's failures of the last hours."""
        found = await self._shards.gather(lambda shard: self._reader(shard).failures(tenant, hours))
        return FoundFailures(merged_failures([each.kinds for each in found.values]), found.silent)


class ShardedAdmin:
    """The methods of `JobQueueAdmin`: a queue is paused in all shards, or the caller gets an
    error and repeats it."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._admins = {
            shard.number: JobQueueAdmin(shard.connection, shard.settings) for shard in shards
        }

    async def paused(self) -> frozenset[str]:
        """The names of the queues that are paused in any shard."""
        found = await self._shards.gather(lambda shard: self._admins[shard.number].paused())
        return frozenset[str]().union(*found.values)

    async def pause(self, name: str) -> bool:
        """Let workers start no job of the queue; False if there is no such queue."""
        return any(await self._shards.of_all(lambda each: self._admins[each.number].pause(name)))

    async def resume(self, name: str) -> bool:
        """Let them start jobs again; False if there is no such queue."""
        return any(await self._shards.of_all(lambda each: self._admins[each.number].resume(name)))

    async def purge(self, name: str, tenant: str = "", *, suspended: bool = False) -> int | None:
        """Cancel the waiting jobs of the queue; how many there were, or None if there is no such
        queue."""
        found = await self._shards.of_all(
            lambda each: self._admins[each.number].purge(name, tenant, suspended=suspended),
            is_long=True,
        )
        canceled = [count for count in found if count is not None]
        return sum(canceled) if canceled else None


class ShardedRegistry(WorkerRegistry):
    """Every worker registers in the first shard, and in the others that it reads: they are asked
    while the first is silent. Consumers are found in all of them: foreign workers know one shard,
    and the running jobs of ours are everywhere."""

    def __init__(self, shards: Shards, definitions: Iterable[TaskDefinition] = ()) -> None:
        super().__init__(shards.first.connection, shards.first.settings, definitions)
        self._shards = shards
        self._registries = {
            shard.number: WorkerRegistry(shard.connection, shard.settings) for shard in shards
        }
        self._has_read_first = True
        """Whether the remembered tasks are those of the first shard."""

    async def unknown_among(self, tasks: Iterable[str]) -> set[str]:
        """Those of `tasks` that no worker has or had. BackendUnavailable if the first shard, which
        may know them, did not answer."""
        unknown = await super().unknown_among(tasks)
        if unknown and not self._has_read_first:
            raise BackendUnavailable("the first shard, which knows all tasks, does not answer")
        return unknown

    async def live_tasks(self, consumers: Iterable[str]) -> dict[str, list[Registration]]:
        """Each live task as its workers have registered it, the newest worker first."""
        _, found = await self._shards.of_one(
            lambda each: self._registries[each.number].live_tasks(consumers)
        )
        return found

    async def remembered(self) -> dict[str, Registration]:
        """The tasks of workers that live or have lived."""
        shard, found = await self._shards.of_one(
            lambda each: self._registries[each.number].remembered()
        )
        self._has_read_first = shard is self._shards.first
        return found

    async def missing_of(self, consumers: Iterable[str]) -> list[tuple[MissingRequirement, ...]]:
        """The missing requirements of each of these that lives and is ours."""
        _, found = await self._shards.of_one(
            lambda each: self._registries[each.number].missing_of(consumers)
        )
        return found

    async def consumer_rows(self, consumers: Mapping[str, int]) -> tuple[int, list[ConsumerRow]]:
        """A server's time, and these consumers of the default queue."""
        _, found = await self._shards.of_one(
            lambda each: self._registries[each.number].consumer_rows(consumers)
        )
        return found

    async def queue_names(self) -> list[str]:
        """The names of all queues, the default one first."""
        found = await self._shards.gather(lambda each: self._registries[each.number].queue_names())
        names = {name for names in found.values for name in names}
        return [DEFAULT_QUEUE, *sorted(names - {DEFAULT_QUEUE})]

    async def consumers_of(self, queues: Sequence[str]) -> list[dict[str, int]]:
        """For each queue: consumer name → milliseconds since its last call, in any shard."""
        found = await self._shards.gather(
            lambda each: self._registries[each.number].consumers_of(queues)
        )
        merged: list[dict[str, int]] = []
        for of_shards in zip(*found.values, strict=True):
            idle: dict[str, int] = {}
            for consumers in of_shards:
                for name, idle_ms in consumers.items():
                    idle[name] = min(idle_ms, idle.get(name, idle_ms))
            merged.append(idle)
        return merged

    async def worker_info(self, consumers: Mapping[str, int]) -> list[RegisteredWorker]:
        """The registrations and running jobs of these consumers, in their order."""
        found = await self._shards.gather(
            lambda each: self._registries[each.number].worker_info(consumers)
        )
        return [reduce(_merged_worker, rows) for rows in zip(*found.values, strict=True)]


def _merged_worker(first: RegisteredWorker, second: RegisteredWorker) -> RegisteredWorker:
    """One worker in two shards: the registration of the one that has it, the jobs of both."""
    described = first if first.host else second
    return replace(described, running=(*first.running, *second.running))


# Adding up: pure


def _oldest(ages: Iterable[int | None]) -> int | None:
    return max((age for age in ages if age is not None), default=None)


def _merged_queue(rows: Sequence[QueueDepth]) -> QueueDepth:
    return QueueDepth(
        rows[0].name,
        sum(row.waiting for row in rows),
        sum(row.running for row in rows),
        _oldest(row.oldest_waiting_ms for row in rows),
    )


def merged_depth(found: Sequence[Depth]) -> Depth:
    """The same queues in all shards, added up."""
    queues = [_merged_queue(rows) for rows in zip(*(each.queues for each in found), strict=True)]
    return Depth(
        tuple(queues),
        delayed=sum(each.delayed for each in found),
        suspended=sum(each.suspended for each in found),
        due_soon=sum(each.due_soon for each in found),
        unfinished=sum(each.unfinished for each in found),
    )


def merged_minutes(hours: Sequence[Sequence[MinuteStats]]) -> list[MinuteStats]:
    """The same minutes in all shards, added up. Servers' clocks may differ by a minute: the hour
    ends with the earliest."""
    last = min(hour[-1].start_ms for hour in hours)
    by_minute: dict[int, list[MinuteStats]] = {}
    for hour in hours:
        for minute in hour:
            if minute.start_ms <= last:
                by_minute.setdefault(minute.start_ms, []).append(minute)
    return [_merged_minute(by_minute[start]) for start in sorted(by_minute)][-len(hours[0]) :]


def _merged_minute(rows: Sequence[MinuteStats]) -> MinuteStats:
    counts: Counter[str] = Counter()
    for row in rows:
        counts.update(row.counts)
    return MinuteStats(
        rows[0].start_ms,
        counts,
        time_buckets.merged([row.latency for row in rows]),
        time_buckets.merged([row.duration for row in rows]),
    )


def merged_overview(found: Sequence[JobsOverview]) -> JobsOverview:
    """The overviews of all shards, added up; the workers are those of the first, where all of ours
    are registered."""
    rows = [_merged_row(each) for each in zip(*(one.queues for one in found), strict=True)]
    with_jobs = [row for row in rows if row.depth.waiting]
    return JobsOverview(
        waiting=sum(each.waiting for each in found),
        delayed=sum(each.delayed for each in found),
        suspended=sum(each.suspended for each in found),
        running=sum(each.running for each in found),
        oldest_waiting_ms=_oldest(each.oldest_waiting_ms for each in found),
        paused=bool(with_jobs) and all(row.paused for row in with_jobs),
        queues=rows,
        fleet=found[0].fleet,
        minutes=merged_minutes([each.minutes for each in found]),
    )


def _merged_row(rows: Sequence[QueueRow]) -> QueueRow:
    return QueueRow(
        _merged_queue([row.depth for row in rows]),
        any(row.paused for row in rows),
        max(row.workers for row in rows),
    )


def merged_failures(shards: Sequence[Sequence[KindOfFailure]]) -> list[KindOfFailure]:
    """The kinds of failures of all shards, each once."""
    kinds: dict[tuple[str, str, str], KindOfFailure] = {}
    for kind in (kind for of_shard in shards for kind in of_shard):
        found = kinds.setdefault((kind.task, kind.code, kind.message), kind)
        if found is kind:
            continue
        found.by_hour = [sum(counts) for counts in zip(found.by_hour, kind.by_hour, strict=True)]
        found.first_ms = min(found.first_ms, kind.first_ms)
        if found.worker != kind.worker:
            found.worker = ""
        found.last_ms, found.sample = max(
            (found.last_ms, found.sample), (kind.last_ms, kind.sample)
        )
    return list(kinds.values())
