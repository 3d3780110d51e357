"""A worker as a process of its own: `python -m tests.stories.worker_program URL PREFIX LEASE_S`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import uvloop

from jobwire import log
from jobwire.duties import Duties
from jobwire.valkey import Connection
from jobwire.wires.streams.engine import StreamsEngine
from jobwire.wires.streams.settings import StreamsSettings
from jobwire.worker import Worker
from tests.stories.handlers import app


async def main(url: str, prefix: str, lease_s: float) -> None:
    async with Connection.open(url, name="story-worker") as connection:
        settings = StreamsSettings(key_prefix=prefix, lease_s=lease_s)
        engine = StreamsEngine(connection, settings)
        worker = Worker(app, [engine], slots=4, drain_s=float(os.environ.get("DRAIN_S", "25")))
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, worker.stop)
        running = asyncio.create_task(worker.run())
        await worker.ready.wait()
        duties = asyncio.create_task(Duties(engine.duties()).run())
        print("ready", flush=True)
        await running
        duties.cancel()
        await asyncio.gather(duties, return_exceptions=True)


log.setup("worker")
uvloop.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
