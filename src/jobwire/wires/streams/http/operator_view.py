"""The system `jobs` in /v1/overview, /v1/failures and /v1/search (O-11)."""

import asyncio
import re
from collections.abc import Sequence
from typing import Final

from jobwire.gateway.overview import (
    FailureBody,
    FoundBody,
    RunTimeBody,
    SearchPart,
    SystemRowBody,
)
from jobwire.gateway.request import HttpRequest
from jobwire.job.errors import ContractError
from jobwire.job.messages import JobId
from jobwire.valkey import Connection
from jobwire.wires.streams.codec import Record, readable
from jobwire.wires.streams.contract import Counter, Status
from jobwire.wires.streams.depth import depth
from jobwire.wires.streams.failures import failures
from jobwire.wires.streams.http import request_parser
from jobwire.wires.streams.queue import Selection, StreamsQueue
from jobwire.wires.streams.registry import WorkerRegistry
from jobwire.wires.streams.stats import LastHour, MinuteStats, merged_buckets, quantile_ms

SYSTEM: Final = "jobs"
WIRE: Final = "streams"
_FOUND: Final = 20
_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_KEY: Final = re.compile(r"[\x20-\x7e]{1,255}")
_ENDED: Final = (Status.DONE, Status.ERROR, Status.CANCELED)


class StreamsView:
    """Implements `SystemView`."""

    system = SYSTEM

    def __init__(
        self, connection: Connection, queue: StreamsQueue, registry: WorkerRegistry
    ) -> None:
        self._connection = connection
        self._queue = queue
        self._registry = registry
        self._hour = LastHour(connection, queue.keys)

    async def rows(self) -> Sequence[SystemRowBody]:
        names = await self._registry.queue_names()
        now, fleet, minutes = await asyncio.gather(
            depth(self._connection, self._queue.keys, names),
            self._registry.summary(),
            self._hour.read(),
        )
        durations = [merged_buckets(minute.duration for minute in minutes)]
        return [
            SystemRowBody(
                system=SYSTEM,
                name=SYSTEM,
                wire=WIRE,
                waiting=now.waiting,
                delayed=now.delayed,
                running=now.running,
                oldest_waiting_ms=now.oldest_waiting_ms,
                workers=fleet.workers,
                slots=fleet.slots,
                heartbeat_age_ms=fleet.silent_ms,
                submitted=sum(minute.count(Counter.SUBMISSIONS) for minute in minutes),
                done=sum(minute.count(Status.DONE) for minute in minutes),
                error=sum(minute.count(Status.ERROR) for minute in minutes),
                canceled=sum(minute.count(Status.CANCELED) for minute in minutes),
                ended_by_minute=[_ended(minute) for minute in minutes],
                failed_by_minute=[minute.count(Status.ERROR) for minute in minutes],
                duration_ms=RunTimeBody(
                    *(quantile_ms(share, durations) for share in (0.5, 0.9, 0.99))
                ),
            )
        ]

    async def failures(
        self, request: HttpRequest, hours: int, tenant: str | None
    ) -> Sequence[FailureBody]:
        owner = request_parser.listed_tenant(request, tenant)
        return [
            FailureBody(
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
            for kind in await failures(self._connection, self._queue.keys, owner, hours)
        ]

    async def search(self, request: HttpRequest, text: str) -> SearchPart:
        """The job of this id or idempotency key; else the newest jobs with this text."""
        exact = await self._exact(request, text)
        if exact:
            return SearchPart([_found(record) for record in exact], 0, 0)
        owner = request_parser.tenant(request)
        page = await self._queue.page(owner, _FOUND, Selection(text=text))
        return SearchPart([_found(each) for each in page.records], page.scanned, page.total)

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


def _ended(minute: MinuteStats) -> int:
    return sum(minute.count(status) for status in _ENDED)


def _found(record: Record) -> FoundBody:
    return FoundBody(
        system=SYSTEM,
        name=SYSTEM,
        wire=WIRE,
        id=readable(record.job_id),
        task=readable(record.task),
        status=record.status.value,
        created_ts=record.created_ms,
    )
