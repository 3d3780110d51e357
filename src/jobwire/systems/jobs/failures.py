"""Failed jobs of the last hours, grouped by kind, as the scripts have counted them (O-11).

A kind is a task, an error code and the first line of the message without ids and long numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from jobwire.systems.jobs.codec import readable
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.replies import collect, server_ms
from jobwire.valkey import Connection

_HOUR_MS: Final = 3_600_000
_decode_kind: Final = msgspec.json.Decoder(tuple[str, str, str]).decode
# How often, first and last time, sample job, worker.
_decode_count: Final = msgspec.json.Decoder(tuple[int, str, str, str, str]).decode


@dataclass(slots=True)
class KindOfFailure:
    """Jobs that failed in the same way."""

    task: str
    code: str
    message: str
    by_hour: list[int]
    first_ms: int
    last_ms: int
    sample: str
    worker: str
    """Where all of them ran; empty if there were several workers."""

    @property
    def count(self) -> int:
        return sum(self.by_hour)


async def failures(
    connection: Connection, keys: StreamsKeys, tenant: str, hours: int
) -> list[KindOfFailure]:
    """A tenant's failures; BackendUnavailable if the server does not answer."""
    (time,) = await collect([connection.call("TIME")])
    last = server_ms(time) // _HOUR_MS
    calls = [
        connection.call("HGETALL", keys.failures(hour, tenant))
        for hour in range(last - hours + 1, last + 1)
    ]
    kinds: dict[tuple[str, str, str], KindOfFailure] = {}
    for at, reply in enumerate(await collect(calls)):
        _add_hour(kinds, cast("Mapping[str, str]", reply), at, hours)
    return list(kinds.values())


def _add_hour(
    kinds: dict[tuple[str, str, str], KindOfFailure], fields: Mapping[str, str], at: int, hours: int
) -> None:
    for field, text in fields.items():
        try:
            kind = _decode_kind(readable(field))
            count, first, last, sample, worker = _decode_count(readable(text))
            first_ms, last_ms = int(first), int(last)
        except (msgspec.DecodeError, ValueError):
            continue  # not written by our scripts
        found = kinds.get(kind)
        if found is None:
            found = KindOfFailure(*kind, [0] * hours, first_ms, last_ms, sample, worker)
            kinds[kind] = found
        elif found.worker != worker:
            found.worker = ""
        found.by_hour[at] += count
        found.first_ms = min(found.first_ms, first_ms)
        found.last_ms, found.sample = max((found.last_ms, found.sample), (last_ms, sample))
