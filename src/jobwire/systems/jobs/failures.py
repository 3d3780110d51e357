"""Failed jobs of the last hours, grouped by kind, as the scripts have counted them (O-11).

A kind is a task, an error code and the first line of the message without ids and long numbers.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from jobwire.json_depth import bounded
from jobwire.systems.jobs.codec import readable
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.replies import collect, server_ms
from jobwire.valkey import Connection

_HOUR_MS: Final = 3_600_000
_decode_kind: Final = msgspec.json.Decoder(tuple[str, str, str]).decode
# How often, first and last time, sample job, worker.
_decode_count: Final = msgspec.json.Decoder(tuple[int, str, str, str, str]).decode


class _Error(msgspec.Struct):
    """What is read of an error object; a foreign worker may have written less."""

    code: str = ""
    message: str = ""


_decode_error: Final = bounded(msgspec.json.Decoder(_Error).decode)


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


# As include/failures.lua groups them.
_ID: Final = re.compile(r"[0-9A-Fa-f]+(?:-[0-9A-Fa-f]+){4}")
_HEX: Final = re.compile(r"[0-9A-Fa-f]{8,}")
_NUMBER: Final = re.compile(r"[0-9]{5,}")


def code_and_line(error_json: str) -> tuple[str, str]:
    """Code and first line of an error object, as the kind of its failure has them."""
    try:
        error = _decode_error(error_json)
    except (msgspec.MsgspecError, ValueError):
        return "", ""
    first = re.split(r"[\r\n]", error.message, maxsplit=1)[0]
    line = first.encode()[:200].decode(errors="replace")
    for pattern in (_ID, _HEX, _NUMBER):
        line = pattern.sub("…", line)
    return error.code.encode()[:64].decode(errors="replace"), line


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
