"""`GET /v1/queues/{queue}/jobs/{id}/wire`: the keys of a job as they are on the server (B-12)."""

from typing import Any, Final, NamedTuple, cast

from jobwire.api import queue_jobs as api
from jobwire.api.wire import WireEntry, WireField, WireJob, WireKey
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.route import Route
from jobwire.systems.queues.checks import is_job_id
from jobwire.systems.queues.codec import readable
from jobwire.systems.queues.contract import BullExtra, BullField
from jobwire.systems.queues.http.access import QueueAccess
from jobwire.systems.queues.http.route import queue_route

WIRE: Final = "bullmq"
_OURS: Final = frozenset((BullExtra.WORKER_ID,))
_ORDER: Final = {str(name): at for at, name in enumerate(BullField)}
_NOTES: Final = {
    "lock": "the token of the worker that runs it",
    "logs": "its log, the last lines",
    "wait": "place from the right end, where the next job is taken",
    "paused": "place from the right end, where the next job is taken",
    "active": "place from the right end",
    "delayed": "score: due time in ms · 4096, and a counter",
    "prioritized": "score: priority · 2³², and a counter",
    "waiting-children": "score: since when it waits, in ms",
    "completed": "score: when it ended, in ms",
    "failed": "score: when it ended, in ms",
    "dependencies": "children that it waits for",
    "processed": "children that have completed, with their results",
    "ignored": "children whose failure is ignored, with the reasons",
    "unsuccessful": "children that have failed",
    "deduplication": "the job that owns its deduplication id",
    "scheduler": "the scheduler that made it",
    "events": "its events among the last 500 of the queue",
}
"""By the part that the script names."""


def wire_route(access: QueueAccess) -> Route:
    """The route."""

    async def read_wire(request: HttpRequest, queue: str, job_id: str) -> WireJob:
        opened = await access.existing(request, queue)
        found = await opened.run("inspect", job_id) if is_job_id(job_id) else None
        if not found:
            raise Problem(api.JOB_NOT_FOUND)
        path = api.GET.url(queue, job_id)
        rows = cast("list[tuple[str, str, str, int, int, list[Any]]]", found)
        keys = [_body(_Key(*row), job_id, path) for row in rows]
        return WireJob(job_id, WIRE, opened.now_ms(), keys)

    return queue_route(api.WIRE, read_wire)


_MANY: Final = frozenset(("logs", "dependencies", "unsuccessful"))
"""Parts that are lists of lines or of children, also if they have one."""


class _Key(NamedTuple):
    """A key as the script `inspect` returns it; `part` is what it is to the job."""

    part: str
    key: str
    type: str
    size: int
    ttl_ms: int
    values: list[Any]
    """Name, value and size of the whole value; of a stream, ids and lists of those."""


def _body(found: _Key, job_id: str, path: str) -> WireKey:
    is_hash, is_many = found.type == "hash", found.type == "stream" or found.part in _MANY
    return WireKey(
        key=readable(found.key),
        type=found.type,
        ttl_ms=found.ttl_ms if found.ttl_ms >= 0 else None,
        size=found.size,
        note=_NOTES.get(found.part, ""),
        fields=_fields(found) if is_hash else None,
        entries=_entries(found) if is_many else None,
        value=None if is_hash or is_many else _field(*found.values[0]).value,
        command=[readable(word) for word in _command(found, job_id)],
        path={"job": path, "logs": f"{path}/logs", "events": f"{path}/events"}.get(found.part, ""),
    )


def _field(name: str, value: str, size: int) -> WireField:
    rest = size - len(value.encode("utf-8", "surrogateescape"))
    return WireField(readable(name), readable(value), max(0, rest), name in _OURS)


def _fields(found: _Key) -> list[WireField]:
    fields = sorted(found.values, key=lambda value: _ORDER.get(value[0], len(_ORDER)))
    return [_field(*value) for value in fields]


def _entries(found: _Key) -> list[WireEntry]:
    if found.type == "stream":
        return [WireEntry(id_, [_field(*each) for each in of]) for id_, of in found.values]
    first = found.size - len(found.values) if found.part == "logs" else 0
    return [WireEntry(str(at), [_field(*value)]) for at, value in enumerate(found.values, first)]


def _command(found: _Key, job_id: str) -> list[str]:
    """What reads the key."""
    match found.type:
        case "hash":
            return ["HGETALL", found.key]
        case "string":
            return ["GET", found.key]
        case "stream":
            return ["XREVRANGE", found.key, "+", "-", "COUNT", "50"]
        case "set":
            return ["SMEMBERS", found.key]
        case "list" if found.part not in _MANY:
            return ["LPOS", found.key, job_id, "RANK", "-1"]
        case "list":
            return ["LRANGE", found.key, "-50", "-1"]
        case _ if found.part in _MANY:
            return ["ZRANGE", found.key, "0", "-1"]
        case _:
            return ["ZSCORE", found.key, job_id]
