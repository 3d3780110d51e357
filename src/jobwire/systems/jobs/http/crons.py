"""Cron entries over HTTP: list, run now, pause, resume (J-52).

Every key with the scope `read` sees all entries. An entry is shared by all tenants: with keys of
several tenants, only one of the tenant `*` may change or run it.
"""

from collections.abc import Sequence

from jobwire.api import fleet as api
from jobwire.api.jobs import RUN_CRON
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.route import Route, serve
from jobwire.job.messages import JobRequest
from jobwire.systems.jobs.contract import DEFAULT_QUEUE, StreamsKeys
from jobwire.systems.jobs.cron_admin import CronAdmin
from jobwire.systems.jobs.cron_list import cron_list
from jobwire.systems.jobs.http import request_parser
from jobwire.systems.jobs.http.jobs import JobRoutes
from jobwire.valkey import Connection


class CronRoutes:
    def __init__(
        self, connection: Connection, keys: StreamsKeys, jobs: JobRoutes, *, several_tenants: bool
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._jobs = jobs
        self._admin = CronAdmin(connection, keys)
        self._several_tenants = several_tenants

    def routes(self) -> Sequence[Route]:
        return [
            serve(api.CRONS, self.list),
            serve(RUN_CRON, self.run),
            serve(api.PAUSE_CRON, self.pause),
            serve(api.RESUME_CRON, self.resume),
        ]

    async def list(self, _request: HttpRequest) -> api.Crons:
        found = await cron_list(self._connection, self._keys)
        return api.Crons([api.CronInfo(*each) for each in found])

    async def run(self, request: HttpRequest, name: str) -> Reply:
        """Submit the job of the entry, besides its due times."""
        self._check_all_tenants(request)
        entry = await self._admin.job(name)
        if entry is None:
            raise Problem(api.CRON_NOT_FOUND)
        await self._jobs.admit(request, 1)
        key = request_parser.idempotency_key(request)
        job_request = JobRequest(
            entry.task,
            entry.payload,
            idempotency_key=key,
            fingerprint=request_parser.fingerprint(f"cron {name}".encode()) if key else "",
            traceparent=request_parser.traceparent(request),
            queue="" if entry.queue == DEFAULT_QUEUE else entry.queue,
        )
        return await self._jobs.submit_request(request, job_request)

    async def pause(self, request: HttpRequest, name: str) -> api.CronPause:
        self._check_all_tenants(request)
        if not await self._admin.pause(name):
            raise Problem(api.CRON_NOT_FOUND)
        return api.CronPause(name, True)

    async def resume(self, request: HttpRequest, name: str) -> api.CronPause:
        self._check_all_tenants(request)
        if not await self._admin.resume(name):
            raise Problem(api.CRON_NOT_FOUND)
        return api.CronPause(name, False)

    def _check_all_tenants(self, request: HttpRequest) -> None:
        if self._several_tenants:
            request_parser.check_all_tenants(request, "a cron entry", "run or pause")
