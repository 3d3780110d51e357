"""All queues, workers and the last hour in one call, for the row of an overview (O-11).

Every open page asks every two seconds, so this is read by one script. `depth`, `stats` and
`registry` read the same one by one, and more of it, for requests that are rare.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.registry import ConsumerRow, FleetSummary, WorkerRegistry
from jobwire.systems.jobs.replies import collect, pairs
from jobwire.systems.jobs.scripts import script
from jobwire.systems.jobs.stats import MINUTES, LastHour, MinuteStats
from jobwire.valkey import Connection

_SCRIPT: Final = script("overview")
_PER_QUEUE: Final = 4
_PER_WORKER: Final = 4


class JobsOverview(NamedTuple):
    """All queues together, now and in the last hour."""

    waiting: int
    delayed: int
    running: int
    oldest_waiting_ms: int | None
    paused: bool
    """Every queue that has waiting jobs is paused."""
    fleet: FleetSummary
    minutes: Sequence[MinuteStats]


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
        now_ms, delayed, queues, workers, counters, stored = cast(
            "tuple[int, int, list[int], list[str], list[str], int]", reply
        )
        minutes = await self._hour.completed(now_ms // 60_000, stored, pairs(counters))
        waiting, ages_ms = queues[::_PER_QUEUE], queues[2::_PER_QUEUE]
        paused = [flag for jobs, flag in zip(waiting, queues[3::_PER_QUEUE], strict=True) if jobs]
        oldest_ms = max(ages_ms, default=-1)
        return JobsOverview(
            waiting=sum(waiting),
            delayed=delayed,
            running=sum(queues[1::_PER_QUEUE]),
            oldest_waiting_ms=None if oldest_ms < 0 else oldest_ms,
            paused=bool(paused) and all(paused),
            fleet=self._registry.summarized(now_ms, _consumers(workers)),
            minutes=minutes,
        )


def _consumers(flat: Sequence[str]) -> list[ConsumerRow]:
    return [
        ConsumerRow(name, int(idle_ms), seen, slots)
        for name, idle_ms, seen, slots in zip(
            *(flat[at::_PER_WORKER] for at in range(_PER_WORKER)), strict=True
        )
    ]
