"""A read-only look at the queues of a server (`jobwire look`): nothing is written to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import asdict

from jobwire.systems.queues.announcement import seen_workers
from jobwire.systems.queues.contract import COLLECTIONS, NEWEST_FIRST, BullState
from jobwire.systems.queues.job_bodies import job_body
from jobwire.systems.queues.known_queues import KnownQueues
from jobwire.systems.queues.metrics import QueueFigures, measure
from jobwire.systems.queues.queue import QueueProducer
from jobwire.systems.queues.settings import BullSettings
from jobwire.valkey import Config, Connection

_MAX_STEPS: Final = 1_000
STATES: Final = tuple(map(str, COLLECTIONS))
"""The states of which jobs can be listed."""


@dataclass(frozen=True, slots=True)
class FoundQueue:
    """A queue as it was found."""

    name: str
    figures: QueueFigures
    workers: int | None


@dataclass(frozen=True, slots=True)
class FoundQueueJob:
    """A job as it was found; `body` is what the HTTP API would return."""

    id: str
    name: str
    state: str
    attempts_made: int
    reason: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FoundQueues:
    """`whole`: all keys of the server were seen."""

    queues: Sequence[FoundQueue]
    whole: bool


async def look_at_server(url: str, prefix: str) -> FoundQueues:
    """The queues of a server; ConfigError or ValkeyError if it cannot be read."""
    async with Connection.open(Config.from_url(url), name="jobwire-look") as connection:
        known_queues = KnownQueues(connection, prefix)
        more, steps = True, 0
        while more and steps < _MAX_STEPS:
            more, steps = (await known_queues.scan()).more, steps + 1
        figures = await measure(connection, prefix, known_queues.names)
        workers = await seen_workers(connection, prefix, known_queues.names)
        found = [FoundQueue(name, figures[name], (workers or {}).get(name)) for name in figures]
        return FoundQueues(found, not more)


async def look_at_jobs(
    url: str, prefix: str, queue: str, state: str, count: int
) -> list[FoundQueueJob]:
    """The first jobs of a state, or of each state without one; RefusedError for a bad name."""
    async with Connection.open(Config.from_url(url), name="jobwire-look") as connection:
        opened = QueueProducer(connection, queue, BullSettings(prefix=prefix))
        states = [BullState(state)] if state else list(COLLECTIONS)
        return [
            FoundQueueJob(
                job.id,
                job.name,
                str(each),
                job.attempts_made,
                job.problem or job.failed_reason,
                asdict(job_body(job, queue, each)),
            )
            for each in states
            for job in await opened.list(each, count=count, oldest_first=each not in NEWEST_FIRST)
        ]
