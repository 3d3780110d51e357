"""The queues that an operator sees, of many: the busiest ones with their last hour (O-11).

A server may have a thousand queues, and every open page asks every two seconds. So the busiest
`SHOWN` queues are read in full, and a part of the others by their counts alone, in turn: a queue
that becomes busy takes its place after a few readings. All calls of a reading leave together.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from heapq import nlargest
from typing import Final, NamedTuple, cast

from jobwire.job import time_buckets
from jobwire.systems.queues.clock import system_now_ms
from jobwire.systems.queues.contract import Keys
from jobwire.systems.queues.scripts import run_read
from jobwire.valkey import Connection, Reply

SHOWN: Final = 50
_COUNTED: Final = 20
"""Of the other queues, those that one reading counts."""
_OPEN: Final = 6
"""The first numbers of both scripts: jobs that have not ended."""


class EndedMinute(NamedTuple):
    """Ended jobs of one minute; run times of some of them, by `time_buckets`."""

    completed: int = 0
    failed: int = 0
    duration: Mapping[int, int] = {}


class QueueHour(NamedTuple):
    """A queue now, and its last hour."""

    name: str
    waiting: int
    delayed: int
    """Delayed, or waiting for children."""
    active: int
    oldest_waiting_ms: int | None
    minutes: Sequence[EndedMinute]
    """Oldest first; empty where no job ended."""
    paused: bool


class BusiestQueues:
    """The busiest queues of a list; it remembers how busy the others were."""

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._connection = connection
        self._prefix = prefix
        self._open: dict[str, int] = {}
        self._ended: dict[str, int] = {}
        self._position = 0

    async def read(self, names: Sequence[str]) -> tuple[list[QueueHour], int]:
        """The busiest queues in the given order, and how many are left out; ValkeyError where the
        server does not answer."""
        if len(names) > SHOWN:
            await self._count_some(names)
            busiest = set(nlargest(SHOWN, names, key=lambda name: self._open.get(name, 0)))
        else:
            busiest = set(names)
        shown = [name for name in names if name in busiest]
        replies = await asyncio.gather(*[self._run("overview", name) for name in shown])
        found = [_hour(name, reply) for name, reply in zip(shown, replies, strict=True)]
        for hour in found:
            # One in which jobs end is busy, though none waits.
            self._open[hour.name] = hour.waiting + hour.delayed + hour.active + bool(hour.minutes)
        return found, len(names) - len(shown)

    async def _count_some(self, names: Sequence[str]) -> None:
        """Count the next ones; all of them at first."""
        if self._open:
            start = self._position % len(names)
            counted = [*names[start:], *names[:start]][:_COUNTED]
            self._position = start + _COUNTED
        else:
            counted = names
        replies = await asyncio.gather(*[self._run("counts", name) for name in counted])
        known = set(names)
        self._open = {name: jobs for name, jobs in self._open.items() if name in known}
        before, self._ended = self._ended, {}
        for name, reply in zip(counted, replies, strict=True):
            numbers = cast("list[int]", reply)
            ended = sum(numbers[_OPEN:])
            # As in `read`: jobs that ended since the last count make a queue busy.
            self._open[name] = sum(numbers[:_OPEN]) + (before.get(name, ended) != ended)
            self._ended[name] = ended
        self._ended = {name: before[name] for name in before if name in known} | self._ended

    def _run(self, verb: str, name: str) -> Awaitable[Reply]:
        return run_read(verb, self._connection, Keys(name, self._prefix), system_now_ms())


def _hour(name: str, reply: Reply) -> QueueHour:
    numbers = cast(
        "tuple[int, int, int, int, int, int, int, list[int], list[int], list[int], int]", reply
    )
    wait, in_paused, active, delayed, prioritized, children, age_ms, *ended, paused = numbers
    completed, failed, spans = ended
    return QueueHour(
        name,
        waiting=wait + in_paused + prioritized,
        delayed=delayed + children,
        active=active,
        oldest_waiting_ms=None if age_ms < 0 else age_ms,
        minutes=_minutes(completed, failed, spans) if completed or failed else (),
        paused=bool(paused),
    )


def _minutes(
    completed: Sequence[int], failed: Sequence[int], spans: Sequence[int]
) -> list[EndedMinute]:
    none = [0] * max(len(completed), len(failed))
    of_minute: dict[int, list[int]] = {}
    for at in range(0, len(spans), 2):
        of_minute.setdefault(spans[at], []).append(spans[at + 1])
    durations = {at: time_buckets.counted(spans_ms) for at, spans_ms in of_minute.items()}
    pairs = zip(completed or none, failed or none, strict=True)
    return [EndedMinute(*pair, durations.get(at, {})) for at, pair in enumerate(pairs)]
