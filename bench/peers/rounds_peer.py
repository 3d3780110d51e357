"""Ours in rounds: 50 jobs are submitted together and worked before the next ones.

For `bench/instructions.py`: what is executed does not depend on the speed of the machine.
"""

import asyncio
import sys

import uvloop

from jobwire import App, Context
from jobwire.job.messages import JobRequest
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.queue import StreamsQueue
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection
from jobwire.worker import Worker

_ROUND = 50


async def main(url: str, rounds: int) -> None:
    settings = StreamsSettings()
    async with Connection.open(url) as connection:
        queue = StreamsQueue(connection, settings)
        app, worked, ended = App(), 0, asyncio.Event()

        @app.handler("noop")
        async def noop(_: Context) -> None:
            nonlocal worked
            worked += 1
            if worked % _ROUND == 0:
                ended.set()

        worker = Worker(app, [StreamsEngine(connection, settings)], slots=100)
        running = asyncio.create_task(worker.run())
        await worker.ready.wait()
        for _ in range(rounds):
            jobs = (JobRequest("noop", f'{{"n":{number}}}') for number in range(_ROUND))
            await asyncio.gather(*(queue.submit(job) for job in jobs))
            await ended.wait()
            ended.clear()
        worker.stop()
        await running


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
