"""Checks of jobs for `jobwire doctor`: the server's clock, the queues, the models.

A queue in which jobs wait must be read by a live worker (J-53), in each shard.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import NamedTuple

from jobwire.doctor import Finding, model
from jobwire.doctor.valkey import examine_queue, is_worth_showing, named
from jobwire.job.errors import BackendUnavailable
from jobwire.settings import Loaded
from jobwire.systems.backends import known_valkey, open_reachable
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.depth import depth
from jobwire.systems.jobs.durability import Durability
from jobwire.systems.jobs.queue_admin import JobQueueAdmin
from jobwire.systems.jobs.registry import RegisteredWorker, WorkerRegistry
from jobwire.systems.jobs.settings import MEMORY, StreamsSettings
from jobwire.systems.jobs.system import shard_servers
from jobwire.text import plural
from jobwire.valkey import Config, ConfigError, Connection, ValkeyError

_MAX_FINDINGS = 10


class Place(NamedTuple):
    """The server and the settings of a shard; without shards there is one place."""

    config: Config
    settings: StreamsSettings

    @property
    def name(self) -> str:
        return f"shard {self.settings.shard}"


class WaitingJobs(NamedTuple):
    """The jobs that wait in one queue of one shard."""

    queue: str
    shard: int | None
    """None without shards."""
    jobs: int
    paused: bool
    read: bool
    """By a live worker, as far as known."""


async def examine(loaded: Loaded) -> AsyncIterator[Finding]:
    """All checks; nothing is changed."""
    # A prefix that a Cluster does not allow is reported by the checks of the server.
    with contextlib.suppress(ConfigError):
        places = list(_places(loaded))
        for place in places:
            async for finding in _examine_server(place):
                if not place.settings.shard:
                    yield finding
                elif is_worth_showing(finding):
                    yield named(finding, place.name)
        async for finding in examine_queues(places):
            yield finding
    async for finding in model.examine(loaded.settings.llm):
        yield finding


def _places(loaded: Loaded) -> Iterator[Place]:
    jobs, known = loaded.settings.jobs, known_valkey(loaded)
    if jobs.shards.urls:
        for number, config in shard_servers(loaded.settings).items():
            yield Place(config, jobs.of_shard(number))
    elif known is not None:
        shards = [jobs.of_shard(number) for number in jobs.shards.numbers]
        for own in shards or [jobs]:
            yield Place(known.config.for_keys(own.key_prefix), own)


async def _examine_server(place: Place) -> AsyncIterator[Finding]:
    queue = StreamsKeys(place.settings.key_prefix).queue
    async for finding in examine_queue(place.config, queue):
        yield finding
    async for finding in examine_durability(place.config, place.settings):
        yield finding


async def examine_queues(places: Sequence[Place]) -> AsyncIterator[Finding]:
    """Check each queue; nothing for an unreachable server, which another check reports."""
    findings: list[Finding] = []
    configs = (place.config for place in places)
    async with open_reachable(configs, "jobwire-doctor") as opened:
        with contextlib.suppress(ValkeyError, BackendUnavailable):
            findings = await _findings(
                [(place, opened[place.config]) for place in places if place.config in opened]
            )
    for finding in findings[:_MAX_FINDINGS]:
        yield finding


async def examine_durability(config: Config, settings: StreamsSettings) -> AsyncIterator[Finding]:
    """Check that the server meets `jobs.durability` (G-22)."""
    if settings.durability == MEMORY:
        return
    with contextlib.suppress(ValkeyError):
        async with Connection.open(config, name="jobwire-doctor") as connection:
            durability = Durability(connection, settings.durability)
            fault = await durability.fault()
            name = f"durability {durability.level}"
            if fault:
                yield Finding(name, "fault", fault, "new jobs are refused", durability.fix)
            else:
                yield Finding(name, "ok", "the server syncs each write before it answers")


async def _findings(opened: Sequence[tuple[Place, Connection]]) -> list[Finding]:
    """Those of the shards that answer; none if the first one, where workers are registered, does
    not."""
    if not opened or opened[0][0].settings.shard:
        return []
    registries = [WorkerRegistry(connection, place.settings) for place, connection in opened]
    first = registries[0]
    workers = await first.workers()
    queues = [
        queue
        for (place, connection), registry in zip(opened, registries, strict=True)
        for queue in await _waiting(place, connection, registry, workers)
    ]
    found = [*_paused(queues), *_unread(queues)]
    for task, names in (await first.task_queues()).items():
        if len(names) > 1:
            what = f"live in {len(names)} queues: {', '.join(names)}"
            why = f"new jobs wait in {names[0]}, the queue of the worker that was started last"
            fix = "give the App one name, or the handler one queue=, in every worker"
            found.append(Finding(f"task {task}", "note", what, why, fix))
    count = len({queue.queue for queue in queues})
    return found or [Finding("job queues", "ok", f"{count}, all queues with jobs have a worker")]


async def _waiting(
    place: Place,
    connection: Connection,
    registry: WorkerRegistry,
    workers: Sequence[RegisteredWorker],
) -> list[WaitingJobs]:
    """The queues of one shard. A worker that is bound to others is not among the consumers here,
    but for the first shard, where all are registered. Which queues a foreign worker reads is not
    known."""
    names = await registry.queue_names()
    now = await depth(connection, registry.keys, names)
    paused = await JobQueueAdmin(connection, place.settings).paused()
    consumers = dict(zip(names, await registry.consumers_of(names), strict=True))
    foreign = any(not worker.ours for worker in await registry.workers())
    sharded = bool(place.settings.shards.numbers)
    return [
        WaitingJobs(
            queue.name,
            place.settings.shard if sharded else None,
            queue.waiting,
            queue.name in paused,
            foreign
            or any(
                queue.name in worker.queues
                and (not sharded or worker.name in consumers[queue.name])
                for worker in workers
            ),
        )
        for queue in now.queues
    ]


def _paused(queues: Sequence[WaitingJobs]) -> Iterator[Finding]:
    for name in dict.fromkeys(queue.queue for queue in queues if queue.paused):
        count = sum(queue.jobs for queue in queues if queue.queue == name)
        why = f"{plural(count, 'job')} waiting until it is resumed"
        fix = f"jobwire queue resume {name} --wire streams"
        yield Finding(f"queue {name}", "note", "it is paused", why, fix)


def _unread(queues: Sequence[WaitingJobs]) -> Iterator[Finding]:
    unread: dict[str, list[WaitingJobs]] = {}
    for queue in queues:
        if queue.jobs and not queue.paused and not queue.read:
            unread.setdefault(queue.queue, []).append(queue)
    for name, found in unread.items():
        shards = [str(queue.shard) for queue in found if queue.shard is not None]
        where = f" in shard {', '.join(shards)}" if shards else ""
        count = plural(sum(queue.jobs for queue in found), "job")
        what = f"{count} waiting{where}, and no live worker reads it"
        fix = "start a worker of its App; for `default`, also set worker.default_queue"
        yield Finding(f"queue {name}", "note", what, "nothing starts until a worker does", fix)
