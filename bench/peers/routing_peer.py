"""A worker with one task in the queue of its App: measures its own jobs, or waits beside another.

python -m bench.peers.routing_peer URL unlike              runs until it is killed
python -m bench.peers.routing_peer URL measured JOBS RATE  prints latencies from submit to start
"""

import asyncio
import sys
import time

import uvloop

from bench.peers.clocks import latency
from jobwire import App, Context
from jobwire.job.messages import JobRequest
from jobwire.settings import Settings
from jobwire.systems.jobs.app_queues import app_queues
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.queue import StreamsQueue
from jobwire.systems.jobs.registry import WorkerRegistry
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection
from jobwire.worker import Worker


async def main(url: str, role: str, jobs: int = 0, rate: int = 0) -> None:
    settings, app, waits_s = StreamsSettings(), App(f"bench-{role}"), list[float]()

    @app.handler(f"{role}-task")
    async def timed(ctx: Context) -> None:
        waits_s.append(time.perf_counter() - ctx.payload["at"])

    found = app_queues(app, Settings())
    async with Connection.open(url) as connection:
        engine = StreamsEngine(connection, settings, queues=found.queues, task_queues=found.by_task)
        worker = Worker(app, [engine], slots=100)
        running = asyncio.create_task(worker.run())
        await worker.ready.wait()
        print("ready", flush=True)
        if role == "unlike":
            await running
            return
        registry, queue = WorkerRegistry(connection, settings), StreamsQueue(connection, settings)
        await registry.refresh()
        routed = registry.queue_of(f"{role}-task")
        due_s = time.perf_counter()
        for _ in range(jobs):
            due_s += 1 / rate
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            payload = f'{{"at":{time.perf_counter()}}}'
            await queue.submit(JobRequest(f"{role}-task", payload, queue=routed))
        while len(waits_s) < jobs:
            await asyncio.sleep(0.01)
        latency(waits_s)
        worker.stop()
        await running


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])))
