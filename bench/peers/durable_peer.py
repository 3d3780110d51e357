"""100 jobs at a time, each with many steps: what a step costs the client and the server.

python -m bench.peers.durable_peer URL JOBS STEPS    prints CPU and round trips of a step
"""

import asyncio
import json
import sys
import time
from typing import cast

import uvloop

from jobwire import App, Context
from jobwire.job.messages import JobRequest
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.queue import StreamsQueue
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection
from jobwire.worker import Worker

_TASK = "durable"


async def server_us(connection: Connection) -> tuple[int, int]:
    """The time and the number of script calls so far, by the server's own clock."""
    text = cast(str, await connection.call("INFO", "commandstats"))
    line = next((each for each in text.splitlines() if each.startswith("cmdstat_evalsha:")), "")
    found = dict(part.split("=") for part in line.partition(":")[2].split(",") if part)
    return int(found.get("usec", 0)), int(found.get("calls", 0))


async def main(url: str, jobs: int, steps: int) -> None:
    settings, app, ended = StreamsSettings(), App("bench-durable"), asyncio.Event()
    left = jobs

    async def one(number: int) -> int:  # a `def` would be called in a thread
        return number

    @app.handler(_TASK)
    async def durable(ctx: Context) -> None:
        nonlocal left
        for number in range(ctx.payload["steps"]):
            await ctx.step("n", one, number)
        left -= 1
        if not left:
            ended.set()

    async with Connection.open(url) as connection:
        worker = Worker(app, [StreamsEngine(connection, settings)], slots=100)
        running = asyncio.create_task(worker.run())
        await worker.ready.wait()
        queue, costs = StreamsQueue(connection, settings), list[tuple[float, int, int]]()
        for count in (0, steps):
            left = jobs
            ended.clear()
            cpu_s, (us, calls) = time.process_time(), await server_us(connection)
            body = json.dumps({"steps": count})
            await queue.submit_many([JobRequest(_TASK, body) for _ in range(jobs)])
            await ended.wait()
            used_s, (after_us, after) = time.process_time() - cpu_s, await server_us(connection)
            costs.append((used_s, after_us - us, after - calls))
        (base_s, base_us, base_calls), (used_s, used_us, used_calls) = costs
        all_steps = jobs * steps
        row = {
            "client_us": (used_s - base_s) * 1e6 / all_steps,
            "server_us": (used_us - base_us) / all_steps,
            "calls": (used_calls - base_calls) / all_steps,
        }
        worker.stop()
        await running
    print(json.dumps(row))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
