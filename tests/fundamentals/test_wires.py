"""Programs of others take part: by plain Redis commands, by BullMQ, by the toolkit."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import pytest

from jobwire import App, AsyncClient, Context
from jobwire.local import LocalValkey
from jobwire.systems.queues.codec import Took
from jobwire.systems.queues.consumer import BullConsumer
from jobwire.valkey import Connection, Consumer, Producer, StreamMessage
from tests.fundamentals.conftest import RunWorker
from tests.interop.bullmq_lab import node_peer
from tests.support import Fresh, Plain
from tests.support.thirdparty import node_packages


async def test_a_foreign_program_submits_a_job_by_plain_redis_commands(
    app: App, worker: RunWorker, jobs: AsyncClient, plain: Plain
) -> None:
    @app.handler("shout")
    async def shout(ctx: Context, payload: dict[str, str]) -> str:
        return payload["text"].upper()

    now_ms = int(time.time() * 1000)
    job = ["job_id", "foreign-1", "task", "shout", "payload", '{"text": "hello"}']
    times = ["created_ts", now_ms, "updated_ts", now_ms, "ttl_s", 600]
    state = ["status", "queued", "result", "", "error", ""]
    async with worker():
        plain.call("HSET", "job:foreign-1", *job, *times, *state)
        plain.call("EXPIRE", "job:foreign-1", 600)
        plain.call("XADD", "jobs:stream", "*", *job)
        assert (await jobs.wait("foreign-1")).result == "HELLO"


async def test_a_foreign_program_works_on_a_job_by_plain_redis_commands(
    jobs: AsyncClient, plain: Plain
) -> None:
    job = await jobs.submit("chat", {"prompt": "hello"})  # one of the six tasks of the contract
    plain.call("XGROUP", "CREATE", "jobs:stream", "workers", "0", "MKSTREAM")
    words = ("GROUP", "workers", "foreign", "STREAMS", "jobs:stream", ">")
    reply = cast("Any", plain.call("XREADGROUP", *words))
    entry, (_, job_id, *_) = reply["jobs:stream"][0]
    event = ["type", "done", "ts", int(time.time() * 1000), "step", "", "data", "{}"]
    plain.call("HSET", f"job:{job_id}", "status", "done", "result", '"hi"')
    plain.call("XADD", f"job:{job_id}:events", "*", *event)
    plain.call("XACK", "jobs:stream", "workers", entry)
    assert (await jobs.wait(job.job_id)).result == "hi"


@pytest.mark.keeps("bull:*")
async def test_a_queue_is_shared_with_node_programs_that_use_bullmq(
    valkey: LocalValkey, connection: Connection
) -> None:
    node_packages()
    node = await asyncio.to_thread(node_peer, valkey.admin_url)
    try:
        call = {"version": 6, "db": 0, "queue": "video", "now": int(time.time() * 1000)}
        add = {**call, "op": "add", "name": "render", "data": {"scene": 1}, "opts": {}}
        job_id = await asyncio.to_thread(node.do, add)
        consumer = BullConsumer(connection, "video")
        took = await consumer.take("token")
        assert isinstance(took, Took)
        await consumer.complete(took.job, "token", '"video.mp4"')
        found = await asyncio.to_thread(node.do, {**call, "op": "job", "id": job_id})
        assert (found["data"], found["returnvalue"]) == ({"scene": 1}, "video.mp4")
    finally:
        node.close()


async def test_the_toolkit_alone_produces_and_consumes_a_stream(
    connection: Connection, fresh: Fresh
) -> None:
    stream, received = fresh("letters"), asyncio.Queue[str]()

    async def handle(message: StreamMessage) -> None:
        await received.put(message.fields["text"])

    async with Consumer(
        connection, stream=stream, group="readers", consumer="reader-1", handler=handle
    ):
        await Producer(connection).publish(stream, {"text": "hello"})
        assert await received.get() == "hello"
    await connection.delete(stream)
