"""`jobwire.BullQueue`: a BullMQ queue straight on its server, without a gateway (B-25).

    async with BullQueue("video", "redis://localhost:6379") as queue:
        job = await queue.add("render", {"videoId": "v1"}, {"attempts": 3})

It has the methods of the client's queue with the same names, forms and answers, and those of
administration. What is refused raises RefusedError with the code that HTTP has for it.
"""

import asyncio
import builtins
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final, Literal, Self, TypeVar, cast

import msgspec

from jobwire.api import queue_jobs
from jobwire.api.flows import FlowIds, FlowInfo, NewFlowJob
from jobwire.api.problems import ProblemKind
from jobwire.api.queue_jobs import (
    AddedToQueue,
    CancelResult,
    JobChanged,
    NewJobOptions,
    NewQueueJob,
    QueueJobInfo,
    QueueJobPage,
    QueueLogs,
)
from jobwire.api.queues import QueueEventData
from jobwire.api.schedulers import (
    SCHEDULER_NOT_FOUND,
    RepeatOptions,
    SchedulerPage,
    SchedulerSet,
)
from jobwire.job.errors import RefusedError
from jobwire.job.messages import CancelOutcome, Children, Json
from jobwire.systems.queues import contract
from jobwire.systems.queues.add_batcher import AddAnswer
from jobwire.systems.queues.admin import QueueAdmin, QueueLimits
from jobwire.systems.queues.checks import refuse
from jobwire.systems.queues.codec import readable
from jobwire.systems.queues.contract import NEWEST_FIRST, BullState, Keys, Refusal
from jobwire.systems.queues.events import QueueEvent, read_events
from jobwire.systems.queues.flow_tree import TreeReader
from jobwire.systems.queues.flows import FlowJobs, add_flow
from jobwire.systems.queues.job_bodies import (
    added_body,
    job_body,
    problem_of,
    repeat_of,
    scheduler_body,
)
from jobwire.systems.queues.new_jobs import flow_tree, new_job
from jobwire.systems.queues.payloads import check_payload
from jobwire.systems.queues.queue import QueueProducer
from jobwire.systems.queues.replies import raises_unavailable
from jobwire.systems.queues.schedulers import Schedulers
from jobwire.systems.queues.settings import BullSettings
from jobwire.valkey import Config, Connection
from jobwire.valkey.errors import Moved

_BLOCK_S: Final = 10.0
_ENDED: Final = (BullState.COMPLETED, BullState.FAILED)
_LOCAL: Final = "redis://localhost:6379"

T = TypeVar("T")


class BullQueue:
    """`async with BullQueue("mail", "redis://localhost:6379") as queue: await queue.add("hi")`."""

    def __init__(
        self,
        name: str,
        server: "str | Connection" = _LOCAL,
        *,
        prefix: str = contract.DEFAULT_PREFIX,
    ) -> None:
        """`server` is a URL, or an open connection that several queues share."""
        self.name = name
        self._server = server
        self._settings = BullSettings(prefix=prefix)
        self._queue: QueueProducer | None = None

    async def __aenter__(self) -> Self:
        server = self._server
        with raises_unavailable():
            connection = (
                server
                if isinstance(server, Connection)
                else await Connection.open(self._config(server), name="jobwire-bull-queue")
            )
        self._queue = self._opened(connection, self.name)
        return self

    async def __aexit__(self, *_: object) -> None:
        queue, self._queue = self._queue, None
        if queue is not None and not isinstance(self._server, Connection):
            await queue.connection.close()

    # Jobs

    async def add(
        self, name: str, data: Json = None, opts: Mapping[str, object] | None = None
    ) -> AddedToQueue:
        """Add a job; `opts` has BullMQ's names, as `{"attempts": 3, "delay": 1000}`."""
        options = _convert(opts, NewJobOptions) if opts else _NO_OPTIONS
        job = new_job(name, {} if data is None else data, options, self._settings.prefix)
        with raises_unavailable():
            return added_body(_accepted(await self._use().submit(*job)))

    async def add_many(self, jobs: Sequence[Mapping[str, object]]) -> builtins.list[AddedToQueue]:
        """Add jobs with `name`, `data` and `opts`. More than 1,000 are added in parts."""
        given = [_convert(job, NewQueueJob) for job in jobs]
        made = [new_job(each.name, each.data, each.opts, self._settings.prefix) for each in given]
        added: builtins.list[AddedToQueue] = []
        for first in range(0, len(made), contract.MAX_BULK_JOBS):
            part = made[first : first + contract.MAX_BULK_JOBS]
            with raises_unavailable():
                answers = await self._use().submit_many(part)
            added += [added_body(_accepted(answer)) for answer in answers]
        return added

    async def jobs(
        self, state: str = "waiting", *, first: int = 0, limit: int = 50
    ) -> QueueJobPage:
        """Return a page of the jobs in a state."""
        with raises_unavailable():
            found = await self._use().list(
                state, first=first, count=limit, oldest_first=state not in NEWEST_FIRST
            )
            total = (await self._use().counts())[BullState(state)]
        shown = [_read(job_body(job, self.name, state)) for job in found]
        return QueueJobPage(shown, total, first + limit if first + limit < total else None)

    async def job(self, job_id: str) -> QueueJobInfo:
        """Return a job as it is now."""
        with raises_unavailable():
            found, state = await asyncio.gather(self._use().get(job_id), self._use().state(job_id))
        if found is None:
            raise _error(queue_jobs.JOB_NOT_FOUND)
        return _read(job_body(found, self.name, state))

    async def counts(self) -> dict[str, int]:
        """Return the number of jobs by state."""
        with raises_unavailable():
            return {str(state): count for state, count in (await self._use().counts()).items()}

    async def wait(self, job_id: str, timeout_s: float | None = None) -> QueueJobInfo:
        """Wait until a job has completed or failed; raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            events = self.events(job_id, after=await self._last_event())
            try:
                job = await self.job(job_id)
                if job.state in _ENDED:
                    return job
                async for _ in events:
                    pass
            finally:
                await events.aclose()
        return await self.job(job_id)

    async def logs(self, job_id: str, *, first: int = 0, limit: int = 1000) -> QueueLogs:
        """Return lines of a job's log, the oldest first."""
        with raises_unavailable():
            found = await self._use().logs(job_id, first=first, last=first + limit - 1)
        return QueueLogs([readable(line) for line in found.lines], found.total)

    async def children(self, job_id: str) -> Children:
        """Return what became of a job's children, by their keys."""
        with raises_unavailable():
            return await self._admin.children(job_id)

    # One job

    async def retry(self, job_id: str) -> JobChanged:
        """Run a failed or completed job again."""
        with raises_unavailable():
            refusal = await self._admin.retry(job_id, BullState.FAILED)
            if refusal is Refusal.WRONG_STATE:
                refusal = await self._admin.retry(job_id, BullState.COMPLETED)
        return await self._changed(job_id, refusal)

    async def promote(self, job_id: str) -> JobChanged:
        """Let a delayed job run as soon as a worker is free."""
        with raises_unavailable():
            refusal = await self._admin.promote(job_id)
        return await self._changed(job_id, refusal)

    async def change_delay(self, job_id: str, delay_ms: int) -> JobChanged:
        """Let a delayed job wait for another time, counted from now."""
        with raises_unavailable():
            refusal = await self._admin.change_delay(job_id, delay_ms)
        return await self._changed(job_id, refusal)

    async def change_priority(
        self, job_id: str, priority: int, *, lifo: bool = False
    ) -> JobChanged:
        """Give a job another priority; one that waits takes its new place at once."""
        with raises_unavailable():
            refusal = await self._admin.change_priority(job_id, priority, lifo=lifo)
        return await self._changed(job_id, refusal)

    async def update_data(self, job_id: str, data: Json) -> JobChanged:
        """Replace a job's data; a running attempt keeps its own."""
        text = msgspec.json.encode(data).decode()
        with raises_unavailable():
            refusal = await self._admin.set_data(job_id, text)
        return await self._changed(job_id, refusal)

    async def update_progress(self, job_id: str, progress: Json, message: str = "") -> JobChanged:
        """Set a job's progress from outside its worker."""
        text = msgspec.json.encode(progress).decode()
        with raises_unavailable():
            refusal = await self._admin.set_progress(job_id, text, message, any_number=True)
        return await self._changed(job_id, refusal)

    async def add_log(self, job_id: str, line: str, *, keep: int = 0) -> int:
        """Append a line to a job's log; returns how many there are. `keep` 0 keeps all."""
        with raises_unavailable():
            return _done(await self._admin.add_log(job_id, line, keep=keep))

    async def clear_logs(self, job_id: str, *, keep: int = 0) -> None:
        """Drop a job's log, except the newest `keep` lines."""
        with raises_unavailable():
            await self._admin.clear_logs(job_id, keep=keep)

    async def cancel(self, job_id: str) -> CancelResult:
        """Remove a job that waits; stop one that runs, which then fails as `canceled`."""
        with raises_unavailable():
            outcome = await self._use().cancel(job_id)
        if outcome is CancelOutcome.GONE:
            raise _error(queue_jobs.JOB_NOT_FOUND)
        if outcome is CancelOutcome.FINISHED:
            raise _error(queue_jobs.WRONG_STATE)
        return CancelResult(job_id, str(outcome))

    async def delete(self, job_id: str, *, children: bool = True) -> None:
        """Delete a job with its children; one that runs is canceled."""
        with raises_unavailable():
            refusal = await self._admin.remove(job_id, children=children)
            if refusal is Refusal.LOCKED and await self._use().state(job_id) is BullState.ACTIVE:
                await self.cancel(job_id)
                return
        _done(refusal)

    async def detach(self, job_id: str) -> JobChanged:
        """Let the job's parent not wait for it any more."""
        with raises_unavailable():
            refusal = await self._admin.detach_from_parent(job_id)
        return await self._changed(job_id, refusal)

    async def remove_pending_children(self, job_id: str) -> JobChanged:
        """Delete the children that a job waits for and that no worker has."""
        with raises_unavailable():
            refusal = await self._admin.remove_pending_children(job_id)
        return await self._changed(job_id, refusal)

    # The queue

    async def pause(self) -> bool:
        """Let no worker of any program start another job."""
        with raises_unavailable():
            await self._use().pause()
        return True

    async def resume(self) -> bool:
        """Let workers start jobs again."""
        with raises_unavailable():
            await self._use().resume()
        return False

    async def drain(self, *, delayed: bool = False) -> int:
        """Delete all jobs that wait, and the delayed ones if asked; how many."""
        with raises_unavailable():
            return await self._admin.drain(delayed=delayed)

    async def clean(self, state: str = "completed", *, grace_ms: int = 0, limit: int = 0) -> int:
        """Delete the jobs of a state that are older than `grace_ms`; how many."""
        with raises_unavailable():
            return len(await self._admin.clean(state, grace_ms=grace_ms, limit=limit))

    async def retry_all(self, state: Literal["failed", "completed"] = "failed") -> int:
        """Run all failed jobs again, or all completed ones; how many."""
        chosen: Any = BullState(state)
        with raises_unavailable():
            return await self._admin.retry_all(chosen)

    async def promote_all(self) -> int:
        """Let all delayed jobs run as soon as workers are free; how many."""
        with raises_unavailable():
            return await self._admin.promote_all()

    async def obliterate(self, *, force: bool = False) -> None:
        """Delete the queue with everything in it; `force`: also while workers run its jobs."""
        with raises_unavailable():
            _done(await self._admin.obliterate(force=force))

    async def limits(self) -> QueueLimits:
        """Return the concurrency and the rate limit of all workers together."""
        with raises_unavailable():
            return await self._admin.limits()

    async def set_concurrency(self, most: int | None) -> None:
        """Set how many jobs all workers together run at a time; None: any number."""
        with raises_unavailable():
            await self._admin.set_concurrency(most)

    async def set_rate_limit(self, max_jobs: int | None, per_ms: int = 0) -> None:
        """Set how many jobs all workers together start in `per_ms`; None: any number."""
        with raises_unavailable():
            await self._admin.set_rate_limit(max_jobs, per_ms)

    async def rate_limit(self, for_ms: int) -> None:
        """Let workers that have a rate limit start nothing for a while; 0 ends it."""
        with raises_unavailable():
            await self._admin.rate_limit(for_ms)

    async def deduplication_owner(self, dedup_id: str) -> str | None:
        """Return the job that owns a deduplication id."""
        with raises_unavailable():
            return await self._admin.deduplication_owner(dedup_id)

    async def free_deduplication(self, dedup_id: str) -> bool:
        """Let the next job of a deduplication id be added; returns whether the id was owned."""
        with raises_unavailable():
            return await self._admin.free_deduplication(dedup_id)

    async def trim_events(self, keep: int) -> int:
        """Drop the oldest events, except about the newest `keep`; how many."""
        with raises_unavailable():
            return await self._admin.trim_events(keep)

    # Flows and schedulers

    async def add_flow(self, flow: Mapping[str, object]) -> FlowIds:
        """Add a tree of jobs, all or none: `{"name", "queueName", "data", "opts", "children"}` as
        in BullMQ. A job without `queueName` is of its parent's queue."""
        given, connection = _convert(flow, NewFlowJob), self._use().connection
        prefix, name = self._settings.prefix, given.queueName or self.name
        root = flow_tree(given, name, prefix, lambda queue: self._opened(connection, queue))
        with raises_unavailable():
            return _flow_ids(_done(await add_flow(connection, root, self._settings)))

    async def flow(self, job_id: str, *, depth: int = 10, width: int = 20) -> FlowInfo:
        """Return a job with its parent and the tree of its children."""
        reader = TreeReader(self._use().connection, self._settings, lambda _: True)
        with raises_unavailable():
            tree = await reader.read(self.name, job_id, depth=depth, width=width)
        if tree is None:
            raise _error(queue_jobs.JOB_NOT_FOUND)
        return tree

    async def schedulers(self, *, first: int = 0, limit: int = 50) -> SchedulerPage:
        """Return a page of the queue's schedulers with their next runs."""
        schedulers = Schedulers(self._use())
        with raises_unavailable():
            found = await schedulers.list(first=first, count=limit)
            total = await schedulers.count()
        after = first + limit
        shown = [scheduler_body(each) for each in found]
        return SchedulerPage(shown, total, after if after < total else None)

    async def set_scheduler(
        self,
        scheduler_id: str,
        repeat: Mapping[str, object],
        name: str = "",
        data: Json = None,
        opts: Mapping[str, object] | None = None,
    ) -> SchedulerSet:
        """Set a scheduler; `repeat` has BullMQ's names, as `{"every": 60000}` or
        `{"pattern": "0 3 * * *", "tz": "Europe/Berlin"}`."""
        options = _convert(opts or {}, NewJobOptions)
        content: Json = {} if data is None else data
        job = new_job(name or scheduler_id, content, options, self._settings.prefix)
        schedulers = Schedulers(self._use())
        with raises_unavailable():
            rule = repeat_of(_convert(repeat, RepeatOptions))
            made = _done(await schedulers.set(scheduler_id, rule, job))
            found = made and await schedulers.get(scheduler_id)
        return SchedulerSet(scheduler_id, made and made.job_id, found and found.next_ms)

    async def remove_scheduler(self, scheduler_id: str) -> None:
        """Remove a scheduler and its delayed job."""
        with raises_unavailable():
            if not await Schedulers(self._use()).remove(scheduler_id):
                raise _error(SCHEDULER_NOT_FOUND)

    # Events

    async def events(
        self, job_id: str | None = None, *, after: str | None = None
    ) -> AsyncGenerator[QueueEventData]:
        """Yield what happens on the queue, from now or after the event with this id; of a job its
        events, until it has ended."""
        last = await self._last_event() if after is None else after
        while True:
            with raises_unavailable():
                found = await self._read_events(last)
            for event in found:
                last = event.id
                if job_id is not None and event.job_id != job_id:
                    continue
                yield msgspec.json.decode(event.body, type=QueueEventData)
                if job_id is not None and event.is_terminal:
                    return

    async def _read_events(self, last: str) -> Sequence[QueueEvent]:
        queue = self._use()
        words = ("XREAD", "COUNT", 500, "BLOCK", round(_BLOCK_S * 1000), "STREAMS")
        async with queue.connection.socket() as own:
            try:
                reply = await own.call(*words, queue.keys.events, last, block_s=_BLOCK_S)
            except Moved:
                return []
        if not reply:
            return []
        pages = cast("dict[str, object]", reply)
        return read_events(pages[queue.keys.events])

    async def _last_event(self) -> str:
        queue = self._use()
        with raises_unavailable():
            found = await queue.connection.call(
                "XREVRANGE", queue.keys.events, "+", "-", "COUNT", 1
            )
        rows = cast("list[tuple[str, list[str]]]", found)
        return rows[0][0] if rows else "0-0"

    # Parts

    def _config(self, url: str) -> Config:
        return Config.from_url(url).for_keys(Keys(self.name, self._settings.prefix).base)

    def _use(self) -> QueueProducer:
        if self._queue is None:
            raise RuntimeError("open the queue first: `async with BullQueue(…) as queue:`")
        return self._queue

    @property
    def _admin(self) -> QueueAdmin:
        return QueueAdmin(self._use())

    def _opened(self, connection: Connection, name: str) -> QueueProducer:
        return QueueProducer(connection, name, self._settings, check_data=check_payload(name))

    async def _changed(self, job_id: str, refusal: Refusal | None) -> JobChanged:
        _done(refusal)
        with raises_unavailable():
            return JobChanged(job_id, str(await self._use().state(job_id)))


_NO_OPTIONS: Final = NewJobOptions()


def _convert(given: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(given, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise refuse(str(error)) from None


def _read(job: QueueJobInfo) -> QueueJobInfo:
    """The job with its JSON decoded, as a client reads it."""
    return msgspec.json.decode(msgspec.json.encode(job), type=QueueJobInfo)


def _accepted(answer: AddAnswer) -> Any:
    return _done(answer)


def _done(answer: "T | Refusal") -> T:
    """What a verb answered; RefusedError if it refused."""
    if isinstance(answer, Refusal):
        raise _error(problem_of(answer))
    return answer


def _error(kind: ProblemKind) -> RefusedError:
    return RefusedError(kind.detail, code=kind.code, status=kind.status)


def _flow_ids(job: FlowJobs) -> FlowIds:
    return FlowIds(job.queue, job.job_id, [_flow_ids(child) for child in job.children])
