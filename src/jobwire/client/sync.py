# Written from aio.py by tools/sync_client.py; change that file instead.
"""`Client`: submits jobs and watches them, through a gateway."""

import builtins
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, Unpack, overload

import httpx

from jobwire.api import bulk, fleet, job_queues, jobs, overview, predictions, queues
from jobwire.api.fleet import CronInfo, CronPause, Stats, TaskInfo, WorkerInfo
from jobwire.api.operation import Operation
from jobwire.api.overview import FailureInfo, Overview, Search
from jobwire.client import calls, http
from jobwire.client.calls import ApiRequest, Plan, Reply
from jobwire.client.errors import ApiError, Unreachable, from_response
from jobwire.client.event_cursor import EventCursor, JobEventCursor
from jobwire.client.messages import (
    BulkAnswer,
    CancelAnswer,
    Event,
    Job,
    JobOptions,
    JobPage,
    JobQueueInfo,
    NewJob,
    PauseAnswer,
    PredictionInfo,
    PredictionPage,
    PurgeAnswer,
    QueueSummary,
    SignalAnswer,
    StepAnswer,
)
from jobwire.client.retry_budget import RetryBudget
from jobwire.client.sync_images import Images
from jobwire.client.sync_queues import Queue
from jobwire.client.target import find
from jobwire.task import HasTask

A = ParamSpec("A")
E = TypeVar("E")
P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class Client:
    """Submits jobs and watches them: `with Client() as jobs: …`.

    Without an address it uses JOBWIRE_URL and JOBWIRE_API_KEY, else the endpoints file that
    `jobwire up` wrote into its data dir. Temporary errors (a gateway that restarts, a lost
    connection) are retried for `patience_s`; retries never create a second job.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        data_dir: Path | str | None = None,
        patience_s: float = 30.0,
    ) -> None:
        self._target = find(url, api_key, data_dir)
        self.patience_s = patience_s
        """How long temporary errors are retried."""
        self._http = httpx.Client(**http.options(self._target))
        self.images = Images(self)
        """Photos: upload, follow, read, delete."""

    @property
    def url(self) -> str:
        """The address of the gateway."""
        return self._target.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    # ── create jobs ──────────────────────────────────────────────────────────────────────────────

    @overload
    def submit(self, task: HasTask[P, Any], payload: P, **options: Unpack[JobOptions]) -> Job: ...
    @overload
    def submit(self, task: str, payload: object = None, **options: Unpack[JobOptions]) -> Job: ...
    def submit(
        self,
        task: HasTask[Any, Any] | str,
        payload: object = None,
        **options: Unpack[JobOptions],
    ) -> Job:
        """Create one job of a task, given by its name, its `Task` or its handler's function; a
        lost response creates no second one, even without your own key."""
        new = NewJob(calls.task_name(task), payload, **options)
        return self.execute(calls.submit, new)

    @overload
    def run(
        self,
        task: HasTask[P, R],
        payload: P,
        *,
        wait_s: float | None = None,
        **options: Unpack[JobOptions],
    ) -> R: ...
    @overload
    def run(
        self,
        task: str,
        payload: object = None,
        *,
        wait_s: float | None = None,
        **options: Unpack[JobOptions],
    ) -> Any: ...
    def run(
        self,
        task: HasTask[Any, Any] | str,
        payload: object = None,
        *,
        wait_s: float | None = None,
        **options: Unpack[JobOptions],
    ) -> Any:
        """Submit, wait and return the result, of the task's own type if it is given as `Task` or
        function; raises JobFailed, JobCanceled or TimedOut."""
        new = NewJob(calls.task_name(task), payload, **options)
        result = self.execute(calls.run, new, wait_s)
        return calls.typed_result(task, result)

    def batch(self, jobs: Sequence[NewJob]) -> builtins.list[str | ApiError]:
        """Create many jobs in few round trips; returns for each its id or its error."""
        return self.execute(calls.batch, jobs)

    def retry(self, job_id: str, *, keep_steps: bool = False) -> Job:
        """Create a new job like one that failed or was canceled."""
        return self.execute(calls.retry, job_id, keep_steps)

    def retry_many(
        self,
        task: str,
        *,
        code: str | None = None,
        since_ms: int | None = None,
        dry_run: bool = False,
        limit: int = bulk.MAX_BULK,
        cursor: str | None = None,
    ) -> BulkAnswer:
        """Retry the failed jobs of a task, or those with an error code, that failed at `since_ms`
        or later; each one once. At most 1,000 at a time: with the answer's `cursor` the next call
        goes on."""
        which = bulk.BulkRetry(
            task, code=code, since=since_ms, dry_run=dry_run, limit=limit, cursor=cursor
        )
        return self.call(bulk.RETRY_MANY, body=which)

    # ── follow jobs ──────────────────────────────────────────────────────────────────────────────

    def get(self, job_id: str) -> Job:
        """Return the job as it is now."""
        return self.call(jobs.GET, job_id)

    def step(self, job_id: str, name: str) -> StepAnswer:
        """Return a recorded step of the job with its result; raises NotFound."""
        return self.call(jobs.STEP, job_id, name)

    def signal(self, job_id: str, name: str, value: object = None) -> SignalAnswer:
        """Send a signal to a job that waits for it, or will; a signal has one value. Raises
        AlreadySignaled if it has another one, AlreadyFinished if the job has ended."""
        return self.call(jobs.SIGNAL, job_id, name, body=value)

    def wait(self, job_id: str, timeout_s: float | None = None) -> Job:
        """Wait until the job has ended in any way; raises TimedOut."""
        return self.execute(calls.wait, job_id, timeout_s)

    def list(
        self,
        *,
        status: str | None = None,
        task: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> JobPage:
        """Return a page of jobs, newest first; its `cursor` is for the next page."""
        return self.call(jobs.LIST, status=status, task=task, limit=limit, cursor=cursor)

    def tasks(self) -> builtins.list[TaskInfo]:
        """Return all known tasks."""
        return (self.call(fleet.TASKS)).tasks

    def task(self, name: str) -> TaskInfo | None:
        """Return one task, or None if it is unknown."""
        return next((task for task in self.tasks() if task.name == name), None)

    def crons(self) -> builtins.list[CronInfo]:
        """Return the cron entries of the workers, with their last and next runs."""
        return (self.call(fleet.CRONS)).crons

    def run_cron(self, name: str) -> Job:
        """Run a cron entry now, besides its due times; returns the job."""
        return self.execute(calls.run_cron, name)

    def pause_cron(self, name: str) -> CronPause:
        """Let the due times of a cron entry pass without a job, in the whole fleet."""
        return self.call(fleet.PAUSE_CRON, name)

    def resume_cron(self, name: str) -> CronPause:
        """Let a paused cron entry run again, from its next due time on."""
        return self.call(fleet.RESUME_CRON, name)

    def workers(
        self, *, system: str | None = None, wire: str | None = None
    ) -> builtins.list[WorkerInfo]:
        """Return the live workers of all systems, or of one, and their running jobs."""
        answer = self.call(fleet.WORKERS, system=system or None, wire=wire or None)
        return answer.workers

    def predictions(self, *, limit: int = 20, after: str = "") -> PredictionPage:
        """Return a page of the photo bot's tasks, in the order of their ids."""
        return self.call(predictions.LIST, limit=limit, after=after or None)

    def prediction(self, prediction_id: str) -> PredictionInfo:
        """Return one task of the photo bot; raises ApiError if there is none."""
        return self.call(predictions.GET, prediction_id)

    def stats(self, *, system: str | None = None, wire: str | None = None) -> Stats:
        """Return the counts of all systems, or of one, and the last hour by minute."""
        return self.call(fleet.STATS, system=system or None, wire=wire or None)

    def overview(self) -> Overview:
        """Return each system, and each of the busiest queues, now and in the last hour."""
        return self.call(overview.OVERVIEW)

    def queue(self, name: str) -> Queue:
        """A BullMQ queue, to add jobs to and to administer."""
        return Queue(self, name)

    def bullmq_queues(self) -> builtins.list[QueueSummary]:
        """Return the BullMQ queues of the gateway."""
        return (self.call(queues.LIST)).queues

    def failures(self, *, hours: int = 24) -> builtins.list[FailureInfo]:
        """Return the failed jobs of the last hours (at most 24), grouped by kind."""
        return (self.call(overview.FAILURES, hours=hours)).failures

    def search(self, text: str) -> Search:
        """Find jobs by id, by idempotency key, or by a part of the id or task."""
        return self.call(overview.SEARCH, q=text)

    def queues(self) -> builtins.list[JobQueueInfo]:
        """Return the queues of jobs, the default one first."""
        return (self.call(job_queues.LIST)).queues

    def pause_queue(self, name: str) -> PauseAnswer:
        """Let workers start no job of a queue; running jobs continue, and new ones wait."""
        return self.call(job_queues.PAUSE, name)

    def resume_queue(self, name: str) -> PauseAnswer:
        """Let workers start the jobs of a queue again."""
        return self.call(job_queues.RESUME, name)

    def purge_queue(self, name: str, *, suspended: bool = False) -> PurgeAnswer:
        """Cancel all jobs of a queue that wait or are delayed, and the suspended ones if asked."""
        chosen = "true" if suspended else "false"
        return self.call(job_queues.PURGE, name, suspended=chosen)

    def cancel(self, job_id: str) -> CancelAnswer:
        """Cancel a job; raises AlreadyFinished if it has ended."""
        return self.execute(calls.cancel, job_id)

    def cancel_many(
        self,
        task: str,
        *,
        running: bool = False,
        since_ms: int | None = None,
        dry_run: bool = False,
        limit: int = bulk.MAX_BULK,
        cursor: str | None = None,
    ) -> BulkAnswer:
        """Cancel the jobs of a task that wait, or ask the workers of those that run to stop them;
        only those that were submitted at `since_ms` or later. At most 1,000 at a time: with the
        answer's `cursor` the next call goes on."""
        which = bulk.BulkCancel(
            task,
            status="running" if running else "queued",
            since=since_ms,
            dry_run=dry_run,
            limit=limit,
            cursor=cursor,
        )
        return self.call(bulk.CANCEL_MANY, body=which)

    def events(
        self, job_id: str, after: str | None = None, *, view: Literal["clean", "plain"] = "clean"
    ) -> Generator[Event]:
        """Yield the events of a job, from the first (or after the event with this id) to the last;
        each once and in order, over any number of lost connections. If the job begins anew, a
        `rollback` takes back what it reported before (`Event.takes_back`); the plain view has every
        event of every run instead."""
        return self.follow(f"{jobs.EVENTS.url(job_id)}?view={view}", JobEventCursor(after))

    # ── requests ─────────────────────────────────────────────────────────────────────────────────

    def call(
        self, operation: Operation[T], *places: str, body: object = None, **query: object
    ) -> T:
        """Call an operation of `jobwire.api`: the values of its path, its body, its query."""
        return self.execute(calls.call, operation, *places, body=body, **query)

    def execute(
        self,
        method: Callable[Concatenate[RetryBudget, A], Plan[T]],
        *args: A.args,
        **kwargs: A.kwargs,
    ) -> T:
        """Run the plan of a method: send its requests, sleep its pauses, return its result."""
        plan = method(RetryBudget(self.patience_s), *args, **kwargs)
        reply: Reply = None
        while True:
            try:
                step = plan.send(reply)
            except StopIteration as done:
                return done.value
            if isinstance(step, ApiRequest):
                reply = self._send(step)
            else:
                reply = time.sleep(step.seconds)

    def _send(self, request: ApiRequest) -> Reply:
        try:
            response = self._http.request(
                request.method,
                request.path,
                content=request.body,
                headers={**http.trace_headers(), **request.headers},
                timeout=http.request_timeout(request),
            )
        except httpx.HTTPError as error:
            return http.as_unreachable(error, self.url)
        return http.as_response(response)

    def follow(self, path: str, cursor: EventCursor[E]) -> Generator[E]:
        """Yield the events of a stream, over any number of lost connections."""
        budget = RetryBudget(self.patience_s)
        while not cursor.finished:
            began_s = time.monotonic()
            cursor.connecting()
            try:
                with self._http.stream(
                    "GET",
                    path,
                    headers=http.stream_headers(cursor.last_id),
                    timeout=http.STREAM_TIMEOUT,
                ) as response:
                    if response.status_code == 204:  # `last_id` is the last event
                        return
                    if response.status_code == 200:
                        for chunk in response.iter_bytes():
                            for event in cursor.feed(chunk):
                                yield event
                            if cursor.finished:
                                return
                        cursor.closed()
                        failure = Unreachable(f"{self.url} ended the stream of events")
                    else:
                        body, after_s = response.read(), http.retry_after_s(response)
                        failure = from_response(response.status_code, body, after_s)
            except httpx.HTTPError as error:
                failure = http.as_unreachable(error, self.url)
            if not cursor.finished:
                time.sleep(http.reconnect_pause_s(cursor, budget, failure, began_s))
