"""Queue depth, read from the server on request (O-5).

For `/metrics` and `/v1/stats`. Two short round trips, however long the queue is; nothing is cached.
"""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import cast

from jobwire.valkey import Connection, Reply, ServerError, ValkeyError
from jobwire.wires.streams import contract
from jobwire.wires.streams.contract import StreamsKeys
from jobwire.wires.streams.replies import backend_unavailable, collect, server_ms


@dataclass(frozen=True, slots=True)
class Depth:
    """The number of jobs by state."""

    waiting: int
    """In the queue."""
    delayed: int
    """Not due yet: a delay or a retry."""
    running: int
    """Leased by a worker."""
    unfinished: int
    """All of them, as counted in `jobs:open`."""
    oldest_waiting_ms: int | None
    """The age of the oldest waiting job; None where there is none."""


async def depth(connection: Connection, keys: StreamsKeys) -> Depth:
    """Read it; BackendUnavailable if the server does not answer."""
    groups = connection.call("XINFO", "GROUPS", keys.queue)
    time, length, delayed, unfinished = await collect(
        [
            connection.call("TIME"),
            connection.call("XLEN", keys.queue),
            connection.call("ZCARD", keys.delayed),
            connection.call("ZCARD", keys.open),
        ]
    )
    pending, last_id = await _group(groups)
    (first,) = await collect(
        [connection.call("XRANGE", keys.queue, f"({last_id}", "+", "COUNT", 1)]
    )
    return Depth(
        # An entry that a foreign worker acknowledged and did not delete counts until janitor runs.
        waiting=max(0, cast(int, length) - pending) if first else 0,
        delayed=cast(int, delayed),
        running=pending,
        unfinished=cast(int, unfinished),
        oldest_waiting_ms=_age_ms(first, server_ms(time)),
    )


async def _group(reply: Awaitable[Reply]) -> tuple[int, str]:
    """The number of pending entries, and the last delivered entry."""
    try:
        rows = cast("list[dict[str, str | int]]", await reply)
    except ServerError:
        return 0, "0-0"  # no queue yet
    except ValkeyError as error:
        raise backend_unavailable(error) from error
    for row in rows:
        if row["name"] == contract.GROUP:
            return cast(int, row["pending"]), cast(str, row["last-delivered-id"])
    return 0, "0-0"


def _age_ms(entries: Reply, now_ms: int) -> int | None:
    if not entries:
        return None
    ((entry_id, _),) = cast("list[tuple[str, Reply]]", entries)
    return max(0, now_ms - int(entry_id.partition("-")[0]))
