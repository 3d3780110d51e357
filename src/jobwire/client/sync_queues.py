# Written from aio_queues.py by tools/sync_client.py; change that file instead.
"""`client.queue("mail")`: a BullMQ queue through the gateway."""

import builtins
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from jobwire.api import flows, queue_changes, queue_jobs, queues, schedulers
from jobwire.api.queue_jobs import CancelResult, JobChanged, QueueLogs
from jobwire.client import calls, queue_calls
from jobwire.client.event_cursor import QueueEventCursor
from jobwire.client.messages import (
    AddedToQueue,
    FlowIds,
    FlowInfo,
    QueueEventInfo,
    QueueJobInfo,
    QueueJobPage,
    QueueStatus,
    SchedulerPage,
    SchedulerSet,
)
from jobwire.job.messages import Json

if TYPE_CHECKING:
    from jobwire.client.sync import Client


class Queue:
    """`with Client() as client: client.queue("mail").add("send", {"to": "a"})`."""

    def __init__(self, client: "Client", name: str) -> None:
        self._client = client
        self.name = name

    def status(self) -> QueueStatus:
        """Return the queue as it is now."""
        return self._client.call(queues.GET, self.name)

    def add(
        self, name: str, data: Json = None, opts: Mapping[str, object] | None = None
    ) -> AddedToQueue:
        """Add a job; `opts` has BullMQ's names, as `{"attempts": 3, "delay": 1000}`."""
        job = {"name": name, "data": {} if data is None else data, "opts": dict(opts or {})}
        (added,) = self.add_many([job])
        return added

    def add_many(self, jobs: Sequence[Mapping[str, object]]) -> builtins.list[AddedToQueue]:
        """Add jobs with `name`, `data` and `opts`, all or none."""
        return self._client.execute(queue_calls.add, self.name, jobs)

    def jobs(
        self, state: str = "waiting", *, first: int = 0, limit: int | None = None
    ) -> QueueJobPage:
        """Return a page of the jobs in a state."""
        return self._client.call(queue_jobs.LIST, self.name, state=state, first=first, limit=limit)

    def job(self, job_id: str) -> QueueJobInfo:
        """Return a job as it is now; raises NoSuchJob."""
        return self._client.call(queue_jobs.GET, self.name, job_id)

    def wait(self, job_id: str, timeout_s: float | None = None) -> QueueJobInfo:
        """Wait until a job has completed or failed; raises TimedOut."""
        return self._client.execute(
            calls.wait_until_ended, queue_jobs.GET, self.name, job_id, timeout_s=timeout_s
        )

    def logs(self, job_id: str, *, first: int = 0) -> QueueLogs:
        """Return lines of a job's log, the oldest first."""
        return self._client.call(queue_jobs.LOGS, self.name, job_id, first=first)

    def retry(self, job_id: str) -> JobChanged:
        """Run a failed or completed job again."""
        return self._client.call(queue_jobs.RETRY, self.name, job_id)

    def promote(self, job_id: str) -> JobChanged:
        """Let a delayed job run as soon as a worker is free."""
        return self._client.call(queue_jobs.PROMOTE, self.name, job_id)

    def change_delay(self, job_id: str, delay_ms: int) -> JobChanged:
        """Let a delayed job wait for another time, counted from now."""
        body = queue_changes.DelayRequest(delay=delay_ms)
        return self._client.call(queue_changes.DELAY, self.name, job_id, body=body)

    def change_priority(self, job_id: str, priority: int, *, lifo: bool = False) -> JobChanged:
        """Give a job another priority; one that waits takes its new place at once."""
        body = queue_changes.PriorityRequest(priority=priority, lifo=lifo)
        return self._client.call(queue_changes.PRIORITY, self.name, job_id, body=body)

    def update_data(self, job_id: str, data: Json) -> JobChanged:
        """Replace a job's data; a running attempt keeps its own."""
        return self._client.execute(queue_calls.update_data, self.name, job_id, data)

    def update_progress(self, job_id: str, progress: Json, message: str = "") -> JobChanged:
        """Set a job's progress from outside its worker."""
        return self._client.execute(
            queue_calls.update_progress, self.name, job_id, progress, message
        )

    def add_log(self, job_id: str, line: str, *, keep: int = 0) -> int:
        """Append a line to a job's log; returns how many there are. `keep` 0 keeps all that
        `queues.max_log_lines` allows."""
        return self._client.execute(queue_calls.add_log, self.name, job_id, line, keep)

    def clear_logs(self, job_id: str, *, keep: int = 0) -> None:
        """Drop a job's log, except the newest `keep` lines."""
        self._client.call(queue_changes.CLEAR_LOGS, self.name, job_id, keep=keep)

    def detach(self, job_id: str) -> JobChanged:
        """Let the job's parent not wait for it any more."""
        return self._client.call(queue_changes.DETACH, self.name, job_id)

    def remove_pending_children(self, job_id: str) -> JobChanged:
        """Delete the children that a job waits for and that no worker has."""
        return self._client.call(queue_changes.REMOVE_CHILDREN, self.name, job_id)

    def cancel(self, job_id: str) -> CancelResult:
        """Remove a job that waits; stop one that runs, which then fails as `canceled`."""
        return self._client.call(queue_jobs.CANCEL, self.name, job_id)

    def delete(self, job_id: str) -> None:
        """Delete a job with its children; one that runs is canceled."""
        self._client.execute(queue_calls.delete_job, self.name, job_id)

    def pause(self) -> bool:
        """Let no worker of any program start another job."""
        return (self._client.call(queues.PAUSE, self.name)).paused

    def resume(self) -> bool:
        """Let workers start jobs again."""
        return (self._client.call(queues.RESUME, self.name)).paused

    def drain(self, *, delayed: bool = False) -> int:
        """Delete all jobs that wait, and the delayed ones if asked; how many."""
        body = queues.DrainRequest(delayed=delayed)
        return (self._client.call(queues.DRAIN, self.name, body=body)).count

    def clean(self, state: str = "completed", *, grace_ms: int = 0, limit: int = 0) -> int:
        """Delete the jobs of a state that are older than `grace_ms`; how many."""
        body = queues.CleanRequest(state=state, grace_ms=grace_ms, limit=limit)
        return (self._client.call(queues.CLEAN, self.name, body=body)).count

    def retry_all(self, state: Literal["failed", "completed"] = "failed") -> int:
        """Run all failed jobs again, or all completed ones; how many."""
        body = queues.RetryRequest(state=state)
        return (self._client.call(queues.RETRY_ALL, self.name, body=body)).count

    def promote_all(self) -> int:
        """Let all delayed jobs run as soon as workers are free; how many."""
        return (self._client.call(queues.PROMOTE_ALL, self.name)).count

    def obliterate(self, *, force: bool = False) -> int:
        """Delete the queue with everything in it; how many jobs. `force`: also while workers run
        its jobs."""
        body = queues.ObliterateRequest(force=force)
        return (self._client.call(queues.OBLITERATE, self.name, body=body)).count

    def set_concurrency(self, most: int | None) -> None:
        """Set how many jobs all workers together run at a time; None: any number."""
        body = queue_changes.ConcurrencyRequest(most)
        self._client.call(queue_changes.CONCURRENCY, self.name, body=body)

    def set_rate_limit(self, max_jobs: int | None, per_ms: int = 0) -> None:
        """Set how many jobs all workers together start in `per_ms`; None: any number."""
        body = queue_changes.RateLimitRequest(max_jobs, per_ms)
        self._client.call(queue_changes.RATE_LIMIT, self.name, body=body)

    def rate_limit(self, for_ms: int) -> None:
        """Let workers that have a rate limit start nothing for a while; 0 ends it."""
        body = queue_changes.HoldRequest(for_ms)
        self._client.call(queue_changes.HOLD, self.name, body=body)

    def deduplication_owner(self, dedup_id: str) -> str | None:
        """Return the job that owns a deduplication id."""
        owner = self._client.call(queue_changes.DEDUPLICATION, self.name, id=dedup_id)
        return owner.job_id

    def free_deduplication(self, dedup_id: str) -> bool:
        """Let the next job of a deduplication id be added; returns whether the id was owned."""
        operation = queue_changes.FREE_DEDUPLICATION
        return (self._client.call(operation, self.name, id=dedup_id)).freed

    def trim_events(self, keep: int) -> int:
        """Drop the oldest events, except about the newest `keep`; how many."""
        body = queue_changes.TrimRequest(keep)
        return (self._client.call(queue_changes.TRIM_EVENTS, self.name, body=body)).count

    def add_flow(self, flow: Mapping[str, object]) -> FlowIds:
        """Add a tree of jobs, all or none: `{"name", "queueName", "data", "opts", "children"}` as
        in BullMQ. A job without `queueName` is of its parent's queue."""
        return self._client.execute(queue_calls.add_flow, self.name, flow)

    def flow(self, job_id: str, *, depth: int | None = None, width: int | None = None) -> FlowInfo:
        """Return a job with its parent and the tree of its children."""
        return self._client.call(flows.GET, self.name, job_id, depth=depth, width=width)

    def schedulers(self, *, first: int = 0, limit: int | None = None) -> SchedulerPage:
        """Return a page of the queue's schedulers with their next runs."""
        return self._client.call(schedulers.LIST, self.name, first=first, limit=limit)

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
        body = {"repeat": dict(repeat), "name": name, "data": data, "opts": dict(opts or {})}
        return self._client.execute(queue_calls.set_scheduler, self.name, scheduler_id, body)

    def remove_scheduler(self, scheduler_id: str) -> None:
        """Remove a scheduler and its delayed job; raises NotFound."""
        self._client.call(schedulers.REMOVE, self.name, scheduler_id)

    def events(
        self, job_id: str | None = None, *, after: str | None = None
    ) -> Generator[QueueEventInfo]:
        """Yield what happens on the queue, from now or after the event with this id, over any
        number of lost connections; of a job all its events, until it has ended."""
        cursor = QueueEventCursor(after, of_job=job_id is not None)
        if job_id is None:
            return self._client.follow(queues.FOLLOW.url(self.name), cursor)
        return self._client.follow(queue_jobs.FOLLOW.url(self.name, job_id), cursor)
