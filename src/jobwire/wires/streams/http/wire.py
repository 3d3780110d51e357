"""`GET /v1/jobs/{id}/wire`: the keys of a job as they are on the server (J-1, J-3)."""

import msgspec
from fastapi import APIRouter, Response

from jobwire.gateway.problems import Problem
from jobwire.gateway.router import CurrentRequest, documented, json_response, new_router
from jobwire.gateway.wire_view import (
    WireBody,
    WireEntryBody,
    WireKeyBody,
    WirePendingBody,
    cut,
)
from jobwire.valkey import Connection
from jobwire.wires.streams import contract
from jobwire.wires.streams.contract import Extra, Field, StreamsKeys
from jobwire.wires.streams.http import docs, problems, request_parser
from jobwire.wires.streams.http.jobs import PATH
from jobwire.wires.streams.http.operator_view import WIRE
from jobwire.wires.streams.inspect_job import EVENTS, JobOnServer, StreamEntry, inspect_job

_CONTRACT = frozenset(Field)


def router(connection: Connection, keys: StreamsKeys) -> APIRouter:
    """The route."""
    routes = new_router("jobs")

    @routes.get(PATH + "/{id}/wire", openapi_extra=documented("read", docs.WIRE))
    async def read_wire(request: CurrentRequest, id: str) -> Response:  # noqa: A002 - in the path
        job_id = request_parser.job_id(id)
        job = await inspect_job(connection, keys, job_id)
        if job is None or not request_parser.may_see(request, job.fields.get(Extra.TENANT, "")):
            raise Problem(problems.JOB_NOT_FOUND)
        body = WireBody(job_id, WIRE, job.now_ms, _keys(keys, job_id, job))
        return json_response(body)

    return routes


def _keys(keys: StreamsKeys, job_id: str, job: JobOnServer) -> list[WireKeyBody]:
    """The keys that the job has, those of the published contract first."""
    hash_key, events = keys.job(job_id), keys.events(job_id)
    # The contract's fields in the contract's order, then ours.
    names = [*(name for name in Field if name in job.fields)]
    names += [name for name in job.fields if name not in _CONTRACT]
    found = [
        WireKeyBody(
            key=hash_key,
            type="hash",
            ttl_ms=job.ttl_ms,
            size=len(job.fields),
            fields=[
                cut(str(name), job.fields[name], extra=name not in _CONTRACT) for name in names
            ],
            command=["HGETALL", hash_key],
            path=f"{PATH}/{job_id}",
        ),
        WireKeyBody(
            key=events,
            type="stream",
            ttl_ms=job.events_ttl_ms,
            size=job.event_count,
            note=f"the last {EVENTS}" if job.event_count > EVENTS else "",
            entries=[_entry(entry) for entry in job.events],
            command=["XRANGE", events, "-", "+"],
            path=f"{PATH}/{job_id}/events",
        ),
    ]
    if job.entry is not None:
        pending = job.pending
        found.append(
            WireKeyBody(
                key=job.queue,
                type="stream",
                ttl_ms=None,
                size=job.queue_length,
                note=f"entry {job.entry.id}, {'leased' if pending else 'waiting'}",
                entries=[_entry(job.entry)],
                pending=pending
                and WirePendingBody(pending.consumer, pending.idle_ms, pending.deliveries),
                command=["XRANGE", job.queue, job.entry.id, job.entry.id],
            )
        )
        if pending:
            found[-1] = msgspec.structs.replace(
                found[-1],
                command=["XPENDING", job.queue, contract.GROUP, job.entry.id, job.entry.id, "1"],
            )
    if job.due_ms is not None:
        found.append(_score(keys.delayed, job_id, job.due_ms, "due at this time in ms"))
    if job.renewal_ms is not None:
        found.append(
            _score(
                keys.open,
                job_id,
                job.renewal_ms,
                "unfinished; its lifetime is next extended at this time in ms",
            )
        )
    if job.idempotency_key:
        found.append(
            WireKeyBody(
                key=job.idempotency_key,
                type="string",
                ttl_ms=job.idempotency_ttl_ms,
                note="this job" if job.idempotency_value == job_id else "another job, or expired",
                value=job.idempotency_value,
                command=["GET", job.idempotency_key],
            )
        )
    return found


def _score(key: str, job_id: str, score: int, note: str) -> WireKeyBody:
    return WireKeyBody(
        key=key,
        type="zset",
        ttl_ms=None,
        note=note,
        value=str(score),
        command=["ZSCORE", key, job_id],
    )


def _entry(entry: StreamEntry) -> WireEntryBody:
    return WireEntryBody(entry.id, [cut(name, value) for name, value in entry.fields.items()])
