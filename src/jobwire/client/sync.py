"""The client for programs without an event loop. Safe to share between threads."""

import builtins
import contextlib
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Self, TypeVar, Unpack

import httpx

from jobwire.client import calls, http
from jobwire.client.calls import ApiRequest, Plan, Reply
from jobwire.client.errors import ApiError, ClientError, Unreachable, from_answer
from jobwire.client.event_cursor import EventCursor
from jobwire.client.messages import (
    CancelAnswer,
    Event,
    Job,
    JobOptions,
    JobPage,
    NewJob,
    Stats,
    TaskInfo,
    TaskList,
    WorkerInfo,
    WorkerList,
)
from jobwire.client.retry_budget import RetryBudget
from jobwire.client.target import find
from jobwire.job.ids import random_fraction
from jobwire.job.messages import Json

T = TypeVar("T")


class Client:
    """Submits jobs and watches them: `with Client() as jobs: …`.

    Without an address it finds the program by itself: JOBWIRE_URL and JOBWIRE_API_KEY, else what
    `jobwire up` wrote into its data dir. Trouble that may pass (a gateway that restarts, a lost
    connection) is borne for `patience_s`; nothing is done twice because of it.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        data_dir: Path | str | None = None,
        patience_s: float = 30.0,
    ) -> None:
        self._place = find(url, api_key, data_dir)
        self.patience_s = patience_s
        """How long trouble that may pass is borne."""
        self._http = httpx.Client(**http.options(self._place))

    @property
    def url(self) -> str:
        """The program it talks to."""
        return self._place.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all connections."""
        self._http.close()

    # ── making jobs ──────────────────────────────────────────────────────────────────────────────

    def submit(self, task: str, payload: object = None, **wishes: Unpack[JobOptions]) -> Job:
        """Make a job, once: safe against lost answers even without a key of your own."""
        return self.execute(calls.submit(NewJob(task, payload, **wishes), self._patience()))

    def run(
        self,
        task: str,
        payload: object = None,
        *,
        wait_s: float | None = None,
        **wishes: Unpack[JobOptions],
    ) -> Json:
        """Submit and wait: the job's result. JobFailed, JobCanceled or TimedOut otherwise."""
        new = NewJob(task, payload, **wishes)
        return self.execute(calls.run(new, self._patience(), wait_s))

    def batch(self, jobs: Sequence[NewJob]) -> builtins.list[str | ApiError]:
        """Make many jobs in few round trips; for each its id, or why there is none."""
        return self.execute(calls.batch(jobs, self._patience()))

    def retry(self, job_id: str) -> Job:
        """Make a new job like one that failed or was canceled."""
        return self.execute(calls.retry(job_id, self._patience()))

    # ── watching them ────────────────────────────────────────────────────────────────────────────

    def get(self, job_id: str) -> Job:
        """The job as it stands."""
        return self.execute(calls.get(job_id, self._patience()))

    def wait(self, job_id: str, timeout_s: float | None = None) -> Job:
        """The job when it has ended, however it did; TimedOut where it does not in time."""
        return self.execute(calls.wait(job_id, self._patience(), timeout_s))

    def list(
        self,
        *,
        status: str | None = None,
        task: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> JobPage:
        """A page of jobs, newest first; its `cursor` leads to the next."""
        wanted = calls.ListFilter(status, task, limit, cursor)
        return self.execute(calls.listing(wanted, self._patience()))

    def tasks(self) -> builtins.list[TaskInfo]:
        """Everything that can be asked for."""
        plan = calls.asked("/v1/tasks", TaskList, self._patience())
        return (self.execute(plan)).tasks

    def task(self, name: str) -> TaskInfo | None:
        """One of them, or None where nobody has it."""
        return next((task for task in self.tasks() if task.name == name), None)

    def workers(self) -> builtins.list[WorkerInfo]:
        """Everybody who takes jobs, and what each runs."""
        plan = calls.asked("/v1/workers", WorkerList, self._patience())
        return (self.execute(plan)).workers

    def stats(self) -> Stats:
        """How much there is to do, and how the last hour went."""
        return self.execute(calls.asked("/v1/stats", Stats, self._patience()))

    def cancel(self, job_id: str) -> CancelAnswer:
        """Ask for the end of a job; AlreadyFinished where it has ended by itself."""
        return self.execute(calls.cancel(job_id, self._patience()))

    def events(self, job_id: str, after: str | None = None) -> Generator[Event]:
        """Everything that happens to a job, from its beginning (or after the event of that id) to
        its end; each event once and in order, over any number of lost connections."""
        following = EventCursor(after)
        patience = RetryBudget(self.patience_s)
        while not following.over:
            heard, began_s = following.heard, time.monotonic()
            try:
                with contextlib.closing(self._connection(job_id, following)) as events:
                    yield from events
                trouble = Unreachable(f"{self.url} ended the stream of events")
            except ClientError as error:
                trouble = error
            if following.over:
                return
            if following.greeted:
                lasted_s = time.monotonic() - began_s
                patience.answered(well=following.heard > heard or lasted_s > http.LASTING_S)
            pause_s = patience.pause_s(trouble, time.monotonic(), random_fraction())
            if pause_s is None:
                raise trouble
            time.sleep(pause_s)

    def _connection(self, job_id: str, following: EventCursor) -> Generator[Event]:
        """The events of one connection, until it ends."""
        headers = http.stream_headers(following.last_id)
        path = f"{calls.job_path(job_id)}/events"
        try:
            with self._http.stream(
                "GET", path, headers=headers, timeout=http.STREAM_TIMEOUT
            ) as response:
                if response.status_code == 204:
                    following.seen_all()
                    return
                if response.status_code != 200:
                    body, after_s = response.read(), http.retry_after_s(response)
                    raise from_answer(response.status_code, body, after_s)
                following.connected()
                for chunk in response.iter_bytes():
                    yield from following.feed(chunk)
                    if following.over:
                        return
                following.closed()
        except httpx.HTTPError as error:
            raise http.as_trouble(error, self.url) from None

    # ── the way there ────────────────────────────────────────────────────────────────────────────

    def _patience(self) -> RetryBudget:
        return RetryBudget(self.patience_s)

    def execute(self, plan: Plan[T]) -> T:
        """Do what a plan says."""
        reply: Reply = None
        while True:
            try:
                step = plan.send(reply)
            except StopIteration as done:
                return done.value
            reply = self._ask(step) if isinstance(step, ApiRequest) else time.sleep(step.seconds)

    def _ask(self, ask: ApiRequest) -> Reply:
        try:
            response = self._http.request(
                ask.method,
                ask.path,
                content=ask.body,
                headers={**http.trace_headers(), **ask.headers},
                timeout=http.answer_timeout(ask),
            )
        except httpx.HTTPError as error:
            return http.as_trouble(error, self.url)
        return http.as_answer(response)
