"""The official Python package as a program that runs one operation per line: bullmq_peer.py URL

The same calls and answers as `node/bullmq_peer.js`, as far as the lab asks for them. It runs with
the package's own folder on PYTHONPATH. Ends with its stdin.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, cast

bullmq: Any = importlib.import_module("bullmq")
redis: Any = importlib.import_module("redis.asyncio")

Call = dict[str, Any]


class Peer:
    def __init__(self, url: str) -> None:
        self._url = url.rpartition("/")[0]
        self._made: dict[str, Any] = {}

    async def do(self, call: Call) -> object:
        # The package asks this function alone for the time.
        time.time = cast("Callable[[], float]", lambda: call["now"] / 1000)
        return await getattr(self, f"_{call['op']}")(call)

    def _part(self, kind: str, call: Call, *more: Any, **options: Any) -> Any:
        key = f"{kind} {call['db']} {call['queue']} {json.dumps(options)}"
        if key not in self._made:
            # A limit on replies equals the longest blocking read, which would then always fail.
            connection = redis.Redis.from_url(
                f"{self._url}/{call['db']}", decode_responses=True, socket_timeout=None
            )
            make = getattr(bullmq, kind)
            self._made[key] = make(call["queue"], *more, {"connection": connection, **options})
        return self._made[key]

    def _queue(self, call: Call) -> Any:
        return self._part("Queue", call)

    def _worker(self, call: Call) -> Any:
        return self._part("Worker", call, None, autorun=False, **call.get("worker", {}))

    async def _active_job(self, call: Call) -> Any:
        return await bullmq.Job.fromId(self._worker(call), call["id"])

    async def _add(self, call: Call) -> object:
        return (await self._queue(call).add(call["name"], call["data"], call["opts"])).id

    async def _take(self, call: Call) -> object:
        job = await self._worker(call).moveToActive(call["token"])
        return {"job": job.id} if job else {"due": 0}

    async def _complete(self, call: Call) -> object:
        await (await self._active_job(call)).moveToCompleted(call["value"], call["token"])
        return None

    async def _fail(self, call: Call) -> object:
        traceback.format_exc = cast("Callable[..., str]", lambda: call["stack"])
        await (await self._active_job(call)).moveToFailed(ValueError(call["reason"]), call["token"])
        return None

    async def _progress(self, call: Call) -> object:
        await (await self._active_job(call)).updateProgress(call["value"])
        return None

    async def _resume(self, call: Call) -> object:
        await self._queue(call).resume()
        return None

    async def _state(self, call: Call) -> object:
        return await self._queue(call).getJobState(call["id"])


async def main(url: str) -> None:
    peer = Peer(url)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            reply = {"value": await peer.do(json.loads(line))}
        except Exception as error:  # noqa: BLE001 - reported to the lab
            reply = {"error": f"{type(error).__name__}: {error}", "code": None}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
