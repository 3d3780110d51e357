"""The methods of queues as plans of requests and pauses, and their messages. Pure."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from jobwire.client.calls import (
    MAX_WAIT_S,
    ApiRequest,
    Plan,
    encode_payload,
    fetch,
    prefer,
    read,
    send,
)
from jobwire.client.errors import BadAnswer, TimedOut, Unreachable
from jobwire.client.retry_budget import RetryBudget
from jobwire.client.sse import Frame

QUEUES: Final = "/v1/queues"
_ENDED: Final = frozenset({"completed", "failed"})
_LAST_EVENTS: Final = frozenset({"completed", "failed", "removed"})


class QueueStatus(Struct, frozen=True, kw_only=True):
    """A queue now."""

    name: str
    tenant: str | None = None
    paused: bool = False
    counts: dict[str, int] = {}
    """Jobs by state."""
    oldest_waiting_ms: int | None = None
    workers: int | None = None
    stalled: int = 0
    schedulers: int = 0
    concurrency: int | None = None
    rate_limit: dict[str, int] | None = None


class QueueStatusList(Struct, frozen=True):
    """The response of `/v1/queues`."""

    queues: list[QueueStatus]


class AddedToQueue(Struct, frozen=True):
    """What became of a job: `added`, or `duplicate` or `deduplicated` with the existing job."""

    id: str
    outcome: str


class AddedToQueueList(Struct, frozen=True):
    """The response of adding jobs."""

    jobs: list[AddedToQueue]


class QueueJobInfo(Struct, frozen=True, kw_only=True):
    """A job of a queue. Times are milliseconds since 1970."""

    id: str
    queue: str
    name: str
    state: str
    data: Any = None
    opts: dict[str, Any] = {}
    progress: Any = None
    returnvalue: Any = None
    failed_reason: str | None = None
    stacktrace: list[str] = []
    attempts_made: int = 0
    attempts_started: int = 0
    stalled: int = 0
    priority: int = 0
    delay: int = 0
    timestamp: int = 0
    processed_on: int | None = None
    finished_on: int | None = None
    processed_by: str | None = None
    parent_key: str | None = None
    scheduler: str | None = None
    deduplication_id: str | None = None
    problem: str | None = None

    @property
    def ended(self) -> bool:
        return self.state in _ENDED


class QueueJobPage(Struct, frozen=True):
    """A page of jobs; `next` is the `first` of the next one."""

    jobs: list[QueueJobInfo]
    total: int
    next: int | None = None


class QueueLogPage(Struct, frozen=True):
    """Lines of a job's log, the oldest first."""

    lines: list[str]
    total: int


class QueueEventInfo(Struct, frozen=True, kw_only=True):
    """Something that happened on a queue; `gap`: events may be missing."""

    event: str
    job_id: str | None = None
    ts: int = 0
    fields: dict[str, Any] = {}
    id: str | None = None

    @property
    def ends_job(self) -> bool:
        return self.event in _LAST_EVENTS


class CancelResult(Struct, frozen=True):
    """What a cancel did: `canceled`, `requested` or `requested_foreign`."""

    id: str
    outcome: str


class QueueJobChange(Struct, frozen=True):
    """The state of a job after a change."""

    id: str
    state: str


class AffectedJobs(Struct, frozen=True):
    count: int


class PausedState(Struct, frozen=True):
    paused: bool


class _Options(Struct, rename={"job_id": "jobId"}):
    """The part of a job's options that is used."""

    job_id: str = ""

    @classmethod
    def read(cls, opts: object) -> "_Options":
        try:
            return msgspec.convert(opts or {}, cls)
        except msgspec.ValidationError:
            return cls()  # the gateway refuses them


def queue_path(queue: str) -> str:
    """The path of a queue; the name is quoted, so it cannot change the path."""
    return f"{QUEUES}/{quote(queue, safe='')}"


def job_path(queue: str, job_id: str) -> str:
    """The path of a job of a queue."""
    return f"{queue_path(queue)}/jobs/{quote(job_id, safe='')}"


def add(
    queue: str, jobs: Sequence[Mapping[str, object]], budget: RetryBudget
) -> Plan[list[AddedToQueue]]:
    """Add jobs, all or none. A request whose response is lost is repeated only if all jobs have
    ids: it could add the others twice."""
    encoded = [{**job, "data": encode_payload(job.get("data"))} for job in jobs]
    body = msgspec.json.encode({"jobs": encoded})
    request = ApiRequest("POST", f"{queue_path(queue)}/jobs", body)
    named = all(_Options.read(job.get("opts")).job_id for job in jobs)
    response = yield from send(request, budget if named else RetryBudget(0.0))
    return read(response, AddedToQueueList).jobs


def list_jobs(
    queue: str, state: str, first: int, limit: int | None, budget: RetryBudget
) -> Plan[QueueJobPage]:
    """A page of the jobs in a state."""
    query = {"state": state, "first": first} | ({} if limit is None else {"limit": limit})
    return fetch(f"{queue_path(queue)}/jobs?{urlencode(query)}", QueueJobPage, budget)


def get(
    queue: str, job_id: str, budget: RetryBudget, wait_s: float | None = None
) -> Plan[QueueJobInfo]:
    """The job now, or when it has ended or `wait_s` have passed."""
    headers = {"Prefer": prefer(wait_s)} if wait_s else {}
    held_s = min(wait_s or 0.0, MAX_WAIT_S)
    request = ApiRequest("GET", job_path(queue, job_id), None, headers, wait_s=held_s)
    return read((yield from send(request, budget)), QueueJobInfo)


def wait(
    queue: str, job_id: str, budget: RetryBudget, timeout_s: float | None
) -> Plan[QueueJobInfo]:
    """Wait until the job has ended; raises TimedOut."""
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left_s = MAX_WAIT_S if deadline_s is None else deadline_s - time.monotonic()
        job = yield from get(queue, job_id, budget, max(0.0, min(left_s, MAX_WAIT_S)))
        if job.ended:
            return job
        if deadline_s is not None and timeout_s is not None and time.monotonic() >= deadline_s:
            raise TimedOut(job_id, timeout_s)


def change(queue: str, job_id: str, verb: str, budget: RetryBudget) -> Plan[QueueJobChange]:
    """`retry` or `promote` one job."""
    request = ApiRequest("POST", f"{job_path(queue, job_id)}/{verb}")
    return read((yield from send(request, budget)), QueueJobChange)


def cancel(queue: str, job_id: str, budget: RetryBudget) -> Plan[CancelResult]:
    """Remove a job that waits; stop one that runs."""
    request = ApiRequest("POST", f"{job_path(queue, job_id)}/cancel")
    return read((yield from send(request, budget)), CancelResult)


def delete(queue: str, job_id: str, budget: RetryBudget) -> Plan[None]:
    """Delete a job; one that runs is canceled."""
    yield from send(ApiRequest("DELETE", job_path(queue, job_id)), budget)


def set_paused(queue: str, verb: str, budget: RetryBudget) -> Plan[bool]:
    """`pause` or `resume`; whether the queue is paused."""
    request = ApiRequest("POST", f"{queue_path(queue)}/{verb}")
    return read((yield from send(request, budget)), PausedState).paused


def affect(queue: str, verb: str, body: object, budget: RetryBudget) -> Plan[int]:
    """`drain`, `clean`, `retry` or `promote` many jobs; how many."""
    encoded = None if body is None else msgspec.json.encode(body)
    request = ApiRequest("POST", f"{queue_path(queue)}/{verb}", encoded)
    return read((yield from send(request, budget)), AffectedJobs).count


class QueueEventCursor:
    """The events of a queue or of a job over any number of connections. Pure."""

    def __init__(self, queue: str, job_id: str | None, after: str | None) -> None:
        base = queue_path(queue) if job_id is None else job_path(queue, job_id)
        self.path = f"{base}/events"
        self.last_id = after
        self.ended = False
        """Do not connect again."""
        self.greeted = False
        self._of_job = job_id is not None
        self._job_ended = False

    def feed(self, frames: Iterable[Frame]) -> list[QueueEventInfo]:
        """The events of received frames."""
        events: list[QueueEventInfo] = []
        for frame in frames:
            if frame.event == "hello":
                self.greeted = True
                self._job_ended = self._of_job and _state(frame) in _ENDED
            elif frame.event == "gap":
                events.append(QueueEventInfo(event="gap"))
            else:
                event = _event(frame)
                self.last_id = event.id or self.last_id
                events.append(event)
                self._job_ended = self._job_ended or (self._of_job and event.ends_job)
        return events

    def closed(self, url: str) -> Unreachable:
        """The gateway closed the stream: at the end of a job, or because it stops."""
        self.ended = self._job_ended
        return Unreachable(f"{url} ended the stream of events")


def _event(frame: Frame) -> QueueEventInfo:
    try:
        event = msgspec.json.decode(frame.data, type=QueueEventInfo)
    except msgspec.MsgspecError as error:
        raise BadAnswer(f"an event that cannot be read ({error}): is this jobwire?") from None
    return msgspec.structs.replace(event, id=frame.id)


def _state(frame: Frame) -> str:
    try:
        hello = msgspec.json.decode(frame.data, type=dict[str, str])
    except msgspec.MsgspecError:
        return ""
    return hello.get("state", "")
