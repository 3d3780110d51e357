"""A read-only look at the queues of a server (`jobwire look`): nothing is written to it."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
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
_MAX_REPLY_BYTES: Final = 16 << 20
"""The server may be any: it does not choose how much memory its replies take."""
_PAGE_BYTES: Final = 8 << 20
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


def _opened(url: str, prefix: str) -> AbstractAsyncContextManager[Connection]:
    config = Config.from_url(url, max_reply_bytes=_MAX_REPLY_BYTES).for_keys(prefix)
    return Connection.open(config, name="jobwire-look")


async def look_at_server(url: str, prefix: str) -> FoundQueues:
    """The queues of a server; ConfigError or ValkeyError if it cannot be read."""
    async with _opened(url, prefix) as connection:
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
    async with _opened(url, prefix) as connection:
        opened = QueueProducer(connection, queue, BullSettings(prefix=prefix))
        states = [BullState(state)] if state else list(COLLECTIONS)
        pages = [
            (
                each,
                await opened.page(
                    each, 0, count, oldest_first=each not in NEWEST_FIRST, max_bytes=_PAGE_BYTES
                ),
            )
            for each in states
        ]
        return [
            FoundQueueJob(
                job.id,
                job.name,
                str(each),
                job.attempts_made,
                job.problem or job.failed_reason,
                asdict(job_body(job, queue, each)),
            )
            for each, (jobs, _) in pages
            for job in jobs
        ]
