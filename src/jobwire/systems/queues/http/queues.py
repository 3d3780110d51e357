"""Queues over HTTP: list, look, pause, resume, drain, clean, obliterate, retry and promote all
(B-12)."""

import asyncio
from collections.abc import Sequence
from typing import Final

from msgspec.structs import asdict

from jobwire.api import queues as api
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.route import Route
from jobwire.systems.queues.admin import Metrics, QueueAdmin
from jobwire.systems.queues.announcement import seen_workers
from jobwire.systems.queues.contract import BullState
from jobwire.systems.queues.http import problems
from jobwire.systems.queues.http.access import QueueAccess
from jobwire.systems.queues.http.route import queue_route
from jobwire.systems.queues.metrics import QueueFigures, measure
from jobwire.systems.queues.schedulers import Schedulers

_HOUR: Final = 60


class QueueRoutes:
    """The endpoints."""

    def __init__(self, access: QueueAccess) -> None:
        self._access = access
        self._connection, self._prefix = access.connection, access.settings.prefix

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            queue_route(api.LIST, self.list),
            queue_route(api.GET, self.get),
            queue_route(api.PAUSE, self.pause),
            queue_route(api.RESUME, self.resume),
            queue_route(api.DRAIN, self.drain),
            queue_route(api.CLEAN, self.clean),
            queue_route(api.OBLITERATE, self.obliterate),
            queue_route(api.RETRY_ALL, self.retry_all),
            queue_route(api.PROMOTE_ALL, self.promote_all),
        ]

    async def list(self, request: HttpRequest) -> api.Queues:
        """The queues that the caller may see."""
        names = self._access.names(request)
        figures, workers = await asyncio.gather(
            measure(self._connection, self._prefix, names),
            seen_workers(self._connection, self._prefix, names),
        )
        return api.Queues(
            [self._summary(name, figures[name], (workers or {}).get(name)) for name in names]
        )

    async def get(self, request: HttpRequest, queue: str) -> api.QueueStatus:
        """One queue, with its limits and the last hour."""
        opened = await self._access.existing(request, queue)
        admin = QueueAdmin(opened)
        figures = (await measure(self._connection, self._prefix, [queue]))[queue]
        workers = await seen_workers(self._connection, self._prefix, [queue])
        limits, schedulers, completed, failed = await asyncio.gather(
            admin.limits(),
            Schedulers(opened).count(),
            admin.metrics(BullState.COMPLETED, last=_HOUR - 1),
            admin.metrics(BullState.FAILED, last=_HOUR - 1),
        )
        summary = self._summary(queue, figures, (workers or {}).get(queue))
        rate = {"max": limits.max_jobs or 0, "duration": limits.per_ms or 0}
        return api.QueueStatus(
            **asdict(summary),
            stalled=figures.stalled,
            schedulers=schedulers,
            concurrency=limits.concurrency,
            rate_limit=None if limits.max_jobs is None else rate,
            completed=_rates(completed),
            failed=_rates(failed),
        )

    async def pause(self, request: HttpRequest, queue: str) -> api.PauseState:
        """Let no worker start its jobs."""
        await (await self._access.existing(request, queue)).pause()
        return api.PauseState(paused=True)

    async def resume(self, request: HttpRequest, queue: str) -> api.PauseState:
        """Let workers start its jobs again."""
        await (await self._access.existing(request, queue)).resume()
        return api.PauseState(paused=False)

    async def drain(
        self, request: HttpRequest, queue: str, body: api.DrainRequest | None
    ) -> api.Affected:
        """Delete all jobs that wait, and the delayed ones if asked."""
        admin = QueueAdmin(await self._access.existing(request, queue))
        return api.Affected(await admin.drain(delayed=body is not None and body.delayed))

    async def clean(
        self, request: HttpRequest, queue: str, body: api.CleanRequest | None
    ) -> api.Affected:
        """Delete the jobs of a state that are old enough."""
        given = body or api.CleanRequest()
        admin = QueueAdmin(await self._access.existing(request, queue))
        ids = await admin.clean(given.state, grace_ms=given.grace_ms, limit=given.limit)
        return api.Affected(len(ids))

    async def obliterate(
        self, request: HttpRequest, queue: str, body: api.ObliterateRequest | None
    ) -> api.Affected:
        """Delete the queue; one whose jobs are run only if forced."""
        opened = await self._access.existing(request, queue)
        force = body is not None and body.force
        counts = await opened.counts()
        # The verb pauses the queue first: a queue that is refused here keeps running.
        if counts[BullState.ACTIVE] and not force:
            raise Problem(api.QUEUE_ACTIVE)
        refusal = await QueueAdmin(opened).obliterate(force=force)
        if refusal is not None:
            detail = (
                "a worker has started a job, or another client has resumed the queue, meanwhile"
            )
            raise problems.refused(refusal, f"{detail}; look at the queue and repeat")
        return api.Affected(sum(counts.values()) - counts[BullState.WAITING_CHILDREN])

    async def retry_all(
        self, request: HttpRequest, queue: str, body: api.RetryRequest | None
    ) -> api.Affected:
        """Run all failed jobs again, or all completed ones."""
        admin = QueueAdmin(await self._access.existing(request, queue))
        completed = body is not None and body.state == BullState.COMPLETED
        return api.Affected(
            await admin.retry_all(BullState.COMPLETED if completed else BullState.FAILED)
        )

    async def promote_all(self, request: HttpRequest, queue: str) -> api.Affected:
        """Let all delayed jobs run as soon as workers are free."""
        admin = QueueAdmin(await self._access.existing(request, queue))
        return api.Affected(await admin.promote_all())

    def _summary(self, name: str, figures: QueueFigures, workers: int | None) -> api.QueueSummary:
        age_s = figures.next_age_s
        return api.QueueSummary(
            name=name,
            tenant=self._access.tenant_of.get(name),
            paused=figures.paused,
            counts={str(state): count for state, count in figures.jobs.items()},
            oldest_waiting_ms=None if age_s is None else round(age_s * 1000),
            workers=workers,
        )


def _rates(metrics: Metrics) -> api.QueueRates:
    return api.QueueRates(metrics.total, metrics.minutes)
