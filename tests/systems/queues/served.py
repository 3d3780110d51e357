"""A gateway with queues, and a worker of theirs, in a thread of their own."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from jobwire import App, Context
from jobwire.gateway.app import Gateway
from jobwire.gateway.server import HttpServer
from jobwire.gateway.settings import GatewaySettings
from jobwire.job.errors import Fail
from jobwire.job.messages import Json
from jobwire.local import LocalValkey
from jobwire.settings import Settings
from jobwire.systems.backends import Backends
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.systems.queues.engine import BullEngine
from jobwire.systems.queues.feature import queues_feature
from jobwire.systems.queues.settings import QueuesSettings
from jobwire.systems.queues.system import SYSTEM
from jobwire.systems.queues.worker_connections import WorkerConnections
from jobwire.systems.system import GatewayContext
from jobwire.valkey import Config, Connection
from jobwire.worker import Worker
from tests.support import wait_until_sync
from tests.support.jobs_http import EventReader, ServedJobs
from tests.support.servers import plain_client
from tests.support.workers import started, stopped

SERVED: Final = "work"
"""The queue that has a worker."""


def handlers() -> App:
    app = App()

    @app.handler("echo")
    async def echo(ctx: Context) -> Json:
        return ctx.payload

    @app.handler("steps")
    async def steps(ctx: Context) -> Json:
        await ctx.progress(50, "half of it")
        return "done"

    @app.handler("fail")
    async def fail(ctx: Context) -> Json:
        raise Fail("no_disk", "no disk")

    @app.handler("hold")
    async def hold(ctx: Context) -> Json:
        await ctx.progress(1)
        await asyncio.Event().wait()
        return None

    _ = (echo, steps, fail, hold)
    return app


class ServedQueues(ServedJobs):
    """`with ServedQueues(valkey.url) as served: served.client.get("/v1/queues")`."""

    def __init__(
        self,
        valkey_url: str,
        queues: QueuesSettings | None = None,
        gateway: GatewaySettings | None = None,
        *,
        worker: bool = False,
        jobs: bool = False,
        limits: StreamsSettings | None = None,
    ) -> None:
        """`worker`: one serves the queue `SERVED`; `jobs`: the gateway has the jobs API; `limits`:
        the settings of jobs whose limits hold for queues."""
        super().__init__(valkey_url, limits, gateway=gateway)
        self._queues = queues or QueuesSettings()
        self._has_worker = worker
        self._has_jobs = jobs

    async def _serve(self) -> None:
        settings = Settings(gateway=self._settings, queues=self._queues, jobs=self._jobs)
        async with (
            Connection.open(self._valkey_url, name=self.name) as connection,
            queues_feature(self._context(settings, connection)) as queues,
            self.follower.running(self._valkey_url, self.name),
        ):
            features = [queues, *([self._jobs_feature(connection)] if self._has_jobs else [])]
            gateway = Gateway(self._settings, features, self.streams, version="0.0.test")
            self._server = HttpServer(gateway, self._settings, self._ready.set)
            self._loop = asyncio.get_running_loop()
            if not self._has_worker:
                await self._server.run_until_stopped(self._listening)
                return
            shared = WorkerConnections(Config.from_url(self._valkey_url), self._queues.bull())
            worker = Worker(handlers(), [BullEngine(shared, SERVED)], slots=4)
            running = await started(worker)
            await self._server.run_until_stopped(self._listening)
            await stopped(worker, running)

    def _context(self, settings: Settings, connection: Connection) -> GatewayContext:
        return GatewayContext(settings, Backends(settings, connection, {}).of(SYSTEM), self.streams)

    def add(self, queue: str, name: str = "job", data: object = None, **opts: Any) -> str:
        """Add a job that must be accepted; its id."""
        body = {"name": name, "data": data or {}, "opts": opts}
        answer = self.client.post(f"/v1/queues/{queue}/jobs", json=body)
        assert answer.status_code == 201, answer.text
        (job,) = answer.json()["jobs"]
        return job["id"]

    def queue_job(self, queue: str, job_id: str, wait_s: int = 0) -> dict[str, Any]:
        headers = {"prefer": f"wait={wait_s}"} if wait_s else {}
        answer = self.client.get(f"/v1/queues/{queue}/jobs/{job_id}", headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def queue_events(self, queue: str, job_id: str = "", **headers: str) -> EventReader:
        job = f"/jobs/{job_id}" if job_id else ""
        return EventReader(self.port, f"/v1/queues/{queue}{job}/events", headers)


def worker_connected(valkey: LocalValkey) -> None:
    """Wait for the worker's own connections, so that the leak check does not count them."""
    with plain_client(valkey, "served-queues") as plain:

        def connected() -> bool:
            names = {each["name"] for each in plain.client_list()}
            return {"jobwire-queues-own", "jobwire-queues-sub"} <= names

        wait_until_sync(connected, "the connections of the worker")
