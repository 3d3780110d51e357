"""A program of a Python team with the official package: bullmq_fleet.py URL

The same calls and answers as `node/bullmq_fleet.js`. It runs with the package's own folder on
PYTHONPATH. Ends with its stdin.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import sys
from typing import Any

bullmq: Any = importlib.import_module("bullmq")
redis: Any = importlib.import_module("redis.asyncio")

BY = "py"


class Team:
    def __init__(self, url: str) -> None:
        self._url = url
        self._workers: list[Any] = []

    async def do(self, call: dict[str, Any]) -> object:
        return await getattr(self, f"_{call.pop('op')}")(**call)

    def _options(self, **more: Any) -> dict[str, Any]:
        # A limit on replies equals the longest blocking read, which would then always fail.
        connection = redis.Redis.from_url(self._url, decode_responses=True, socket_timeout=None)
        return {"connection": connection, **more}

    async def _work(self, queue: str, options: dict[str, Any] | None = None) -> None:
        made = self._options(**{"concurrency": 5, **(options or {})})
        self._workers.append(bullmq.Worker(queue, _handle, made))

    async def _add(self, queue: str, jobs: list[dict[str, Any]], events: int) -> int:
        del events  # the package has no option for the length of the stream
        return len(await bullmq.Queue(queue, self._options()).addBulk(jobs))

    async def _produce(self, queue: str, count: int) -> object:
        producer = bullmq.Queue(queue, self._options())
        jobs = [await producer.add("task", {"n": number}) for number in range(count)]
        return [await self._result(producer, job.id) for job in jobs]

    async def _flow(self, parent: str, children: list[str]) -> object:
        tree = await bullmq.FlowProducer(self._options()).add(
            {
                "name": "parent",
                "queueName": parent,
                "data": {},
                "children": [
                    {"name": "task", "queueName": name, "data": {"n": n}}
                    for n, name in enumerate(children)
                ],
            }
        )
        return await self._result(bullmq.Queue(parent, self._options()), tree["job"].id)

    async def _workers_of(self, queue: str) -> object:
        return len(await bullmq.Queue(queue, self._options()).get_workers())

    async def _result(self, queue: Any, job_id: str) -> object:
        while (state := await queue.getJobState(job_id)) != "completed":
            if state == "failed":
                raise RuntimeError((await bullmq.Job.fromId(queue, job_id)).failedReason)
            await asyncio.sleep(0.02)
        job = await bullmq.Job.fromId(queue, job_id)
        value = job.returnvalue
        return json.loads(value) if isinstance(value, str) else value


async def _handle(job: Any, _token: str) -> object:
    if job.name == "parent":
        values = await job.getChildrenValues()
        return {"by": BY, "children": sorted(value["by"] for value in values.values())}
    if job.name == "broken" or (job.name == "flaky" and job.attemptsMade == 0):
        raise RuntimeError(job.name)
    await asyncio.sleep(job.data.get("ms", 0) / 1000)
    with contextlib.suppress(redis.RedisError):  # a cut connection is no failure of the job
        await job.updateProgress(50)
    return {"by": BY, "n": job.data["n"]}


async def main(url: str) -> None:
    team = Team(url)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            reply = {"value": await team.do(json.loads(line))}
        except Exception as error:  # noqa: BLE001 - reported to the test
            reply = {"error": f"{type(error).__name__}: {error}", "code": None}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
