"""Queues over HTTP: list, pause, resume, purge (J-53).

Every key with the scope `read` sees all queues. Changing one needs the scope `admin`; a queue is
shared by all tenants, so with keys of several tenants only one of the tenant `*` may pause, and a
purge of another key cancels the jobs of its own tenant.
"""

from collections.abc import Sequence
from typing import Final

from jobwire.api import job_queues as api
from jobwire.gateway import tenants
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.route import Route, serve
from jobwire.gateway.settings import ALL_TENANTS
from jobwire.systems.jobs.any_shards import AnyAdmin, AnyReader
from jobwire.systems.jobs.contract import DEFAULT_QUEUE, QUEUE_NAME
from jobwire.systems.jobs.http import request_parser
from jobwire.systems.jobs.registry import WorkerRegistry

_FOREIGN: Final = "workers of other programs that read this queue do not stop"


class JobQueueRoutes:
    def __init__(
        self,
        reader: AnyReader,
        registry: WorkerRegistry,
        admin: AnyAdmin,
        *,
        several_tenants: bool,
    ) -> None:
        self._reader = reader
        self._registry = registry
        self._admin = admin
        self._several_tenants = several_tenants

    def routes(self) -> Sequence[Route]:
        return [
            serve(api.LIST, self.list),
            serve(api.PAUSE, self.pause),
            serve(api.RESUME, self.resume),
            serve(api.PURGE, self.purge),
        ]

    async def list(self, _request: HttpRequest) -> api.JobQueues:
        names = await self._registry.queue_names()
        paused = await self._admin.paused()
        now = await self._reader.depth(names)
        readers = await self._registry.read_by()
        listed = [
            api.JobQueueInfo(
                name=queue.name,
                paused=queue.name in paused,
                waiting=queue.waiting,
                running=queue.running,
                oldest_waiting_ms=queue.oldest_waiting_ms,
                workers=readers[queue.name],
            )
            for queue in now.queues
        ]
        return api.JobQueues(listed, list(now.incomplete))

    async def pause(self, request: HttpRequest, queue: str) -> api.PauseAnswer:
        self._check_all_tenants(request)
        if not _is_name(queue) or not await self._admin.pause(queue):
            raise Problem(api.QUEUE_NOT_FOUND)
        warning = _FOREIGN if queue == DEFAULT_QUEUE else None
        return api.PauseAnswer(queue, True, warning)

    async def resume(self, request: HttpRequest, queue: str) -> api.PauseAnswer:
        self._check_all_tenants(request)
        if not _is_name(queue) or not await self._admin.resume(queue):
            raise Problem(api.QUEUE_NOT_FOUND)
        return api.PauseAnswer(queue, False, None)

    async def purge(
        self, request: HttpRequest, queue: str, query: api.PurgeFilter
    ) -> api.PurgeAnswer:
        owner = "" if self._is_for_all(request) else tenants.own_tenant(request)
        suspended = query.suspended == "true"
        canceled = None
        if _is_name(queue):
            canceled = await self._admin.purge(queue, owner, suspended=suspended)
        if canceled is None:
            raise Problem(api.QUEUE_NOT_FOUND)
        return api.PurgeAnswer(queue, canceled)

    def _is_for_all(self, request: HttpRequest) -> bool:
        return not self._several_tenants or request.principal.tenant == ALL_TENANTS

    def _check_all_tenants(self, request: HttpRequest) -> None:
        if self._several_tenants:
            request_parser.check_all_tenants(request, "a queue", "pause")


def _is_name(queue: str) -> bool:
    return QUEUE_NAME.fullmatch(queue) is not None
