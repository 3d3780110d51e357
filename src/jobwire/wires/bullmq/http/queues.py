"""Queues over HTTP: list, look, pause, resume, drain, clean, obliterate, retry and promote all
(B-12)."""

import asyncio
from typing import Final

from fastapi import APIRouter

from jobwire.gateway.problems import Problem
from jobwire.gateway.router import CurrentRequest, needs
from jobwire.wires.bullmq.admin import Metrics, QueueAdmin
from jobwire.wires.bullmq.contract import State
from jobwire.wires.bullmq.http import problems
from jobwire.wires.bullmq.http.access import QueueAccess
from jobwire.wires.bullmq.http.failures import wire_router
from jobwire.wires.bullmq.http.schemas import (
    Affected,
    CleanRequest,
    DrainRequest,
    ObliterateRequest,
    PauseState,
    QueueInfo,
    QueueRates,
    Queues,
    QueueSummary,
    RetryRequest,
)
from jobwire.wires.bullmq.metrics import QueueFigures, measure
from jobwire.wires.bullmq.registry import seen_workers
from jobwire.wires.bullmq.schedulers import Schedulers

PATH: Final = "/v1/queues"
_HOUR: Final = 60


def queue_router(access: QueueAccess) -> APIRouter:
    """The routes."""
    routes = wire_router()
    connection, prefix = access.connection, access.settings.prefix

    async def summaries(names: list[str]) -> list[QueueSummary]:
        figures, workers = await asyncio.gather(
            measure(connection, prefix, names), seen_workers(connection, prefix, names)
        )
        return [
            _summary(name, figures[name], access.tenant_of.get(name), (workers or {}).get(name))
            for name in names
        ]

    @routes.get(PATH, openapi_extra=needs("read", problems.UNAVAILABLE))
    async def list_queues(request: CurrentRequest) -> Queues:
        """The queues that the settings name and those that were found on the server."""
        return Queues(queues=await summaries(access.names(request)))

    @routes.get(PATH + "/{queue}", openapi_extra=needs("read", *problems.ON_QUEUES))
    async def get_a_queue(queue: str, request: CurrentRequest) -> QueueInfo:
        """One queue: jobs by state, limits, ended jobs by minute."""
        opened = await access.existing(request, queue)
        admin = QueueAdmin(opened)
        figures = (await measure(connection, prefix, [queue]))[queue]
        workers = await seen_workers(connection, prefix, [queue])
        limits, schedulers, completed, failed = await asyncio.gather(
            admin.limits(),
            Schedulers(opened).count(),
            admin.metrics(State.COMPLETED, last=_HOUR - 1),
            admin.metrics(State.FAILED, last=_HOUR - 1),
        )
        summary = _summary(queue, figures, access.tenant_of.get(queue), (workers or {}).get(queue))
        rate = {"max": limits.max_jobs or 0, "duration": limits.per_ms or 0}
        return QueueInfo(
            **summary.model_dump(),
            stalled=figures.stalled,
            schedulers=schedulers,
            concurrency=limits.concurrency,
            rate_limit=None if limits.max_jobs is None else rate,
            completed=_rates(completed),
            failed=_rates(failed),
        )

    @routes.post(PATH + "/{queue}/pause", openapi_extra=needs("admin", *problems.ON_QUEUES))
    async def pause_a_queue(queue: str, request: CurrentRequest) -> PauseState:
        """Pause a queue: no worker of any program starts its jobs. Running jobs go on."""
        await (await access.existing(request, queue)).pause()
        return PauseState(paused=True)

    @routes.post(PATH + "/{queue}/resume", openapi_extra=needs("admin", *problems.ON_QUEUES))
    async def resume_a_queue(queue: str, request: CurrentRequest) -> PauseState:
        """Resume a paused queue."""
        await (await access.existing(request, queue)).resume()
        return PauseState(paused=False)

    @routes.post(PATH + "/{queue}/drain", openapi_extra=needs("admin", *problems.ON_QUEUES))
    async def drain_a_queue(
        queue: str, request: CurrentRequest, what: DrainRequest | None = None
    ) -> Affected:
        """Delete all jobs that wait, and the delayed ones if asked."""
        admin = QueueAdmin(await access.existing(request, queue))
        return Affected(count=await admin.drain(delayed=what is not None and what.delayed))

    @routes.post(
        PATH + "/{queue}/clean",
        openapi_extra=needs("admin", *problems.ON_QUEUES, problems.BAD_JOB, problems.UNKNOWN_STATE),
    )
    async def clean_a_queue(
        queue: str, request: CurrentRequest, what: CleanRequest | None = None
    ) -> Affected:
        """Delete the jobs of a state that are old enough."""
        given = what or CleanRequest()
        admin = QueueAdmin(await access.existing(request, queue))
        ids = await admin.clean(given.state, grace_ms=given.grace_ms, limit=given.limit)
        return Affected(count=len(ids))

    @routes.post(
        PATH + "/{queue}/obliterate",
        openapi_extra=needs("admin", *problems.ON_QUEUES, problems.QUEUE_ACTIVE),
    )
    async def obliterate_a_queue(
        queue: str, request: CurrentRequest, what: ObliterateRequest | None = None
    ) -> Affected:
        """Delete the queue with its jobs, schedulers and events. Jobs that wait for children stay:
        the children may be in other queues. A queue whose jobs are run is refused, unless
        forced."""
        opened = await access.existing(request, queue)
        force = what is not None and what.force
        counts = await opened.counts()
        # The verb pauses the queue first: a queue that is refused here keeps running.
        if counts[State.ACTIVE] and not force:
            raise Problem(problems.QUEUE_ACTIVE)
        refusal = await QueueAdmin(opened).obliterate(force=force)
        if refusal is not None:
            detail = (
                "a worker has started a job, or another client has resumed the queue, meanwhile"
            )
            raise problems.refused(refusal, f"{detail}; look at the queue and repeat")
        return Affected(count=sum(counts.values()) - counts[State.WAITING_CHILDREN])

    @routes.post(PATH + "/{queue}/retry", openapi_extra=needs("admin", *problems.ON_QUEUES))
    async def retry_all_jobs(
        queue: str, request: CurrentRequest, what: RetryRequest | None = None
    ) -> Affected:
        """Run all failed jobs again, or all completed ones."""
        admin = QueueAdmin(await access.existing(request, queue))
        state = State((what or RetryRequest()).state)
        finished = State.COMPLETED if state is State.COMPLETED else State.FAILED
        return Affected(count=await admin.retry_all(finished))

    @routes.post(PATH + "/{queue}/promote", openapi_extra=needs("admin", *problems.ON_QUEUES))
    async def promote_all_jobs(queue: str, request: CurrentRequest) -> Affected:
        """Let all delayed jobs run as soon as workers are free."""
        admin = QueueAdmin(await access.existing(request, queue))
        return Affected(count=await admin.promote_all())

    return routes


def _summary(
    name: str, figures: QueueFigures, tenant: str | None, workers: int | None
) -> QueueSummary:
    age_s = figures.next_age_s
    return QueueSummary(
        name=name,
        tenant=tenant,
        paused=figures.paused,
        counts={str(state): count for state, count in figures.jobs.items()},
        oldest_waiting_ms=None if age_s is None else round(age_s * 1000),
        workers=workers,
    )


def _rates(metrics: Metrics) -> QueueRates:
    return QueueRates(total=metrics.total, by_minute=metrics.minutes)
