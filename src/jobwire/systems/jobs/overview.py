"""All queues, workers and the last hour in one call, for the row of an overview (O-11).

Every open page asks every two seconds, so this is read by one script. `depth`, `stats` and
`registry` read the same one by one, and more of it, for requests that are rare.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, cast

from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.depth import QueueDepth
from jobwire.systems.jobs.registry import ConsumerRow, FleetSummary, WorkerRegistry
from jobwire.systems.jobs.replies import collect, pairs
from jobwire.systems.jobs.scripts import script
from jobwire.systems.jobs.stats import MINUTES, LastHour, MinuteStats
from jobwire.valkey import Connection

_SCRIPT: Final = script("overview")
_PER_QUEUE: Final = 4
_PER_WORKER: Final = 5


class QueueRow(NamedTuple):
    """One queue now."""

    depth: QueueDepth
    paused: bool
    workers: int
    """Live workers that read it; foreign ones are counted for the default queue."""


class JobsOverview(NamedTuple):
    """All queues together, now and in the last hour."""

    waiting: int
    delayed: int
    suspended: int
    running: int
    oldest_waiting_ms: int | None
    paused: bool
    """Every queue that has waiting jobs is paused."""
    queues: Sequence[QueueRow]
    fleet: FleetSummary
    minutes: Sequence[MinuteStats]
    incomplete: tuple[int, ...] = ()
    """Shards that did not answer."""


class OverviewReader:
    """Remembers the minutes that have ended."""

    def __init__(self, connection: Connection, keys: StreamsKeys, registry: WorkerRegistry) -> None:
        self._connection = connection
        self._keys = keys
        self._registry = registry
        self._hour = LastHour(connection, keys)

    async def read(self, names: Sequence[str]) -> JobsOverview:
        """The named queues; BackendUnavailable if the server does not answer."""
        call = self._connection.run(_SCRIPT, (self._keys.queue,), (MINUTES - 1, *names))
        (reply,) = await collect([call])
        now_ms, delayed, suspended, queues, workers, counters, stored = cast(
            "tuple[int, int, int, list[int], list[str], list[str], int]", reply
        )
        minutes = await self._hour.completed(now_ms // 60_000, stored, pairs(counters))
        consumers = _consumers(workers)
        rows = _rows(names, queues, self._registry.readers(consumers))
        with_jobs = [row for row in rows if row.depth.waiting]
        ages_ms = (row.depth.oldest_waiting_ms for row in rows)
        return JobsOverview(
            waiting=sum(row.depth.waiting for row in rows),
            delayed=delayed,
            suspended=suspended,
            running=sum(row.depth.running for row in rows),
            oldest_waiting_ms=max((age for age in ages_ms if age is not None), default=None),
            paused=bool(with_jobs) and all(row.paused for row in with_jobs),
            queues=rows,
            fleet=self._registry.summarized(now_ms, consumers),
            minutes=minutes,
        )


def _rows(names: Sequence[str], flat: Sequence[int], readers: Mapping[str, int]) -> list[QueueRow]:
    return [
        QueueRow(
            QueueDepth(name, waiting, running, None if age_ms < 0 else age_ms),
            bool(paused),
            readers.get(name, 0),
        )
        for name, waiting, running, age_ms, paused in zip(
            names, *(flat[at::_PER_QUEUE] for at in range(_PER_QUEUE)), strict=True
        )
    ]


def _consumers(flat: Sequence[str]) -> list[ConsumerRow]:
    return [
        ConsumerRow(name, int(idle_ms), seen, slots, queues)
        for name, idle_ms, seen, slots, queues in zip(
            *(flat[at::_PER_WORKER] for at in range(_PER_WORKER)), strict=True
        )
    ]
