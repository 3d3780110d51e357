"""`GET /v1/jobs/{id}/wire`: the keys of a job as they are on the server (J-1, J-3).

For people who write another client. Read only. Bounded: the last events, one entry of the queue.
"""

from collections.abc import Mapping
from typing import Final, cast

from jobwire.api import jobs as api
from jobwire.api.wire import WireEntry, WireJob, WireKey, WirePending
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.route import Route, serve
from jobwire.gateway.wire_fields import cut
from jobwire.job.messages import JobId
from jobwire.systems.jobs import contract
from jobwire.systems.jobs.any_shards import AnyReader
from jobwire.systems.jobs.codec import readable
from jobwire.systems.jobs.contract import Extra, Field, StreamsKeys
from jobwire.systems.jobs.http import request_parser
from jobwire.systems.jobs.http.operator_view import WIRE
from jobwire.systems.jobs.replies import collect, pairs, server_ms
from jobwire.valkey import Connection, Reply

_CONTRACT: Final = frozenset(Field)
_EVENTS: Final = 50
"""How many of the last events are read."""


def route(reader: AnyReader) -> Route:
    """The route."""

    async def read_wire(request: HttpRequest, id_: str) -> WireJob:
        job_id = request_parser.job_id(id_)
        place = reader.place(job_id)
        if place is None:
            raise Problem(api.JOB_NOT_FOUND)
        connection, keys = place
        job = keys.job(job_id)
        reply, ttl = await collect([connection.call("HGETALL", job), connection.call("PTTL", job)])
        fields = cast("dict[str, str]", reply)
        tenant = readable(fields.get(Extra.TENANT, ""))
        if not fields or not request_parser.may_see(request, tenant):
            raise Problem(api.JOB_NOT_FOUND)
        now_ms, others = await _other_keys(connection, keys, job_id, fields)
        return WireJob(job_id, WIRE, now_ms, [_hash(job, job_id, fields, ttl), *others])

    return serve(api.WIRE, read_wire)


def _hash(key: str, job_id: JobId, fields: Mapping[str, str], ttl: Reply) -> WireKey:
    # The contract's fields in the contract's order, then ours.
    names = [*(name.value for name in Field if name in fields)]
    names += [name for name in fields if name not in _CONTRACT]
    return WireKey(
        key=key,
        type="hash",
        ttl_ms=_ttl_ms(ttl),
        size=len(fields),
        fields=[
            cut(readable(name), readable(fields[name]), extra=name not in _CONTRACT)
            for name in names
        ],
        command=["HGETALL", key],
        path=f"{api.JOBS}/{job_id}",
    )


async def _other_keys(
    connection: Connection, keys: StreamsKeys, job_id: JobId, fields: Mapping[str, str]
) -> tuple[int, list[WireKey]]:
    """The server's time, and the other keys that the job has, those of the contract first."""
    events, entry = keys.events(job_id), fields.get(Extra.ENTRY_ID, "") or "0-0"
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
        entries,
        length,
        pending,
        due,
        suspended,
        renewal,
        *of_key,
    ) = await collect(
        [
            connection.call("TIME"),
            connection.call("XREVRANGE", events, "+", "-", "COUNT", _EVENTS),
            connection.call("XLEN", events),
            connection.call("PTTL", events),
            connection.call("XRANGE", queue, entry, entry),
            connection.call("XLEN", queue),
            connection.call("XPENDING", queue, contract.GROUP, entry, entry, 1),
            connection.call("ZSCORE", keys.delayed, job_id),
            connection.call("ZSCORE", keys.suspended, job_id),
            connection.call("ZSCORE", keys.open, job_id),
            # An empty key would be of another slot of a Cluster.
            *(connection.call(verb, idempotency) for verb in ("GET", "PTTL") if idempotency),
        ],
        none_if_refused=True,
    )
    event_count = cast("int | None", count) or 0
    found = [
        WireKey(
            key=events,
            type="stream",
            ttl_ms=_ttl_ms(events_ttl),
            size=event_count,
            note=f"the last {_EVENTS}" if event_count > _EVENTS else "",
            entries=_entries(rows)[::-1],
            command=["XRANGE", events, "-", "+"],
            path=f"{api.JOBS}/{job_id}/events",
        )
    ]
    if queued := _entries(entries)[:1]:
        lease = _pending(pending)
        command = ["XRANGE", queue] if lease is None else ["XPENDING", queue, contract.GROUP]
        found.append(
            WireKey(
                key=queue,
                type="stream",
                ttl_ms=None,
                size=cast("int | None", length) or 0,
                note=f"entry {queued[0].id}, {'waiting' if lease is None else 'leased'}",
                entries=queued,
                pending=lease,
                command=[*command, *[queued[0].id] * 2, *([] if lease is None else ["1"])],
            )
        )
    if due is not None:
        found.append(_score(keys.delayed, job_id, due, "due at this time in ms"))
    if suspended is not None:
        found.append(_score(keys.suspended, job_id, suspended, "suspended until this time in ms"))
    if renewal is not None:
        note = "unfinished; its lifetime is next extended at this time in ms"
        found.append(_score(keys.open, job_id, renewal, note))
    if idempotency:
        value, ttl = of_key
        text = readable(cast("str | None", value) or "")
        found.append(
            WireKey(
                key=readable(idempotency),
                type="string",
                ttl_ms=_ttl_ms(ttl),
                note="this job" if text == job_id else "another job, or expired",
                value=text,
                command=["GET", readable(idempotency)],
            )
        )
    return server_ms(time), found


def _ttl_ms(reply: Reply) -> int | None:
    """PTTL answers with a negative number where there is no lifetime, or no key."""
    left = cast("int | None", reply)
    return None if left is None or left < 0 else left


def _entries(reply: Reply) -> list[WireEntry]:
    rows = cast("list[tuple[str, list[str]]] | None", reply) or []
    return [
        WireEntry(
            entry_id,
            [cut(readable(name), readable(value)) for name, value in pairs(flat).items()],
        )
        for entry_id, flat in rows
    ]


def _pending(reply: Reply) -> WirePending | None:
    rows = cast("list[tuple[str, str, int, int]] | None", reply) or []
    return next((WirePending(readable(row[1]), row[2], row[3]) for row in rows), None)


def _score(key: str, job_id: str, reply: Reply, note: str) -> WireKey:
    return WireKey(
        key=key,
        type="zset",
        ttl_ms=None,
        note=note,
        value=str(int(float(cast("str | float", reply)))),
        command=["ZSCORE", key, job_id],
    )
