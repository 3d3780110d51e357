"""Job schedulers of a queue over HTTP: list with their next runs, look, set, remove (B-12)."""

import asyncio
from typing import Final

from fastapi import APIRouter, Response

from jobwire.gateway.parameters import DEFAULT_PAGE, PageSize
from jobwire.gateway.problems import Problem
from jobwire.gateway.router import CurrentRequest, needs
from jobwire.wires.bullmq.codec import readable
from jobwire.wires.bullmq.contract import Refusal
from jobwire.wires.bullmq.http import bodies, problems
from jobwire.wires.bullmq.http.access import QueueAccess
from jobwire.wires.bullmq.http.failures import wire_router
from jobwire.wires.bullmq.http.jobs import First
from jobwire.wires.bullmq.http.queues import PATH
from jobwire.wires.bullmq.http.scheduler_schemas import (
    NewScheduler,
    QueueScheduler,
    QueueSchedulers,
    RepeatOptions,
    SetScheduler,
)
from jobwire.wires.bullmq.schedulers import Repeat, Scheduler, Schedulers, upcoming_ms

SCHEDULERS: Final = PATH + "/{queue}/schedulers"
SCHEDULER: Final = SCHEDULERS + "/{scheduler_id}"
_RUNS: Final = 3
"""How many next runs of a scheduler are shown."""


def scheduler_router(access: QueueAccess) -> APIRouter:
    """The routes."""
    routes = wire_router()

    @routes.get(SCHEDULERS, openapi_extra=needs("read", *problems.ON_QUEUES))
    async def list_schedulers(
        queue: str, request: CurrentRequest, first: First = 0, limit: PageSize = DEFAULT_PAGE
    ) -> QueueSchedulers:
        """Schedulers in the order of their next jobs, with their next runs."""
        schedulers = Schedulers(await access.existing(request, queue))
        found, total = await asyncio.gather(
            schedulers.list(first=first, count=limit), schedulers.count()
        )
        # A rare pattern takes milliseconds: other requests are answered meanwhile.
        shown = await asyncio.to_thread(lambda: [_shown(each) for each in found])
        more = first + limit < total
        return QueueSchedulers(schedulers=shown, total=total, next=first + limit if more else None)

    @routes.get(SCHEDULER, openapi_extra=needs("read", *problems.ON_SCHEDULERS))
    async def get_a_scheduler(
        queue: str, scheduler_id: str, request: CurrentRequest
    ) -> QueueScheduler:
        """One scheduler with its next runs."""
        found = await Schedulers(await access.existing(request, queue)).get(scheduler_id)
        if found is None:
            raise Problem(problems.SCHEDULER_NOT_FOUND)
        return await asyncio.to_thread(_shown, found)

    @routes.put(
        SCHEDULER,
        openapi_extra=needs(
            "admin", *problems.ON_QUEUES, problems.BAD_JOB, problems.SCHEDULER_BUSY
        ),
    )
    async def set_a_scheduler(
        queue: str, scheduler_id: str, given: NewScheduler, request: CurrentRequest
    ) -> SetScheduler:
        """Set a scheduler, new or changed, and make its next job. A queue that does not exist is
        made."""
        schedulers = Schedulers(access.open(request, queue))
        job = bodies.new_job(given.name or scheduler_id, given.data, given.opts)
        made = await schedulers.set(scheduler_id, _repeat(given.repeat), job)
        if made is None:
            return SetScheduler(id=scheduler_id, job_id=None, next=None)
        if isinstance(made, Refusal):
            raise problems.refused(made)
        access.directory.add(queue)
        found = await schedulers.get(scheduler_id)
        next_ms = None if found is None else found.next_ms
        return SetScheduler(id=scheduler_id, job_id=made.job_id, next=next_ms)

    @routes.delete(
        SCHEDULER, status_code=204, openapi_extra=needs("admin", *problems.ON_SCHEDULERS)
    )
    async def remove_a_scheduler(
        queue: str, scheduler_id: str, request: CurrentRequest
    ) -> Response:
        """Remove a scheduler and its delayed job; a job that waits or runs already goes on."""
        if not await Schedulers(await access.existing(request, queue)).remove(scheduler_id):
            raise Problem(problems.SCHEDULER_NOT_FOUND)
        return Response(status_code=204)

    return routes


def _repeat(given: RepeatOptions) -> Repeat:
    return Repeat(
        every_ms=given.every or 0,
        offset_ms=given.offset or 0,
        pattern=given.pattern or "",
        tz=given.tz or "",
        immediately=given.immediately,
        limit=given.limit,
        start_ms=given.startDate,
        end_ms=given.endDate,
    )


def _shown(scheduler: Scheduler) -> QueueScheduler:
    repeat = scheduler.repeat
    return QueueScheduler(
        id=readable(scheduler.id),
        name=readable(scheduler.name),
        next=scheduler.next_ms if scheduler.pending else None,
        next_runs=upcoming_ms(scheduler, _RUNS),
        made=scheduler.made,
        # Another program wrote them: they are shown as they are, not checked.
        repeat=RepeatOptions.model_construct(
            every=repeat.every_ms or None,
            offset=repeat.offset_ms or None,
            pattern=readable(repeat.pattern) or None,
            tz=readable(repeat.tz) or None,
            limit=repeat.limit,
            startDate=repeat.start_ms,
            endDate=repeat.end_ms,
        ),
        data=scheduler.data,
        opts=scheduler.opts,
    )
