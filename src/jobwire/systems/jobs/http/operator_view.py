"""The system `jobs` in /v1/overview, /v1/failures, /v1/search, /v1/workers and /v1/stats (O-11).

Every key with the scope `read` sees all workers and all counts; a slot that runs a job of another
tenant is shown without the job.
"""

import re
from collections.abc import Sequence
from typing import Final, TypeVar

from jobwire.api.fleet import (
    MissingRequirementInfo,
    Now,
    ServedQueueInfo,
    WorkerInfo,
    WorkerSlot,
)
from jobwire.api.job_queues import JobQueueInfo
from jobwire.api.overview import FailureInfo, FoundJob
from jobwire.gateway.cached_value import CachedValue
from jobwire.gateway.minute_counts import MinuteCounts, SystemStats
from jobwire.gateway.operator_view import (
    FailurePart,
    HourTotals,
    PartialAnswer,
    RowPart,
    SearchPart,
    row_body,
)
from jobwire.gateway.request import HttpRequest
from jobwire.job.errors import ContractError
from jobwire.job.messages import JobId
from jobwire.systems.jobs.any_shards import AnyQueue, AnyReader, silent_text
from jobwire.systems.jobs.codec import Record, readable
from jobwire.systems.jobs.contract import Counter, Status
from jobwire.systems.jobs.depth import Depth
from jobwire.systems.jobs.http import request_parser
from jobwire.systems.jobs.overview import JobsOverview, QueueRow
from jobwire.systems.jobs.queue import Selection
from jobwire.systems.jobs.registry import RegisteredWorker, RunningJob, WorkerRegistry
from jobwire.systems.jobs.stats import MinuteStats

T = TypeVar("T")
SYSTEM: Final = "jobs"
WIRE: Final = "streams"
_FOUND: Final = 20
_MAX_QUEUES: Final = 50
"""Of one row."""
_NAMES_FRESH_S: Final = 5.0
"""How old the names of the queues of an overview may be."""
_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_KEY: Final = re.compile(r"[\x20-\x7e]{1,255}")


class StreamsView:
    """Implements `OperatorView`."""

    system = SYSTEM
    wire = WIRE

    def __init__(self, reader: AnyReader, queue: AnyQueue, registry: WorkerRegistry) -> None:
        self._reader = reader
        self._queue = queue
        self._registry = registry
        self._names: CachedValue[list[str]] = CachedValue(_NAMES_FRESH_S)
        self._ended: tuple[MinuteStats, MinuteStats, HourTotals] | None = None

    async def rows(self, request: HttpRequest) -> RowPart:  # noqa: ARG002 - all see the counts
        names = await self._names.get(self._registry.queue_names)
        now = await self._reader.overview(names)
        row = row_body(
            self,
            SYSTEM,
            _now(now),
            self._totals(now.minutes[:-1]) + HourTotals([_counts(now.minutes[-1])]),
            workers=now.fleet.workers,
            slots=now.fleet.slots,
            heartbeat_age_ms=now.fleet.heartbeat_age_ms,
            paused=now.paused,
            queues=[_queue(queue) for queue in _most_urgent(now.queues)],
        )
        return _complete(RowPart([row], max(0, len(now.queues) - _MAX_QUEUES)), now.incomplete)

    def _totals(self, ended: Sequence[MinuteStats]) -> HourTotals:
        """Those of the minutes that have ended: the same objects until the next one ends."""
        first, last = ended[0], ended[-1]
        known = self._ended
        if known is None or known[0] is not first or known[1] is not last:
            known = self._ended = (first, last, HourTotals(list(map(_counts, ended))))
        return known[2]

    async def stats(
        self,
        request: HttpRequest,  # noqa: ARG002 - all see the counts
    ) -> Sequence[SystemStats]:
        names = await self._registry.queue_names()
        now = await self._reader.depth(names)
        minutes, incomplete = await self._reader.last_hour()
        stats = [SystemStats(_now(now), [_counts(minute) for minute in minutes])]
        return _complete(stats, (*now.incomplete, *incomplete))

    async def workers(self, request: HttpRequest) -> Sequence[WorkerInfo]:
        return [_worker(worker, request) for worker in await self._registry.workers()]

    async def failures(self, request: HttpRequest, hours: int, tenant: str | None) -> FailurePart:
        owner = request_parser.listed_tenant(request, tenant)
        found = await self._reader.failures(owner, hours)
        kinds = [
            FailureInfo(
                system=SYSTEM,
                name=SYSTEM,
                wire=WIRE,
                task=kind.task,
                code=kind.code,
                message=kind.message,
                count=kind.count,
                first_ts=kind.first_ms,
                last_ts=kind.last_ms,
                by_hour=kind.by_hour,
                sample_job_id=kind.sample,
                worker=kind.worker or None,
            )
            for kind in found.kinds
        ]
        # Counted when they fail, so all of them are known.
        count = sum(kind.count for kind in kinds)
        return _complete(FailurePart(kinds, count, count), found.incomplete)

    async def search(self, request: HttpRequest, text: str) -> SearchPart:
        """The job of this id or idempotency key; else the newest jobs with this text."""
        exact = await self._exact(request, text)
        if exact:
            return SearchPart([_found(record) for record in exact], 0, 0)
        owner = request_parser.tenant(request)
        page = await self._queue.page(owner, _FOUND, Selection(text=text))
        part = SearchPart([_found(each) for each in page.records], page.scanned, page.total)
        return _complete(part, page.incomplete)

    async def _exact(self, request: HttpRequest, text: str) -> list[Record]:
        ids = [text] if _ID.fullmatch(text) else []
        if _KEY.fullmatch(text):
            of_key = await self._queue.job_of_key(request_parser.tenant(request), text)
            ids += [of_key] if of_key and _ID.fullmatch(of_key) else []
        found: list[Record] = []
        for job_id in dict.fromkeys(ids):
            try:
                record = await self._queue.record(JobId(job_id))
            except ContractError:
                continue  # another program has written an invalid job
            if record is not None and request_parser.may_see(request, record.tenant):
                found.append(record)
        return found


def _complete(part: T, silent: tuple[int, ...]) -> T:
    """The part; raised as incomplete if shards did not answer."""
    if silent:
        raise PartialAnswer(part, silent_text(silent))
    return part


def _most_urgent(queues: Sequence[QueueRow]) -> Sequence[QueueRow]:
    """As many as a row has, in their order: those without a worker before those with jobs."""

    def urgency(at: int) -> tuple[bool, int]:
        found, paused, workers = queues[at]
        return bool(found.waiting and not workers and not paused), found.waiting + found.running

    if len(queues) <= _MAX_QUEUES:
        return queues
    chosen = sorted(range(len(queues)), key=urgency, reverse=True)[:_MAX_QUEUES]
    return [queues[at] for at in sorted(chosen)]


def _queue(row: QueueRow) -> JobQueueInfo:
    found = row.depth
    return JobQueueInfo(
        name=found.name,
        paused=row.paused,
        waiting=found.waiting,
        running=found.running,
        oldest_waiting_ms=found.oldest_waiting_ms,
        workers=row.workers,
    )


def _now(now: Depth | JobsOverview) -> Now:
    return Now(now.waiting, now.delayed, now.running, now.oldest_waiting_ms, now.suspended)


def _counts(minute: MinuteStats) -> MinuteCounts:
    count = minute.counts.get
    return MinuteCounts(
        count(Counter.SUBMISSIONS, 0),
        count(Status.DONE, 0),
        count(Status.ERROR, 0),
        count(Status.CANCELED, 0),
        count(Counter.RETRIED, 0),
        minute.latency,
        minute.duration,
    )


def _worker(seen: RegisteredWorker, request: HttpRequest) -> WorkerInfo:
    return WorkerInfo(
        name=seen.name,
        system=SYSTEM,
        wire=WIRE,
        ours=seen.ours,
        host=seen.host or None,
        pid=seen.pid,
        version=seen.version or None,
        slots=seen.slots,
        handlers=list(seen.tasks),
        serves=[ServedQueueInfo(wire, queue, list(tasks)) for wire, queue, tasks in seen.serves],
        started_ts=seen.started_ms,
        heartbeat_age_ms=seen.heartbeat_age_ms,
        running=[_slot(job, request) for job in seen.running],
        lacks=[MissingRequirementInfo(*missing) for missing in seen.missing_requirements],
        queues=list(seen.queues),
    )


def _slot(job: RunningJob, request: HttpRequest) -> WorkerSlot:
    if not request_parser.may_see(request, job.tenant):
        return WorkerSlot(None, None, job.since_ms)
    return WorkerSlot(job.job_id, job.task, job.since_ms)


def _found(record: Record) -> FoundJob:
    return FoundJob(
        system=SYSTEM,
        name=SYSTEM,
        wire=WIRE,
        id=readable(record.job_id),
        task=readable(record.task),
        status=record.status.value,
        created_ts=record.created_ms,
    )
