"""How the last hour went, minute by minute (O-11).

The scripts count as they write; this reads their counters when somebody asks. How long things took
is counted on a scale of steps, so that quantiles can be read from sums over any span of time.
"""

import math
from collections.abc import Iterable, Mapping
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
    """What happened in one minute."""

    start_ms: int
    counts: Mapping[str, int]
    latency: Mapping[int, int]
    """Step of the scale → how many."""
    duration: Mapping[int, int]

    def count(self, name: Status | Counter) -> int:
        return self.counts.get(name, 0)


async def last_hour(connection: Connection, keys: StreamsKeys) -> list[MinuteStats]:
    """Every minute of it, oldest first; the last one is not over yet."""
    (time,) = await collect([connection.call("TIME")])
    last = server_ms(time) // 60_000
    minutes = range(last - MINUTES + 1, last + 1)
    calls = [connection.call("HGETALL", keys.stats(minute)) for minute in minutes]
    return [
        _read_minute(minute * 60_000, cast("dict[str, str]", reply))
        for minute, reply in zip(minutes, await collect(calls), strict=True)
    ]


def quantile_ms(share: float, steps: Iterable[Mapping[int, int]]) -> float | None:
    """The time that `share` of all did not pass; None where there was nothing."""
    totals: dict[int, int] = {}
    for counts in steps:
        for step, count in counts.items():
            totals[step] = totals.get(step, 0) + count
    wanted = share * sum(totals.values())
    for step in sorted(totals):
        wanted -= totals[step]
        if wanted <= 0:
            return _middle_ms(step)
    return None


def _middle_ms(step: int) -> float:
    if step == 0:
        return 0.0
    octaves = (step - 0.5) / contract.STEPS_AN_OCTAVE
    return round(math.exp2(octaves), 1)


def _read_minute(start_ms: int, fields: Mapping[str, str]) -> MinuteStats:
    counts: dict[str, int] = {}
    latency: dict[int, int] = {}
    duration: dict[int, int] = {}
    for name, text in fields.items():
        count = number(text) or 0
        kind, colon, step = name.partition(":")
        scale = {contract.LATENCY: latency, contract.DURATION: duration}.get(kind + colon)
        if scale is not None:
            scale[number(step) or 0] = count
        else:
            counts[name] = count
    return MinuteStats(start_ms, counts, latency, duration)
