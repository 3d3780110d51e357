"""A worker whose queues have no jobs: `python -m bench.peers.idle_worker URL KIND QUEUES`."""

import sys

import uvloop

from bench.peers.idle_engine import IdleEngine
from jobwire import App, Context
from jobwire.job.engine import Engine
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.queues.engine import BullEngine
from jobwire.systems.queues.settings import BullSettings
from jobwire.systems.queues.worker_connections import WorkerConnections
from jobwire.valkey import Connection
from jobwire.worker import Worker


async def main(url: str, kind: str, queues: int) -> None:
    app = App()

    @app.handler("noop")
    async def noop(_: Context) -> None: ...

    async with Connection.open(url) as connection:
        names = [f"idle-{number}" for number in range(queues - 1)]
        more: list[Engine] = [IdleEngine(name) for name in names]
        if kind == "bullmq":
            shared = WorkerConnections(connection, BullSettings(announce=False))
            more = [BullEngine(shared, *names)]
        engines = [StreamsEngine(connection), *more]
        await Worker(app, engines, on_ready=lambda: print("ready", flush=True)).run()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
