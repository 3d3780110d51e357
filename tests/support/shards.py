"""Tools for tests of shards: a real gateway and a real worker of an installation with shards."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Self

import httpx
import uvloop

from jobwire.gateway.app import Gateway
from jobwire.gateway.server import HttpServer
from jobwire.gateway.settings import GatewaySettings
from jobwire.gateway.sse_connections import SseConnections
from jobwire.job.engine import Engine
from jobwire.maintenance import Maintenance
from jobwire.settings import Settings
from jobwire.systems.backends import open_backends
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.systems.jobs.shard_settings import ShardList
from jobwire.systems.jobs.system import SYSTEM
from jobwire.systems.system import GatewayContext, WorkerContext
from jobwire.valkey.settings import ValkeySettings
from jobwire.worker import App, Worker
from jobwire.worker.settings import WorkerSettings
from tests.support.patience import PATIENCE
from tests.support.threads import call_on_loop
from tests.support.workers import ended, started


def sharded(
    url: str, shards: ShardList | int, gateway: GatewaySettings | None = None, **jobs: object
) -> Settings:
    """Settings of an installation with shards."""
    listed = ShardList(shards) if isinstance(shards, int) else shards
    return Settings(
        valkey=ValkeySettings(url=url, read_timeout=PATIENCE, write_timeout=PATIENCE),
        jobs=replace(StreamsSettings(shards=listed, tasks=("echo",)), **jobs),
        gateway=gateway or GatewaySettings(),
    )


class ShardedGateway:
    """`with ShardedGateway(settings) as gateway: gateway.client.post("/v1/jobs", …)`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self._server: HttpServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.error: BaseException | None = None

    def _run(self) -> None:
        try:
            uvloop.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - raised by __enter__
            self.error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        streams = SseConnections(self.settings.gateway)
        async with open_backends(self.settings, [SYSTEM], "tests-gateway") as backends:
            context = GatewayContext(self.settings, backends.of(SYSTEM), streams)
            async with SYSTEM.feature(context) as feature:
                gateway = Gateway(self.settings.gateway, [feature], streams, version="0.0.test")
                self._server = HttpServer(gateway, self.settings.gateway, self._ready.set)
                self._loop = asyncio.get_running_loop()
                await self._server.run_until_stopped(self._listening)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30), "the gateway did not start"
        if self.error is not None:
            self._listening.close()
            raise self.error
        self.client = httpx.Client(base_url=self.url, timeout=30, trust_env=False)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        assert self._loop is not None
        assert self._server is not None
        call_on_loop(self._loop, self._server.stop)
        self._thread.join(30)
        assert not self._thread.is_alive(), "the gateway did not stop"

    def submit(self, task: str = "echo", **options: object) -> dict[str, object]:
        """Submit a job that must be accepted."""
        headers: dict[str, str] = {}
        for name, header in (("key", "idempotency-key"), ("token", "authorization")):
            if name in options:
                headers[header] = str(options.pop(name))
        body = {"task": task, "payload": options.pop("payload", {}), **options}
        answer = self.client.post("/v1/jobs", json=body, headers=headers)
        assert answer.status_code in (200, 202), answer.text
        return answer.json()


@asynccontextmanager
async def sharded_worker(
    app: App,
    settings: Settings,
    slots: int = 10,
    shards: tuple[int, ...] = (),
    lease: timedelta = timedelta(seconds=30),
) -> AsyncGenerator[Worker]:
    """A worker of the program's own parts; drained at the end."""
    settings = replace(settings, worker=WorkerSettings(slots=slots, shards=shards, lease=lease))
    async with open_backends(settings, [SYSTEM], "tests-worker") as backends:
        assert SYSTEM.engines is not None
        parts = SYSTEM.engines(WorkerContext(settings, backends.of(SYSTEM), app))
        if parts.describe_process is not None:
            parts.describe_process(parts.served)
        worker = Worker(
            app,
            parts.engines,
            slots=slots,
            background=[
                *(partial(_maintain, engine) for engine in parts.engines),
                *parts.background,
            ],
        )
        serving = await started(worker)
        try:
            yield worker
        finally:
            worker.stop()
            await ended(serving)


async def _maintain(engine: Engine) -> None:
    # Asked for here, after the registration, which has a maintenance task of its own.
    await Maintenance(engine.maintenance()).run()
