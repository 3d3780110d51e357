"""Ours over shards (G-6): `jobs` no-op jobs of 100 callers, then one worker with 100 slots."""

import asyncio
import sys

import uvloop

from bench.peers.clocks import Phase, by_100_callers, throughput
from jobwire import App, Context
from jobwire.job.messages import JobRequest
from jobwire.systems.backends import SystemBackends, open_backends
from jobwire.systems.jobs.queue import StreamsQueue
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.systems.jobs.shard_table import ShardTable
from jobwire.systems.jobs.sharded_queue import ShardedQueue
from jobwire.systems.jobs.shards import Shard, Shards
from jobwire.systems.jobs.system import SYSTEM
from jobwire.systems.system import WorkerContext
from jobwire.worker import Worker
from tests.support.shards import sharded

_QUEUE = "bench"
_SLOTS = 100


async def main(url: str, server_pids: list[int], jobs: int, shards: int, key_prefix: str) -> None:
    app, ended, left = App(_QUEUE), asyncio.Event(), jobs

    @app.handler("noop")
    async def noop(_: Context) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            ended.set()

    settings = sharded(url, shards, shard_by="job", key_prefix=key_prefix, max_queue=10**7)
    async with open_backends(settings, [SYSTEM], "bench") as opened:
        backends = opened.of(SYSTEM)
        queue = await _queue(backends, settings.jobs)
        assert SYSTEM.engines is not None
        worker = Worker(
            app, SYSTEM.engines(WorkerContext(settings, backends, app)).engines, slots=_SLOTS
        )
        phase = Phase(*server_pids)
        await by_100_callers(
            jobs, lambda number: queue.submit(JobRequest("noop", f'{{"n":{number}}}', queue=_QUEUE))
        )
        submitted = phase.done(jobs)
        # Shards are registered one by one: that is the cost of a start, not of a job.
        running = asyncio.create_task(worker.run())
        await worker.ready.wait()
        phase = Phase(*server_pids)
        await ended.wait()
        worked = phase.done(jobs)
        worker.stop()
        await running
        throughput(submitted, worked)


async def _queue(backends: SystemBackends, jobs: StreamsSettings) -> StreamsQueue | ShardedQueue:
    if not backends.shards:
        return StreamsQueue(backends.valkey, jobs)
    table = ShardTable(backends.shards[0], jobs)
    await table.join()
    shards = [
        Shard(number, connection, own, StreamsQueue(connection, own))
        for number, connection in backends.shards.items()
        if (own := jobs.of_shard(number))
    ]
    return ShardedQueue(Shards(shards), jobs, table)


if __name__ == "__main__":
    pids = [int(pid) for pid in sys.argv[2].split(",")]
    uvloop.run(main(sys.argv[1], pids, int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]))
