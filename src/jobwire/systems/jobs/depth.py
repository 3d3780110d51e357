"""Queue depth, read from the server on request (O-5, J-53).

For `/metrics`, `/v1/stats`, `/v1/scale` and `/v1/jobs/queues`. Two short round trips, however long
the queues are; nothing is cached.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from jobwire.systems.jobs import contract
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.replies import collect, server_ms
from jobwire.valkey import Connection, Reply

DUE_SOON_MS: Final = 60_000
"""A delayed job that is due within this time counts as load: a worker takes time to start."""


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """The number of jobs of one queue by state."""

    name: str
    waiting: int
    """In the queue."""
    running: int
    """Leased by a worker."""
    oldest_waiting_ms: int | None
    """The age of the oldest waiting job; None where there is none."""


@dataclass(frozen=True, slots=True)
class Depth:
    """The number of jobs by state, of all queues and of each."""

    queues: tuple[QueueDepth, ...]
    delayed: int
    """Not due yet: a delay or a retry."""
    suspended: int
    """In no queue, and no load (D-10)."""
    due_soon: int
    """Of the delayed ones, those due within `DUE_SOON_MS`."""
    unfinished: int
    """All of them, as counted in `jobs:open`."""
    incomplete: tuple[int, ...] = ()
    """Shards that did not answer."""

    @property
    def waiting(self) -> int:
        return sum(queue.waiting for queue in self.queues)

    @property
    def running(self) -> int:
        return sum(queue.running for queue in self.queues)

    @property
    def oldest_waiting_ms(self) -> int | None:
        ages = (queue.oldest_waiting_ms for queue in self.queues)
        return max((age for age in ages if age is not None), default=None)


async def depth(connection: Connection, keys: StreamsKeys, names: Sequence[str]) -> Depth:
    """Read that of the named queues; BackendUnavailable if the server does not answer."""
    streams = [keys.named_queue(name) for name in names]
    groups = [connection.call("XINFO", "GROUPS", stream) for stream in streams]
    time, delayed, suspended, unfinished, *lengths = await collect(
        [
            connection.call("TIME"),
            connection.call("ZCARD", keys.delayed),
            connection.call("ZCARD", keys.suspended),
            connection.call("ZCARD", keys.open),
            *(connection.call("XLEN", stream) for stream in streams),
        ]
    )
    found = [_group(reply) for reply in await collect(groups, none_if_refused=True)]
    now_ms = server_ms(time)
    due_soon, *firsts = await collect(
        [
            connection.call("ZCOUNT", keys.delayed, "-inf", now_ms + DUE_SOON_MS),
            *(
                connection.call("XRANGE", stream, f"({last_id}", "+", "COUNT", 1)
                for stream, (_, last_id) in zip(streams, found, strict=True)
            ),
        ]
    )
    queues = tuple(
        QueueDepth(
            name,
            # An entry that a foreign worker acknowledged and did not delete counts until the
            # janitor runs.
            waiting=max(0, cast(int, length) - pending) if first else 0,
            running=pending,
            oldest_waiting_ms=_age_ms(first, now_ms),
        )
        for name, length, (pending, _), first in zip(names, lengths, found, firsts, strict=True)
    )
    counts = (delayed, suspended, due_soon, unfinished)
    delayed, suspended, due_soon, unfinished = (cast(int, each) for each in counts)
    return Depth(queues, delayed, suspended, due_soon, unfinished)


def _group(groups: Reply) -> tuple[int, str]:
    """The number of pending entries, and the last delivered entry; None: there is no queue yet."""
    for row in cast("list[dict[str, str | int]]", groups or []):
        if row["name"] == contract.GROUP:
            return cast(int, row["pending"]), cast(str, row["last-delivered-id"])
    return 0, "0-0"


def _age_ms(entries: Reply, now_ms: int) -> int | None:
    if not entries:
        return None
    ((entry_id, _),) = cast("list[tuple[str, Reply]]", entries)
    return max(0, now_ms - int(entry_id.partition("-")[0]))
