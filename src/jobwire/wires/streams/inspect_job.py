"""The keys of one job as they are on the server, for people who write another client.

Read only. Bounded: the last events, one entry of the queue.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from jobwire.job.messages import JobId
from jobwire.valkey import Connection, Reply, ServerError, ValkeyError
from jobwire.wires.streams import contract
from jobwire.wires.streams.codec import readable
from jobwire.wires.streams.contract import Extra, StreamsKeys
from jobwire.wires.streams.replies import backend_unavailable, collect, server_ms

EVENTS: Final = 50
"""How many of the last events are read."""


@dataclass(frozen=True, slots=True)
class StreamEntry:
    id: str
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PendingEntry:
    """The delivery of the queue entry."""

    consumer: str
    idle_ms: int
    deliveries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOnServer:
    """What the server has of a job. A lifetime is None where the key has none."""

    now_ms: int
    fields: Mapping[str, str]
    ttl_ms: int | None
    events: Sequence[StreamEntry]
    """The last ones, oldest first."""
    event_count: int
    events_ttl_ms: int | None
    entry: StreamEntry | None
    queue: str
    """The stream of its queue."""
    queue_length: int
    pending: PendingEntry | None
    due_ms: int | None
    """Its score in `jobs:delayed`."""
    renewal_ms: int | None
    """Its score in `jobs:open`."""
    idempotency_key: str
    """The whole key; empty without one."""
    idempotency_value: str
    idempotency_ttl_ms: int | None


async def inspect_job(
    connection: Connection, keys: StreamsKeys, job_id: JobId
) -> JobOnServer | None:
    """Read the keys of a job; None if there is no such job, BackendUnavailable if the server does
    not answer."""
    job, events = keys.job(job_id), keys.events(job_id)
    fields_reply, ttl = await collect(
        [connection.call("HGETALL", job), connection.call("PTTL", job)]
    )
    fields = cast("dict[str, str]", fields_reply)
    if not fields:
        return None
    entry_id = fields.get(Extra.ENTRY_ID, "") or "0-0"
    named = fields.get(Extra.QUEUE, "")
    queue = keys.named_queue(named) if contract.QUEUE_NAME.fullmatch(named) else keys.queue
    name = fields.get(Extra.IDEMPOTENCY_KEY, "")
    if name and not name.startswith(contract.IDEMPOTENCY_SPACES):
        name = contract.IDEMPOTENCY + name  # written by an earlier version
    idempotency = keys.idempotency(name) if name else ""
    (
        time,
        rows,
        count,
        events_ttl,
        entry,
        length,
        pending,
        due,
        renewal,
        value,
        value_ttl,
    ) = await _answers(
        connection,
        ("TIME",),
        ("XREVRANGE", events, "+", "-", "COUNT", EVENTS),
        ("XLEN", events),
        ("PTTL", events),
        ("XRANGE", queue, entry_id, entry_id),
        ("XLEN", queue),
        ("XPENDING", queue, contract.GROUP, entry_id, entry_id, 1),
        ("ZSCORE", keys.delayed, job_id),
        ("ZSCORE", keys.open, job_id),
        ("GET", idempotency),
        ("PTTL", idempotency),
    )
    return JobOnServer(
        now_ms=server_ms(time),
        fields={readable(name): readable(value) for name, value in fields.items()},
        ttl_ms=_ttl_ms(ttl),
        events=_entries(rows)[::-1],
        event_count=cast("int | None", count) or 0,
        events_ttl_ms=_ttl_ms(events_ttl),
        entry=next(iter(_entries(entry)), None),
        queue=queue,
        queue_length=cast("int | None", length) or 0,
        pending=_pending(pending),
        due_ms=_score(due),
        renewal_ms=_score(renewal),
        idempotency_key=readable(idempotency),
        idempotency_value=readable(cast("str | None", value) or ""),
        idempotency_ttl_ms=_ttl_ms(value_ttl),
    )


async def _answers(connection: Connection, *commands: Sequence[str | int]) -> list[Reply]:
    """All replies, in one round trip. A key of another type, and a queue without a group, are
    answered as None."""
    failure: ValkeyError | None = None
    answers: list[Reply] = []
    for reply in [connection.call(*command) for command in commands]:
        try:
            answers.append(await reply)
        except ServerError:
            answers.append(None)
        except ValkeyError as error:
            failure = error
    if failure is not None:
        raise backend_unavailable(failure) from failure
    return answers


def _ttl_ms(reply: Reply) -> int | None:
    """PTTL answers with a negative number where there is no lifetime, or no key."""
    left = cast("int | None", reply)
    return None if left is None or left < 0 else left


def _score(reply: Reply) -> int | None:
    return None if reply is None else int(float(cast("str | float", reply)))


def _entries(reply: Reply) -> list[StreamEntry]:
    rows = cast("list[tuple[str, list[str]]] | None", reply) or []
    return [
        StreamEntry(
            entry_id,
            {
                readable(name): readable(value)
                for name, value in zip(flat[::2], flat[1::2], strict=True)
            },
        )
        for entry_id, flat in rows
    ]


def _pending(reply: Reply) -> PendingEntry | None:
    rows = cast("list[tuple[str, str, int, int]] | None", reply) or []
    return next((PendingEntry(readable(row[1]), row[2], row[3]) for row in rows), None)
