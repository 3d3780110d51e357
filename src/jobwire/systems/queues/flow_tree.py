"""A job with its parent and the jobs below it, as a tree (B-8, B-12). Reads only.

Depth, children of a job and jobs in all are bounded: a flow may have any number of jobs, and other
programs wrote the keys.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, cast

from msgspec.structs import astuple

from jobwire.api.flows import (
    DEFAULT_DEPTH,
    DEFAULT_WIDTH,
    MAX_TREE_JOBS,
    ChildCounts,
    FlowInfo,
    FlowJobInfo,
)
from jobwire.systems.queues.checks import is_job_id, job_of_key
from jobwire.systems.queues.codec import number_of, read_json, readable
from jobwire.systems.queues.contract import BullField, BullState, Keys, Relation
from jobwire.systems.queues.queue import QueueProducer
from jobwire.systems.queues.settings import BullSettings
from jobwire.valkey import Connection

_MAX_SCANS: Final = 10

_RECORDED: Final = {
    Relation.FAILED: BullState.FAILED,
    Relation.IGNORED: BullState.FAILED,
    Relation.PROCESSED: BullState.COMPLETED,
    Relation.UNPROCESSED: BullState.UNKNOWN,
}
"""Relation → the state of a child whose hash is gone. Failed children are shown first."""


class JobRef(NamedTuple):
    """A job, and the state that its parent recorded."""

    queue: str
    id: str
    recorded: BullState = BullState.UNKNOWN


class _ReadJob(NamedTuple):
    timestamp_ms: int
    body: FlowJobInfo


class TreeReader:
    def __init__(
        self, connection: Connection, settings: BullSettings, may_see: Callable[[str], bool]
    ) -> None:
        """`may_see` is called with the name of a queue; jobs of other queues are left out."""
        self._connection = connection
        self._settings = settings
        self._may_see = may_see

    async def read(
        self, queue: str, job_id: str, *, depth: int = DEFAULT_DEPTH, width: int = DEFAULT_WIDTH
    ) -> FlowInfo | None:
        """The tree below a job; None if there is no such job."""
        if not is_job_id(job_id):
            return None
        root = (await self._job(JobRef(queue, job_id))).body
        if root.removed:
            return None
        left, level = MAX_TREE_JOBS - 1, [root]
        for _ in range(depth):
            below = await asyncio.gather(*(self._children(each, width) for each in level))
            pairs = [(job, ref) for job, refs in zip(level, below, strict=True) for ref in refs]
            pairs = pairs[:left]
            found = await asyncio.gather(*(self._job(ref) for _, ref in pairs))
            # In the order of their making, so that two reads show the same.
            order = sorted(range(len(found)), key=lambda at: _place(found[at]))
            for at in order:
                pairs[at][0].children.append(found[at].body)
            level = [each.body for each in found]
            left -= len(level)
            if not level:
                break
        return FlowInfo(root, await self._parent(queue, job_id))

    async def _parent(self, queue: str, job_id: str) -> FlowJobInfo | None:
        key = self._keys(queue).job(job_id)
        parent_key = await self._connection.call("HGET", key, BullField.PARENT_KEY)
        ref = self._ref(cast("str | None", parent_key) or "", BullState.UNKNOWN)
        if ref is None:
            return None
        parent = (await self._job(ref)).body
        return None if parent.removed else parent

    async def _job(self, ref: JobRef) -> _ReadJob:
        call, key = self._connection.call, self._keys(ref.queue).job(ref.id)
        opened = QueueProducer(self._connection, ref.queue, self._settings)
        fields, state, counts = await asyncio.gather(
            call(
                "HMGET",
                key,
                BullField.NAME,
                BullField.TIMESTAMP,
                BullField.PROGRESS,
                BullField.FAILED_REASON,
            ),
            opened.state(ref.id),
            asyncio.gather(*(call(size, f"{key}:{each}") for each, size in _SIZE.items())),
        )
        name, timestamp, progress, reason = cast("list[str | None]", fields)
        removed = name is None and timestamp is None
        completed, failed, ignored, pending = cast("list[int]", counts)
        body = FlowJobInfo(
            queue=ref.queue,
            id=ref.id,
            name=readable(name or ""),
            state=str(ref.recorded if removed else state),
            removed=removed,
            progress=read_json(progress or "0"),
            failed_reason=readable(reason) if reason else None,
            counts=ChildCounts(completed, failed, ignored, pending),
            children=[],
        )
        return _ReadJob(number_of(timestamp) or 0, body)

    async def _children(self, job: FlowJobInfo, width: int) -> Sequence[JobRef]:
        if not any(astuple(job.counts)):
            return []
        key = self._keys(job.queue).job(job.id)
        # Pending ones are read first: a child that ends meanwhile is in what is read after them.
        found = await asyncio.gather(
            *(self._members(f"{key}:{each}", each, width) for each in reversed(_RECORDED))
        )
        # A child that is read twice is shown once, as it is later.
        refs = {(ref.queue, ref.id): ref for refs in found for ref in reversed(refs)}
        return list(reversed(refs.values()))[:width]

    async def _members(self, key: str, relation: Relation, most: int) -> list[JobRef]:
        """The children of a relation that the caller may see, at most about `most`."""
        if relation is Relation.FAILED:
            reply = await self._connection.call("ZRANGE", key, 0, most - 1)
            return self._refs(cast("list[str]", reply), relation)
        refs: list[JobRef] = []
        cursor = "0"
        for _ in range(_MAX_SCANS):
            reply = await self._connection.call(_SCAN[relation], key, cursor, "COUNT", most)
            cursor, members = cast("tuple[str, list[str]]", reply)
            # A hash has a value after each name.
            step = 1 if relation is Relation.UNPROCESSED else 2
            refs += self._refs(members[::step], relation)
            if cursor == "0" or len(refs) >= most:
                break
        return refs

    def _refs(self, keys: Sequence[str], relation: Relation) -> list[JobRef]:
        refs = (self._ref(key, _RECORDED[relation]) for key in keys)
        return [ref for ref in refs if ref is not None]

    def _ref(self, key: str, recorded: BullState) -> JobRef | None:
        """The job of a key; None if it is no job's, has another prefix or may not be seen."""
        found = job_of_key(key, self._settings.prefix)
        return JobRef(*found, recorded) if found and self._may_see(found[0]) else None

    def _keys(self, queue: str) -> Keys:
        return Keys(queue, self._settings.prefix)


_SIZE: Final = {
    Relation.PROCESSED: "HLEN",
    Relation.FAILED: "ZCARD",
    Relation.IGNORED: "HLEN",
    Relation.UNPROCESSED: "SCARD",
}
_SCAN: Final = {
    Relation.IGNORED: "HSCAN",
    Relation.PROCESSED: "HSCAN",
    Relation.UNPROCESSED: "SSCAN",
}


def _place(job: _ReadJob) -> tuple[int, str, str]:
    return job.timestamp_ms, job.body.queue, job.body.id
