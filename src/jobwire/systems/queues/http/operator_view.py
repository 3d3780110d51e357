"""The system `queues` in /v1/overview, /v1/failures, /v1/search, /v1/workers, /v1/stats (O-11).

A caller sees the queues of its tenant, and with `admin` those without a tenant (B-18). What the
wire itself knows is shown: its own counts of ended jobs, ended jobs that are still stored, the
names of its workers' sockets. Nothing is written.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from typing import Final, NamedTuple, cast

from jobwire.api.fleet import Now, WorkerInfo, WorkerSlot
from jobwire.gateway import tenants
from jobwire.gateway.all_systems import audience
from jobwire.gateway.cached_value import CachedValue
from jobwire.gateway.failure_kinds import FailureKinds
from jobwire.gateway.minute_counts import MinuteCounts, SystemStats
from jobwire.gateway.operator_view import (
    QUIET_HOUR,
    FailurePart,
    RowPart,
    SearchPart,
    SystemRow,
    row_body,
)
from jobwire.gateway.request import HttpRequest
from jobwire.job.errors import BackendUnavailable
from jobwire.systems.queues.announcement import SeenWorker, list_workers
from jobwire.systems.queues.busiest_queues import SHOWN, BusiestQueues, QueueHour
from jobwire.systems.queues.clock import system_now_ms
from jobwire.systems.queues.codec import readable
from jobwire.systems.queues.contract import CANCELED, Keys
from jobwire.systems.queues.http.access import QueueAccess
from jobwire.systems.queues.http.search import find_jobs
from jobwire.systems.queues.replies import raises_unavailable
from jobwire.systems.queues.scripts import run_read
from jobwire.valkey import Arg, Reply

SYSTEM: Final = "queues"
WIRE: Final = "bullmq"
_FRESH_S: Final = 1.0
_FRESH_MANY_S: Final = 4.0
"""The same where there are more queues than are shown."""
_WORKERS_FRESH_S: Final = 5.0
_MAX_FAILED: Final = 1_000
"""Failed jobs that one request looks at, over all queues."""
_MIN_FAILED: Final = 20
"""The same of one queue, however many queues there are."""
_MAX_ACTIVE: Final = 20
"""Running jobs of one queue that are shown with their workers."""
_CODE: Final = re.compile(r"([A-Za-z_][\w.]{0,60}(?:Error|Exception))(?::\s*|$)")
_WORKER_ID: Final = re.compile(r"(.+)-(\d{1,10})-[0-9a-f]{8}")
"""The extra field `workerId` of our workers: host, pid, random."""


class QueuesView:
    """Implements `OperatorView`."""

    system = SYSTEM
    wire = WIRE

    def __init__(self, access: QueueAccess) -> None:
        self._access = access
        self._connection = access.connection
        self._prefix = access.settings.prefix
        # For each tenant of the settings, with and without `admin`, for few and for many queues.
        self._busiest: dict[
            tuple[str, bool, bool], tuple[BusiestQueues, CachedValue[_Reading]]
        ] = {}
        self._clients: CachedValue[Sequence[SeenWorker] | None] = CachedValue(_WORKERS_FRESH_S)

    async def rows(self, request: HttpRequest) -> RowPart:
        return (await self._read(request)).part

    async def stats(self, request: HttpRequest) -> Sequence[SystemStats]:
        return (await self._read(request)).stats

    async def _read(self, request: HttpRequest) -> "_Reading":
        self._check_connected()
        names = self._access.names(request)
        many = len(names) > SHOWN
        seen_by = (*audience(request), many)
        if seen_by not in self._busiest:
            fresh_s = _FRESH_MANY_S if many else _FRESH_S
            self._busiest[seen_by] = (
                BusiestQueues(self._connection, self._prefix),
                CachedValue(fresh_s),
            )
        busiest, cached = self._busiest[seen_by]

        async def read() -> _Reading:
            with raises_unavailable():
                (hours, left_out), clients = await asyncio.gather(busiest.read(names), self._seen())
            return _reading(self, hours, left_out, clients)

        return await cached.get(read)

    def _check_connected(self) -> None:
        """Without a connection a call would wait for one; a page does not."""
        if not self._connection.connected:
            raise BackendUnavailable("the queue server does not answer")

    async def _seen(self) -> Sequence[SeenWorker] | None:
        """The workers of all queues, as the server's list of clients has them."""

        async def read() -> Sequence[SeenWorker] | None:
            names = {*self._access.known_queues.names, *self._access.tenant_of}
            return await list_workers(self._connection, self._prefix, names)

        return await self._clients.get(read)

    async def failures(self, request: HttpRequest, hours: int, tenant: str | None) -> FailurePart:
        self._check_connected()
        names = self._access.names(request)
        if tenant is not None:
            owner = tenants.listed_tenant(request, tenant, "failures")
            names = [name for name in names if self._access.tenant_of.get(name) == owner]
        kinds = FailureKinds(self, hours, system_now_ms())
        with raises_unavailable():
            counts = await self._counted(names, kinds.since_ms)
        most = max(_MIN_FAILED, _MAX_FAILED // len(counts)) if counts else 0
        scanned = 0
        # The queues with the most failures, where there are more than one request looks at.
        for name, _ in counts.most_common(_MAX_FAILED // _MIN_FAILED):
            with raises_unavailable():
                reply = await self._run("failures", name, kinds.since_ms, most)
            _, jobs = cast("tuple[int, list[list[str]]]", reply)
            scanned += len(jobs)
            for job_id, at_ms, task, reason, worker, raised in jobs:
                code, message = _kind(readable(reason), raised)
                task, worker = readable(task), readable(worker)
                kinds.add(name, task, code, message, int(at_ms), readable(job_id), worker)
        return FailurePart(kinds.bodies(), scanned, counts.total())

    async def _counted(self, names: Sequence[str], since_ms: int) -> "Counter[str]":
        """The failed jobs that each queue still has, without queues that have none."""
        calls = [
            self._connection.call("ZCOUNT", Keys(name, self._prefix).failed, since_ms, "+inf")
            for name in names
        ]
        replies = cast("list[int]", await asyncio.gather(*calls))
        return Counter({name: n for name, n in zip(names, replies, strict=True) if n})

    async def search(self, request: HttpRequest, text: str) -> SearchPart:
        self._check_connected()
        names = self._access.names(request)
        with raises_unavailable():
            return await find_jobs(self._connection, self._prefix, names, text)

    async def workers(self, request: HttpRequest) -> Sequence[WorkerInfo]:
        """The sockets of workers, and what our workers run."""
        self._check_connected()
        names = self._access.names(request)
        reading = await self._read(request)
        active = [row.name for row in reading.part.rows if row.running]
        with raises_unavailable():
            clients = await self._seen()
            running = await asyncio.gather(*map(self._active, active))
        visible = set(names)
        now_ms = system_now_ms()
        shown = [_worker(each, now_ms) for each in clients or () if each.queue in visible]
        jobs = [job for found in running for job in found]
        processes = _by_process(jobs)
        return [*processes, *_without(_with_jobs(shown, jobs), processes)]

    async def _active(self, name: str) -> list["_Running"]:
        reply = await self._run("active", name, _MAX_ACTIVE)
        return [
            _Running(
                readable(worker),
                WorkerSlot(readable(job_id), readable(task), int(since), WIRE, name),
            )
            for job_id, task, since, worker in cast("list[list[str]]", reply)
        ]

    def _run(self, verb: str, name: str, *args: Arg) -> Awaitable[Reply]:
        keys = Keys(name, self._prefix)
        return run_read(verb, self._connection, keys, system_now_ms(), *args)


class _Running(NamedTuple):
    """A job that runs, with the name or id of its worker."""

    worker: str
    slot: WorkerSlot


class _Reading(NamedTuple):
    """One reading of the queues, as rows and as statistics."""

    part: RowPart
    stats: Sequence[SystemStats]


def _reading(
    view: QueuesView,
    hours: Sequence[QueueHour],
    left_out: int,
    clients: Iterable[SeenWorker] | None,
) -> _Reading:
    by_queue = None if clients is None else Counter(each.queue for each in clients)
    all_stats = [_stats(hour) for hour in hours]
    rows: list[SystemRow] = []
    for hour, stats in zip(hours, all_stats, strict=True):
        # A worker that is not announced cannot be seen, unless by what it runs.
        workers = None if by_queue is None else by_queue[hour.name]
        rows.append(
            row_body(
                view,
                readable(hour.name),
                *stats,
                workers=None if not workers and hour.active else workers,
                # A worker is seen by its open socket.
                heartbeat_age_ms=0 if workers else None,
                paused=hour.paused,
            )
        )
    return _Reading(RowPart(rows, left_out), all_stats)


def _stats(hour: QueueHour) -> SystemStats:
    minutes = [
        MinuteCounts(done=each.completed, error=each.failed, duration=each.duration)
        for each in hour.minutes
    ]
    now = Now(hour.waiting, hour.delayed, hour.active, hour.oldest_waiting_ms)
    return SystemStats(now, minutes or QUIET_HOUR)


def _kind(reason: str, raised: str) -> tuple[str, str]:
    """The type of the exception, which the reason may begin with, and the message."""
    if reason == CANCELED:
        return CANCELED, ""
    found = _CODE.match(reason)
    return (found[1], reason[found.end() :]) if found else (raised, reason)


def _worker(seen: SeenWorker, now_ms: int) -> WorkerInfo:
    return WorkerInfo(
        name=readable(seen.name or seen.address),
        system=SYSTEM,
        wire=WIRE,
        ours=seen.ours,
        host=seen.address.rpartition(":")[0] or None,
        started_ts=now_ms - seen.age_s * 1000,
        heartbeat_age_ms=0,
        running=[],
        queues=[readable(seen.queue)],
    )


def _with_jobs(workers: list[WorkerInfo], jobs: Iterable[_Running]) -> list[WorkerInfo]:
    """A worker whose program has named it gets the jobs that it runs."""
    named = {(each.name, queue): each for each in workers for queue in each.queues}
    for job in jobs:
        worker = named.get((job.worker, job.slot.queue))
        if worker is not None:
            worker.running.append(job.slot)
    return workers


def _without(sockets: Iterable[WorkerInfo], processes: Iterable[WorkerInfo]) -> list[WorkerInfo]:
    """The sockets that do not belong to these processes: each has one for each of its queues."""
    known = Counter(queue for each in processes for queue in each.queues)
    left: list[WorkerInfo] = []
    for socket in sockets:
        (queue,) = socket.queues
        if socket.ours and known[queue]:
            known[queue] -= 1
        else:
            left.append(socket)
    return left


def _by_process(jobs: Iterable[_Running]) -> list[WorkerInfo]:
    """Our processes, by the jobs that they run."""
    found: dict[str, WorkerInfo] = {}
    for job in jobs:
        process = _WORKER_ID.fullmatch(job.worker)
        if process is None:
            continue
        worker = found.setdefault(
            job.worker,
            WorkerInfo(
                name=job.worker,
                system=SYSTEM,
                wire=WIRE,
                ours=True,
                host=process[1],
                pid=int(process[2]),
                heartbeat_age_ms=0,
                running=[],
                queues=[],
            ),
        )
        worker.running.append(job.slot)
        if job.slot.queue not in worker.queues:
            worker.queues.append(job.slot.queue)
    return list(found.values())
