"""The children that a handler adds, and what became of them (B-24)."""

import asyncio
from typing import cast

import msgspec

from jobwire.api.flows import NewFlowJob
from jobwire.api.queue_jobs import NewJobOptions
from jobwire.job.messages import Children, ChildRequest
from jobwire.systems.queues.checks import refuse
from jobwire.systems.queues.codec import read_json, readable
from jobwire.systems.queues.contract import BullField, Opt, Relation
from jobwire.valkey import Connection


def child_flow(child: ChildRequest) -> NewFlowJob:
    """A child with options or children, as a flow below the running job; RefusedError if it has not
    the form of one."""
    try:
        return NewFlowJob(
            child.task,
            data=msgspec.json.decode(child.payload_json),
            opts=msgspec.convert({Opt.JOB_ID.value: child.job_id, **child.opts}, NewJobOptions),
            children=msgspec.convert(child.children, tuple[NewFlowJob, ...]),
        )
    except (msgspec.ValidationError, RecursionError) as error:
        raise refuse(str(error)) from None


async def read_children(connection: Connection, job_key: str) -> Children:
    """The children of the job with this key. A failed child that was removed has no reason."""
    call = connection.call
    values, ignored, failed, pending = await asyncio.gather(
        call("HGETALL", f"{job_key}:{Relation.PROCESSED}"),
        call("HGETALL", f"{job_key}:{Relation.IGNORED}"),
        call("ZRANGE", f"{job_key}:{Relation.FAILED}", 0, -1),
        call("SMEMBERS", f"{job_key}:{Relation.UNPROCESSED}"),
    )
    keys = cast("list[str]", failed)
    reasons = await asyncio.gather(*(call("HGET", key, BullField.FAILED_REASON) for key in keys))
    return Children(
        {key: read_json(text) for key, text in cast("dict[str, str]", values).items()},
        {
            key: readable(reason or "")
            for key, reason in zip(keys, cast("list[str | None]", reasons), strict=True)
        },
        {key: readable(text) for key, text in cast("dict[str, str]", ignored).items()},
        sorted(cast("list[str]", pending)),
    )
