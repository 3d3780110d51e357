"""Changes of a queue's jobs from outside their workers, and of the queue's limits, deduplication
and events (B-26)."""

from collections.abc import Sequence

from jobwire.api import queue_changes as api
from jobwire.api.queue_jobs import JOB_NOT_FOUND, PARENT_NOT_FOUND, JobChanged
from jobwire.gateway.problems import Problem
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.route import Route
from jobwire.systems.queues.admin import QueueAdmin
from jobwire.systems.queues.checks import job_of_key
from jobwire.systems.queues.codec import readable
from jobwire.systems.queues.contract import Refusal
from jobwire.systems.queues.http import problems
from jobwire.systems.queues.http.access import QueueAccess
from jobwire.systems.queues.http.jobs import changed
from jobwire.systems.queues.http.route import queue_route
from jobwire.systems.queues.http.tenant_limits import TenantLimits
from jobwire.systems.queues.new_jobs import data_text
from jobwire.systems.queues.queue import QueueProducer


class QueueChangeRoutes:
    """The endpoints."""

    def __init__(self, access: QueueAccess, limits: TenantLimits) -> None:
        self._access = access
        self._limits = limits

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            queue_route(api.PRIORITY, self.change_priority),
            queue_route(api.DELAY, self.change_delay),
            queue_route(api.DATA, self.update_data),
            queue_route(api.PROGRESS, self.update_progress),
            queue_route(api.ADD_LOG, self.add_log),
            queue_route(api.CLEAR_LOGS, self.clear_logs),
            queue_route(api.DETACH, self.detach),
            queue_route(api.REMOVE_CHILDREN, self.remove_children),
            queue_route(api.CONCURRENCY, self.set_concurrency),
            queue_route(api.RATE_LIMIT, self.set_rate_limit),
            queue_route(api.HOLD, self.rate_limit),
            queue_route(api.DEDUPLICATION, self.deduplication_owner),
            queue_route(api.FREE_DEDUPLICATION, self.free_deduplication),
            queue_route(api.TRIM_EVENTS, self.trim_events),
        ]

    async def change_priority(
        self, request: HttpRequest, queue: str, job_id: str, body: api.PriorityRequest
    ) -> JobChanged:
        """Give a job another priority."""
        opened = await self._access.existing(request, queue)
        admin = QueueAdmin(opened)
        refusal = await admin.change_priority(job_id, body.priority, lifo=body.lifo)
        return await changed(opened, job_id, refusal)

    async def change_delay(
        self, request: HttpRequest, queue: str, job_id: str, body: api.DelayRequest
    ) -> JobChanged:
        """Let a delayed job wait for another time."""
        opened = await self._access.existing(request, queue)
        refusal = await QueueAdmin(opened).change_delay(job_id, body.delay)
        return await changed(opened, job_id, refusal, "only delayed jobs have a delay")

    async def update_data(
        self, request: HttpRequest, queue: str, job_id: str, body: api.DataRequest
    ) -> JobChanged:
        """Replace a job's data."""
        opened, text = await self._of_job(request, queue, job_id), data_text(body.data)
        await self._limits.replace(request, queue, job_id, "data", len(text))
        refusal = await QueueAdmin(opened).set_data(job_id, text)
        return await changed(opened, job_id, refusal)

    async def update_progress(
        self, request: HttpRequest, queue: str, job_id: str, body: api.ProgressRequest
    ) -> JobChanged:
        """Set a job's progress."""
        opened, text = await self._of_job(request, queue, job_id), data_text(body.progress)
        await self._limits.replace(request, queue, job_id, "progress", len(text))
        if body.message:
            await self._limits.extend(request, queue, job_id, "logs", len(body.message))
        admin = QueueAdmin(opened)
        refusal = await admin.set_progress(job_id, text, body.message, any_number=True)
        return await changed(opened, job_id, refusal)

    async def add_log(
        self, request: HttpRequest, queue: str, job_id: str, body: api.LogRequest
    ) -> api.LogAdded:
        """Append a line to a job's log."""
        opened = await self._of_job(request, queue, job_id)
        await self._limits.extend(request, queue, job_id, "logs", len(body.line))
        keep = body.keep or opened.settings.max_log_lines
        total = await QueueAdmin(opened).add_log(job_id, body.line, keep=keep)
        if isinstance(total, Refusal):
            raise problems.refused(total)
        return api.LogAdded(job_id, total)

    async def clear_logs(
        self, request: HttpRequest, queue: str, job_id: str, query: api.ClearLogsQuery
    ) -> None:
        """Delete a job's log, or its oldest lines."""
        opened = await self._of_job(request, queue, job_id)
        await QueueAdmin(opened).clear_logs(job_id, keep=query.keep)
        if not query.keep:
            self._limits.drop(request, queue, job_id, "logs")

    async def detach(self, request: HttpRequest, queue: str, job_id: str) -> JobChanged:
        """Let the job's parent not wait for it any more."""
        opened = await self._access.existing(request, queue)
        job = await opened.get(job_id)
        if job is not None and job.parent_key:
            parent = job_of_key(job.parent_key, self._access.settings.prefix)
            if parent is None:
                raise Problem(PARENT_NOT_FOUND)
            self._access.open(request, parent[0])  # it must be the caller's too
        refusal = await QueueAdmin(opened).detach_from_parent(job_id)
        return await changed(opened, job_id, refusal)

    async def remove_children(self, request: HttpRequest, queue: str, job_id: str) -> JobChanged:
        """Delete the children that a job waits for and that no worker has."""
        opened = await self._of_job(request, queue, job_id)
        refusal = await QueueAdmin(opened).remove_pending_children(job_id)
        return await changed(opened, job_id, refusal)

    async def set_concurrency(
        self, request: HttpRequest, queue: str, body: api.ConcurrencyRequest
    ) -> api.SharedLimits:
        """How many jobs all workers together run at a time."""
        admin = await self._admin(request, queue)
        await admin.set_concurrency(body.concurrency)
        return await _limits(admin)

    async def set_rate_limit(
        self, request: HttpRequest, queue: str, body: api.RateLimitRequest
    ) -> api.SharedLimits:
        """How many jobs all workers together start in a time."""
        admin = await self._admin(request, queue)
        await admin.set_rate_limit(body.max, body.duration)
        return await _limits(admin)

    async def rate_limit(self, request: HttpRequest, queue: str, body: api.HoldRequest) -> api.Held:
        """Let workers that have a rate limit start nothing for a while."""
        await (await self._admin(request, queue)).rate_limit(body.for_ms)
        return api.Held(body.for_ms)

    async def deduplication_owner(
        self, request: HttpRequest, queue: str, query: api.DeduplicationQuery
    ) -> api.DeduplicationOwner:
        """The job that owns a deduplication id."""
        owner = await (await self._admin(request, queue)).deduplication_owner(query.id)
        return api.DeduplicationOwner(query.id, owner and readable(owner))

    async def free_deduplication(
        self, request: HttpRequest, queue: str, query: api.DeduplicationQuery
    ) -> api.DeduplicationFreed:
        """Let the next job of a deduplication id be added."""
        freed = await (await self._admin(request, queue)).free_deduplication(query.id)
        return api.DeduplicationFreed(query.id, freed)

    async def trim_events(
        self, request: HttpRequest, queue: str, body: api.TrimRequest
    ) -> api.EventsTrimmed:
        """Delete the oldest events."""
        return api.EventsTrimmed(await (await self._admin(request, queue)).trim_events(body.keep))

    async def _admin(self, request: HttpRequest, queue: str) -> QueueAdmin:
        return QueueAdmin(await self._access.existing(request, queue))

    async def _of_job(self, request: HttpRequest, queue: str, job_id: str) -> QueueProducer:
        """The queue of a job that exists; a Problem if it does not."""
        opened = await self._access.existing(request, queue)
        if not await opened.exists(job_id):
            raise Problem(JOB_NOT_FOUND)
        return opened


async def _limits(admin: QueueAdmin) -> api.SharedLimits:
    limits = await admin.limits()
    rate = {"max": limits.max_jobs or 0, "duration": limits.per_ms or 0}
    return api.SharedLimits(limits.concurrency, None if limits.max_jobs is None else rate)
