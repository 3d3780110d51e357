"""`jobwire.SyncBullQueue`: `BullQueue` for programs without an event loop (B-25).

    with SyncBullQueue("video", "redis://localhost:6379") as queue:
        job = queue.add("render", {"videoId": "v1"}, {"attempts": 3})

An event loop of its own, in a thread, runs the async queue. Any thread may call it.
"""

import asyncio
import builtins
import threading
from collections.abc import Coroutine, Generator, Mapping, Sequence
from typing import Any, Final, Literal, Self, TypeVar

from jobwire.api.flows import FlowIds, FlowInfo
from jobwire.api.queue_jobs import (
    AddedToQueue,
    CancelResult,
    JobChanged,
    QueueJobInfo,
    QueueJobPage,
    QueueLogs,
)
from jobwire.api.queues import QueueEventData
from jobwire.api.schedulers import SchedulerPage, SchedulerSet
from jobwire.job.messages import Children, Json
from jobwire.systems.queues import contract
from jobwire.systems.queues.admin import QueueLimits
from jobwire.systems.queues.direct_queue import BullQueue

_END: Final = None

T = TypeVar("T")


class SyncBullQueue:
    """`with SyncBullQueue("mail", "redis://localhost:6379") as queue: queue.add("send")`."""

    def __init__(
        self,
        name: str,
        server: str = "redis://localhost:6379",
        *,
        prefix: str = contract.DEFAULT_PREFIX,
    ) -> None:
        self.name = name
        self._queue = BullQueue(name, server, prefix=prefix)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="bull-queue", daemon=True)
        self._thread.start()
        try:
            self._run(self._queue.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._run(self._queue.__aexit__())
        finally:
            self._stop()

    def add(
        self, name: str, data: Json = None, opts: Mapping[str, object] | None = None
    ) -> AddedToQueue:
        """Add a job; `opts` has BullMQ's names, as `{"attempts": 3, "delay": 1000}`."""
        return self._run(self._queue.add(name, data, opts))

    def add_many(self, jobs: Sequence[Mapping[str, object]]) -> builtins.list[AddedToQueue]:
        """Add jobs with `name`, `data` and `opts`. More than 1,000 are added in parts."""
        return self._run(self._queue.add_many(jobs))

    def jobs(self, state: str = "waiting", *, first: int = 0, limit: int = 50) -> QueueJobPage:
        """Return a page of the jobs in a state."""
        return self._run(self._queue.jobs(state, first=first, limit=limit))

    def job(self, job_id: str) -> QueueJobInfo:
        """Return a job as it is now."""
        return self._run(self._queue.job(job_id))

    def counts(self) -> dict[str, int]:
        """Return the number of jobs by state."""
        return self._run(self._queue.counts())

    def wait(self, job_id: str, timeout_s: float | None = None) -> QueueJobInfo:
        """Wait until a job has completed or failed; raises TimeoutError."""
        return self._run(self._queue.wait(job_id, timeout_s))

    def logs(self, job_id: str, *, first: int = 0, limit: int = 1000) -> QueueLogs:
        """Return lines of a job's log, the oldest first."""
        return self._run(self._queue.logs(job_id, first=first, limit=limit))

    def children(self, job_id: str) -> Children:
        """Return what became of a job's children, by their keys."""
        return self._run(self._queue.children(job_id))

    def retry(self, job_id: str) -> JobChanged:
        """Run a failed or completed job again."""
        return self._run(self._queue.retry(job_id))

    def promote(self, job_id: str) -> JobChanged:
        """Let a delayed job run as soon as a worker is free."""
        return self._run(self._queue.promote(job_id))

    def change_delay(self, job_id: str, delay_ms: int) -> JobChanged:
        """Let a delayed job wait for another time, counted from now."""
        return self._run(self._queue.change_delay(job_id, delay_ms))

    def change_priority(self, job_id: str, priority: int, *, lifo: bool = False) -> JobChanged:
        """Give a job another priority; one that waits takes its new place at once."""
        return self._run(self._queue.change_priority(job_id, priority, lifo=lifo))

    def update_data(self, job_id: str, data: Json) -> JobChanged:
        """Replace a job's data; a running attempt keeps its own."""
        return self._run(self._queue.update_data(job_id, data))

    def update_progress(self, job_id: str, progress: Json, message: str = "") -> JobChanged:
        """Set a job's progress from outside its worker."""
        return self._run(self._queue.update_progress(job_id, progress, message))

    def add_log(self, job_id: str, line: str, *, keep: int = 0) -> int:
        """Append a line to a job's log; returns how many there are. `keep` 0 keeps all."""
        return self._run(self._queue.add_log(job_id, line, keep=keep))

    def clear_logs(self, job_id: str, *, keep: int = 0) -> None:
        """Drop a job's log, except the newest `keep` lines."""
        return self._run(self._queue.clear_logs(job_id, keep=keep))

    def cancel(self, job_id: str) -> CancelResult:
        """Remove a job that waits; stop one that runs, which then fails as `canceled`."""
        return self._run(self._queue.cancel(job_id))

    def delete(self, job_id: str, *, children: bool = True) -> None:
        """Delete a job with its children; one that runs is canceled."""
        return self._run(self._queue.delete(job_id, children=children))

    def detach(self, job_id: str) -> JobChanged:
        """Let the job's parent not wait for it any more."""
        return self._run(self._queue.detach(job_id))

    def remove_pending_children(self, job_id: str) -> JobChanged:
        """Delete the children that a job waits for and that no worker has."""
        return self._run(self._queue.remove_pending_children(job_id))

    def pause(self) -> bool:
        """Let no worker of any program start another job."""
        return self._run(self._queue.pause())

    def resume(self) -> bool:
        """Let workers start jobs again."""
        return self._run(self._queue.resume())

    def drain(self, *, delayed: bool = False) -> int:
        """Delete all jobs that wait, and the delayed ones if asked; how many."""
        return self._run(self._queue.drain(delayed=delayed))

    def clean(self, state: str = "completed", *, grace_ms: int = 0, limit: int = 0) -> int:
        """Delete the jobs of a state that are older than `grace_ms`; how many."""
        return self._run(self._queue.clean(state, grace_ms=grace_ms, limit=limit))

    def retry_all(self, state: Literal["failed", "completed"] = "failed") -> int:
        """Run all failed jobs again, or all completed ones; how many."""
        return self._run(self._queue.retry_all(state))

    def promote_all(self) -> int:
        """Let all delayed jobs run as soon as workers are free; how many."""
        return self._run(self._queue.promote_all())

    def obliterate(self, *, force: bool = False) -> None:
        """Delete the queue with everything in it; `force`: also while workers run its jobs."""
        return self._run(self._queue.obliterate(force=force))

    def limits(self) -> QueueLimits:
        """Return the concurrency and the rate limit of all workers together."""
        return self._run(self._queue.limits())

    def set_concurrency(self, most: int | None) -> None:
        """Set how many jobs all workers together run at a time; None: any number."""
        return self._run(self._queue.set_concurrency(most))

    def set_rate_limit(self, max_jobs: int | None, per_ms: int = 0) -> None:
        """Set how many jobs all workers together start in `per_ms`; None: any number."""
        return self._run(self._queue.set_rate_limit(max_jobs, per_ms))

    def rate_limit(self, for_ms: int) -> None:
        """Let workers that have a rate limit start nothing for a while; 0 ends it."""
        return self._run(self._queue.rate_limit(for_ms))

    def deduplication_owner(self, dedup_id: str) -> str | None:
        """Return the job that owns a deduplication id."""
        return self._run(self._queue.deduplication_owner(dedup_id))

    def free_deduplication(self, dedup_id: str) -> bool:
        """Let the next job of a deduplication id be added; returns whether the id was owned."""
        return self._run(self._queue.free_deduplication(dedup_id))

    def trim_events(self, keep: int) -> int:
        """Drop the oldest events, except about the newest `keep`; how many."""
        return self._run(self._queue.trim_events(keep))

    def add_flow(self, flow: Mapping[str, object]) -> FlowIds:
        """Add a tree of jobs, all or none: `{"name", "queueName", "data", "opts", "children"}` as
        in BullMQ. A job without `queueName` is of its parent's queue."""
        return self._run(self._queue.add_flow(flow))

    def flow(self, job_id: str, *, depth: int = 10, width: int = 20) -> FlowInfo:
        """Return a job with its parent and the tree of its children."""
        return self._run(self._queue.flow(job_id, depth=depth, width=width))

    def schedulers(self, *, first: int = 0, limit: int = 50) -> SchedulerPage:
        """Return a page of the queue's schedulers with their next runs."""
        return self._run(self._queue.schedulers(first=first, limit=limit))

    def set_scheduler(
        self,
        scheduler_id: str,
        repeat: Mapping[str, object],
        name: str = "",
        data: Json = None,
        opts: Mapping[str, object] | None = None,
    ) -> SchedulerSet:
        """Set a scheduler; `repeat` has BullMQ's names, as `{"every": 60000}` or
        `{"pattern": "0 3 * * *", "tz": "Europe/Berlin"}`."""
        return self._run(self._queue.set_scheduler(scheduler_id, repeat, name, data, opts))

    def remove_scheduler(self, scheduler_id: str) -> None:
        """Remove a scheduler and its delayed job."""
        return self._run(self._queue.remove_scheduler(scheduler_id))

    def events(
        self, job_id: str | None = None, *, after: str | None = None
    ) -> Generator[QueueEventData]:
        """Yield what happens on the queue, from now or after the event with this id; of a job its
        events, until it has ended."""
        events = self._queue.events(job_id, after=after)

        async def following() -> QueueEventData | None:
            return await anext(events, _END)

        try:
            while (event := self._run(following())) is not None:
                yield event
        finally:
            self._run(events.aclose())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise RuntimeError("open the queue first: `with SyncBullQueue(…) as queue:`")
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

    def _stop(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
