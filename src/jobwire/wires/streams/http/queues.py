"""Queues over HTTP: list, pause, resume, purge (J-53).

Every key with the scope `read` sees all queues. Changing one needs the scope `admin`; a queue is
shared by all tenants, so with keys of several tenants only one of the tenant `*` may pause, and a
purge of another key cancels the jobs of its own tenant.
"""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Response

from jobwire.api import jobs as api
from jobwire.api.problems import FORBIDDEN
from jobwire.gateway import tenants
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.router import CurrentRequest, documented, json_response, new_router
from jobwire.gateway.settings import ALL_TENANTS
from jobwire.valkey import Connection
from jobwire.wires.streams.contract import DEFAULT_QUEUE, QUEUE_NAME, StreamsKeys
from jobwire.wires.streams.depth import depth
from jobwire.wires.streams.http import docs
from jobwire.wires.streams.http.fleet_schemas import (
    JobQueueBody,
    JobQueuesBody,
    PauseAnswerBody,
    PurgeAnswerBody,
)
from jobwire.wires.streams.http.jobs import PATH
from jobwire.wires.streams.queue_admin import QueueAdmin
from jobwire.wires.streams.registry import WorkerRegistry

_encode = msgspec.json.Encoder().encode
QUEUES = f"{PATH}/queues"
_QueueName = Annotated[str, Path(json_schema_extra={"pattern": f"^{QUEUE_NAME.pattern}$"})]
_FOREIGN = "workers of other programs that read this queue do not stop"


class QueueRoutes:
    def __init__(
        self,
        connection: Connection,
        keys: StreamsKeys,
        registry: WorkerRegistry,
        admin: QueueAdmin,
        *,
        several_tenants: bool,
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._registry = registry
        self._admin = admin
        self._several_tenants = several_tenants

    async def list(self, _: HttpRequest) -> Reply:
        """All queues. A hot route only because its path is also that of a job."""
        names = await self._registry.queue_names()
        paused = await self._admin.paused()
        now = await depth(self._connection, self._keys, names)
        workers = [worker for worker in await self._registry.workers() if worker.ours]
        listed = [
            JobQueueBody(
                name=queue.name,
                paused=queue.name in paused,
                waiting=queue.waiting,
                running=queue.running,
                oldest_waiting_ms=queue.oldest_waiting_ms,
                workers=sum(queue.name in worker.queues for worker in workers),
            )
            for queue in now.queues
        ]
        return Reply(_encode(JobQueuesBody(listed)))

    def router(self) -> APIRouter:
        """The other routes."""
        routes = new_router("jobs")

        @routes.post(QUEUES + "/{queue}/pause", openapi_extra=documented("admin", docs.PAUSE))
        async def pause_queue(request: CurrentRequest, queue: _QueueName) -> Response:
            self._check_all_tenants(request)
            if not _is_name(queue) or not await self._admin.pause(queue):
                raise Problem(api.QUEUE_NOT_FOUND)
            warning = _FOREIGN if queue == DEFAULT_QUEUE else None
            return json_response(PauseAnswerBody(queue, True, warning))

        @routes.post(QUEUES + "/{queue}/resume", openapi_extra=documented("admin", docs.RESUME))
        async def resume_queue(request: CurrentRequest, queue: _QueueName) -> Response:
            self._check_all_tenants(request)
            if not _is_name(queue) or not await self._admin.resume(queue):
                raise Problem(api.QUEUE_NOT_FOUND)
            return json_response(PauseAnswerBody(queue, False, None))

        @routes.post(QUEUES + "/{queue}/purge", openapi_extra=documented("admin", docs.PURGE))
        async def purge_queue(request: CurrentRequest, queue: _QueueName) -> Response:
            owner = "" if self._is_for_all(request) else tenants.own_tenant(request)
            canceled = await self._admin.purge(queue, owner) if _is_name(queue) else None
            if canceled is None:
                raise Problem(api.QUEUE_NOT_FOUND)
            return json_response(PurgeAnswerBody(queue, canceled))

        return routes

    def _is_for_all(self, request: HttpRequest) -> bool:
        return not self._several_tenants or request.principal.tenant == ALL_TENANTS

    def _check_all_tenants(self, request: HttpRequest) -> None:
        if not self._is_for_all(request):
            detail = "a queue is shared by all tenants: only a key of the tenant '*' may pause it"
            raise Problem(FORBIDDEN, detail)


def _is_name(queue: str) -> bool:
    return QUEUE_NAME.fullmatch(queue) is not None
