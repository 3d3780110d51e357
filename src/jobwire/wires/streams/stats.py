"""Statistics of the last hour, per minute (O-11).

The scripts count as they write; this reads their counters on request. Time spans are counted in
buckets, so that quantiles can be computed from sums over any period.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from jobwire.valkey import Connection
from jobwire.wires.streams import contract
from jobwire.wires.streams.codec import number
from jobwire.wires.streams.contract import Counter, Status, StreamsKeys
from jobwire.wires.streams.replies import collect, server_ms

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
        self._ended_keys: list[str] = []

    async def read(self) -> list[MinuteStats]:
        """Its minutes, oldest first; the last one is still running."""
        time, existing = await collect(
            [
                self._connection.call("TIME"),
                self._connection.call("EXISTS", *self._ended_keys or [""]),
            ]
        )
        last = server_ms(time) // 60_000
        minutes = range(last - MINUTES + 1, last + 1)
        if existing != sum(1 for stats in self._ended.values() if stats.counts):
            self._ended = {}  # keys were added or removed: another server, or an emptied one
        missing = [minute for minute in minutes if minute not in self._ended]
        calls = [self._connection.call("HGETALL", self._keys.stats(minute)) for minute in missing]
        read = {
            minute: _read_minute(minute * 60_000, cast("dict[str, str]", reply))
            for minute, reply in zip(missing, await collect(calls), strict=True)
        }
        found = {minute: read.get(minute) or self._ended[minute] for minute in minutes}
        # A minute that the server's clock has left; scripts write to the minute of their own call.
        if last - 1 not in self._ended or last - MINUTES in self._ended:
            self._ended = {minute: stats for minute, stats in found.items() if minute < last}
            self._ended_keys = [self._keys.stats(minute) for minute in self._ended]
        return list(found.values())


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
