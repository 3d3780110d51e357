"""Statistics of the last hour, per minute (O-11).

The scripts count as they write; this reads their counters on request. Time spans are counted in
buckets, so that quantiles can be computed from sums over any period.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from jobwire.systems.jobs import contract
from jobwire.systems.jobs.codec import number
from jobwire.systems.jobs.contract import Counter, Status, StreamsKeys
from jobwire.systems.jobs.replies import collect, server_ms
from jobwire.valkey import Connection

MINUTES: Final = 60


@dataclass(frozen=True, slots=True)
class MinuteStats:
    """The counters of one minute."""

    start_ms: int
    counts: Mapping[str, int]
    latency: Mapping[int, int]
    """Bucket → count."""
    duration: Mapping[int, int]

    def count(self, name: Status | Counter) -> int:
        return self.counts.get(name, 0)


class LastHour:
    """Reads the minutes of the last hour. A minute that has ended does not change, so each is read
    once after its end: a page that asks every two seconds costs three commands."""

    def __init__(self, connection: Connection, keys: StreamsKeys) -> None:
        self._connection = connection
        self._keys = keys
        self._ended: dict[int, MinuteStats] = {}
        self._last = 0
        self._stored = 0
        """Of the ended minutes, those that have counters."""

    async def read(self) -> list[MinuteStats]:
        """Its minutes, oldest first; the last one is still running."""
        (time,) = await collect([self._connection.call("TIME")])
        last = server_ms(time) // 60_000
        before = [self._keys.stats(minute) for minute in range(last - MINUTES + 1, last)]
        stored, counters = await collect(
            [
                self._connection.call("EXISTS", *before),
                self._connection.call("HGETALL", self._keys.stats(last)),
            ]
        )
        return await self.completed(last, cast(int, stored), cast("dict[str, str]", counters))

    async def completed(
        self, last: int, stored: int, counters: Mapping[str, str]
    ) -> list[MinuteStats]:
        """The same, where the counters of the minute `last` are known, and how many of the minutes
        before it are stored."""
        if (last, stored) != (self._last, self._stored):
            await self._read_ended(last, stored)
        return [*self._ended.values(), _read_minute(last * 60_000, counters)]

    async def _read_ended(self, last: int, stored: int) -> None:
        ended = await self._minutes_before(last, self._ended if last != self._last else {})
        # Another number of the same minutes: another server, or an emptied one.
        if sum(map(_has_counters, ended.values())) != stored:
            ended = await self._minutes_before(last, {})
        self._ended, self._last, self._stored = ended, last, stored

    async def _minutes_before(
        self, last: int, known: Mapping[int, MinuteStats]
    ) -> dict[int, MinuteStats]:
        minutes = range(last - MINUTES + 1, last)
        missing = [minute for minute in minutes if minute not in known]
        calls = [self._connection.call("HGETALL", self._keys.stats(minute)) for minute in missing]
        read = {
            minute: _read_minute(minute * 60_000, cast("dict[str, str]", reply))
            for minute, reply in zip(missing, await collect(calls), strict=True)
        }
        return {minute: read.get(minute) or known[minute] for minute in minutes}


def _has_counters(minute: MinuteStats) -> bool:
    return bool(minute.counts or minute.latency or minute.duration)


def _read_minute(start_ms: int, fields: Mapping[str, str]) -> MinuteStats:
    counts: dict[str, int] = {}
    latency: dict[int, int] = {}
    duration: dict[int, int] = {}
    for name, text in fields.items():
        count = number(text) or 0
        kind, colon, bucket = name.partition(":")
        scale = {contract.LATENCY: latency, contract.DURATION: duration}.get(kind + colon)
        if scale is not None:
            scale[number(bucket) or 0] = count
        else:
            counts[name] = count
    return MinuteStats(start_ms, counts, latency, duration)
