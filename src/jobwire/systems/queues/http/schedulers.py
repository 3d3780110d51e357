"""Job schedulers of a queue over HTTP: list with their next runs, look, set, remove (B-12)."""

import asyncio
from collections.abc import Sequence

from jobwire.api import schedulers as api
from jobwire.api.queue_jobs import PageQuery
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.route import Route
from jobwire.systems.queues.contract import Refusal
from jobwire.systems.queues.http import problems
from jobwire.systems.queues.http.access import QueueAccess
from jobwire.systems.queues.http.route import queue_route
from jobwire.systems.queues.http.tenant_limits import TenantLimits
from jobwire.systems.queues.job_bodies import repeat_of, scheduler_body
from jobwire.systems.queues.new_jobs import new_job
from jobwire.systems.queues.schedulers import Schedulers


class SchedulerRoutes:
    """The endpoints."""

    def __init__(self, access: QueueAccess, limits: TenantLimits) -> None:
        self._access = access
        self._limits = limits

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            queue_route(api.LIST, self.list),
            queue_route(api.GET, self.get),
            queue_route(api.SET, self.set),
            queue_route(api.REMOVE, self.remove),
        ]

    async def list(self, request: HttpRequest, queue: str, query: PageQuery) -> api.SchedulerPage:
        """A page of schedulers."""
        schedulers = Schedulers(await self._access.existing(request, queue))
        found, total = await asyncio.gather(
            schedulers.list(first=query.first, count=query.limit), schedulers.count()
        )
        # A rare pattern takes milliseconds: other requests are answered meanwhile.
        shown = await asyncio.to_thread(lambda: [scheduler_body(each) for each in found])
        after = query.first + query.limit
        return api.SchedulerPage(shown, total, after if after < total else None)

    async def get(self, request: HttpRequest, queue: str, scheduler_id: str) -> api.SchedulerInfo:
        """One scheduler."""
        found = await Schedulers(await self._access.existing(request, queue)).get(scheduler_id)
        if found is None:
            raise Problem(api.SCHEDULER_NOT_FOUND)
        return await asyncio.to_thread(scheduler_body, found)

    async def set(
        self, request: HttpRequest, queue: str, scheduler_id: str, body: api.NewScheduler
    ) -> api.SchedulerSet:
        """Set a scheduler, new or changed, and make its next job."""
        schedulers = Schedulers(self._access.open(request, queue))
        prefix = self._access.settings.prefix
        job = new_job(body.name or scheduler_id, body.data, body.opts, prefix)
        # The jobs of a scheduler follow each other: what it stores is one job.
        with await self._limits.admit(request, queue, [job]):
            made = await schedulers.set(scheduler_id, repeat_of(body.repeat), job)
        if made is None:
            return api.SchedulerSet(scheduler_id, None, None)
        if isinstance(made, Refusal):
            raise problems.refused(made)
        self._access.known_queues.add(queue)
        found = await schedulers.get(scheduler_id)
        return api.SchedulerSet(scheduler_id, made.job_id, None if found is None else found.next_ms)

    async def remove(self, request: HttpRequest, queue: str, scheduler_id: str) -> None:
        """Remove a scheduler and its delayed job."""
        if not await Schedulers(await self._access.existing(request, queue)).remove(scheduler_id):
            raise Problem(api.SCHEDULER_NOT_FOUND)
