"""Many suspended jobs: what they cost an idle fleet, and whether they refuse submissions (D-10).

python -m bench.peers.suspended_peer URL JOBS SECONDS    prints bytes a job and CPU of the server
"""

import asyncio
import json
import re
import sys
from typing import cast

import uvloop

from jobwire.job.messages import JobRequest, LeasedJob, Submitted, Suspended, TaskDefinition
from jobwire.maintenance import Maintenance
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.queue import StreamsQueue
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection

_TASK, _QUEUE, _BATCH = "waits", "bench-waits", 500
_WAIT = Suspended("signal", "approval", 86_400, "t:signal:approval", ("g:approval",))


async def _info(connection: Connection, pattern: str) -> float:
    text = cast(str, await connection.call("INFO"))
    return sum(float(found) for found in re.findall(pattern, text, re.MULTILINE))


async def _memory(connection: Connection) -> float:
    return await _info(connection, r"^used_memory:(\d+)")


async def _cpu_share(connection: Connection, seconds: float) -> float:
    """CPU seconds of the server in a second, while nothing but maintenance runs."""
    pattern = r"^used_cpu_(?:user|sys):([\d.]+)"
    before = await _info(connection, pattern)
    await asyncio.sleep(seconds)
    return (await _info(connection, pattern) - before) / seconds


async def main(url: str, count: int, seconds: float) -> None:
    settings = StreamsSettings()
    async with Connection.open(url) as connection:
        queue = StreamsQueue(connection, settings)
        engine = StreamsEngine(connection, settings, queues=[_QUEUE], task_queues={_TASK: _QUEUE})
        await engine.register([TaskDefinition(_TASK)], slots=_BATCH)
        maintenance = asyncio.create_task(Maintenance(engine.maintenance()).run())
        idle = await _cpu_share(connection, seconds)
        request = JobRequest(_TASK, "{}", queue=_QUEUE)
        first = await _memory(connection)
        await queue.submit_many([request] * _BATCH)
        waiting = (await _memory(connection) - first) / _BATCH
        accepted = _BATCH
        for at in range(0, count, _BATCH):
            leased: list[LeasedJob] = []
            while not leased:
                leased = await engine.take(_BATCH)
            await engine.settle([(each, _WAIT) for each in leased], 0)
            if at + _BATCH < count:
                answers = await queue.submit_many([request] * _BATCH)
                accepted += sum(isinstance(answer, Submitted) for answer in answers)
        suspended = cast(int, await connection.call("ZCARD", queue.keys.suspended))
        used = (await _memory(connection) - first) / suspended
        answer = await queue.submit(request)
        busy = await _cpu_share(connection, seconds)
        maintenance.cancel()
        found = {
            "suspended": suspended,
            "accepted": accepted + isinstance(answer, Submitted),
            "waiting_bytes": waiting,
            "suspended_bytes": used,
            "idle_share": idle,
            "share": busy,
        }
        print(json.dumps(found))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
