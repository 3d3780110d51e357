"""The system `images` in /v1/overview, /v1/failures, /v1/search, /v1/workers, /v1/stats (O-11).

A caller sees the images of its tenant. Records have what was announced and how it ended; the status
on the server is the place of an image that has not ended: its upload not received yet (`delayed`),
waiting for the pipeline (`waiting`), or in a stage of it (`running`).
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, cast

from jobwire.api.fleet import Now, WorkerInfo
from jobwire.gateway import tenants
from jobwire.gateway.cached_value import CachedValue
from jobwire.gateway.failure_kinds import FailureKinds
from jobwire.gateway.minute_counts import MINUTES, MinuteCounts, SystemStats
from jobwire.gateway.operator_view import (
    FailurePart,
    FoundJob,
    RowPart,
    SearchPart,
    row_body,
)
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.settings import ALL_TENANTS
from jobwire.job.errors import BackendUnavailable
from jobwire.systems.images.contract import (
    IMAGE_ID,
    ImageErrorCode,
    ImageKeys,
    Stage,
    StatusField,
    now_utc,
)
from jobwire.systems.images.records import (
    CREATED,
    ImageRecord,
    ImageRecords,
    MinuteCount,
    RecordStatus,
)
from jobwire.valkey import Connection, ServerError, ValkeyError

SYSTEM: Final = "images"
_FRESH_S: Final = 3.0
_MAX_OPEN: Final = 100
"""Open images whose stage is read; further ones count as waiting."""
_MAX_FAILED: Final = 1_000
_MAX_FOUND: Final = 20
_SCANNED: Final = 500
"""Images whose name is compared with a text."""
_CONSUMER: Final = re.compile(r"jobwire-(.+)-(\d{1,10})-\d{1,2}")
"""The name of a result consumer: host, pid, number."""
_GONE_MS: Final = 60_000
"""A consumer's name outlives its process; a live one reads every few seconds."""


class _Reading(NamedTuple):
    stats: SystemStats
    part: RowPart


class ImagesView:
    """Implements `OperatorView`."""

    system = SYSTEM
    wire = SYSTEM

    def __init__(
        self, records: ImageRecords, connection: Connection, keys: ImageKeys, group: str
    ) -> None:
        self._records = records
        self._connection = connection
        self._keys = keys
        self._group = group
        self._readings: dict[str, CachedValue[_Reading]] = {}

    async def rows(self, request: HttpRequest) -> RowPart:
        return (await self._reading(request)).part

    async def stats(self, request: HttpRequest) -> Sequence[SystemStats]:
        return [(await self._reading(request)).stats]

    async def _reading(self, request: HttpRequest) -> _Reading:
        tenant = request.principal.tenant
        cached = self._readings.get(tenant)
        if cached is None:
            cached = self._readings[tenant] = CachedValue(_FRESH_S)
        return await cached.get(lambda: self._read(_owner(tenant)))

    async def _read(self, owner: str | None) -> _Reading:
        if not self._connection.connected:
            raise BackendUnavailable("Valkey does not answer")
        now = now_utc()
        first = int(now.timestamp()) // 60 - MINUTES + 1
        since = datetime.fromtimestamp(first * 60, UTC)
        counts, oldest, total = await self._records.last_hour(
            tenant=owner, since=since, limit=_MAX_OPEN
        )
        open_now = await self._open_now(oldest, total, now)
        stats = SystemStats(open_now, _minutes(counts, first))
        return _Reading(stats, RowPart([row_body(self, SYSTEM, *stats)]))

    async def _open_now(self, oldest: Sequence[ImageRecord], total: int, now: datetime) -> Now:
        call, keys = self._connection.call, self._keys
        stages = [call("HGET", keys.status(each.image_id), StatusField.STAGE) for each in oldest]
        claims = [call("EXISTS", keys.upload(each.image_id)) for each in oldest]
        try:
            found = await asyncio.gather(*stages, *claims)
        except ValkeyError as error:
            raise _away(error) from error
        uploading = [
            (record, stage)
            for record, stage, claimed in zip(
                oldest, found[: len(oldest)], found[len(oldest) :], strict=True
            )
            if claimed or stage not in (None, Stage.QUEUED)
        ]
        waiting = [record for record, stage in uploading if stage in (None, Stage.QUEUED)]
        age = now - waiting[0].created_at if waiting else None
        return Now(
            len(waiting) + total - len(oldest),
            len(oldest) - len(uploading),
            len(uploading) - len(waiting),
            None if age is None else max(0, round(age / timedelta(milliseconds=1))),
        )

    async def failures(self, request: HttpRequest, hours: int, tenant: str | None) -> FailurePart:
        owner = _owner(request.principal.tenant)
        if tenant is not None:
            owner = tenants.listed_tenant(request, tenant, "failures")
        kinds = FailureKinds(self, hours, _ms(now_utc()))
        since = datetime.fromtimestamp(kinds.since_ms / 1000, UTC)
        found, total = await self._records.failed(tenant=owner, since=since, limit=_MAX_FAILED)
        for record in found:
            kinds.add(
                SYSTEM,
                SYSTEM,
                record.error_code or ImageErrorCode.INTERNAL,
                record.error_message or "",
                _ms(record.ended_at or record.updated_at),
                record.image_id,
                "",
            )
        return FailurePart(kinds.bodies(), len(found), total)

    async def search(self, request: HttpRequest, text: str) -> SearchPart:
        """The image of this id; else the newest images with this text in id or file name."""
        owner = _owner(request.principal.tenant)
        exact = await self._records.get(text) if IMAGE_ID.fullmatch(text) else None
        if (
            exact is not None
            and exact.status is not RecordStatus.DELETED
            and owner in (None, exact.tenant)
        ):
            return SearchPart([self._found(exact)], 0, 0)
        newest = await self._records.page(tenant=owner, limit=_SCANNED)
        part = text.casefold()
        found = [
            self._found(each)
            for each in newest
            if part in each.image_id or part in each.filename.casefold()
        ]
        return SearchPart(found[:_MAX_FOUND], len(newest), len(newest))

    async def workers(
        self,
        request: HttpRequest,  # noqa: ARG002 - all see the workers, as those of jobs
    ) -> Sequence[WorkerInfo]:
        """The processes that read results: without them no image becomes ready. The processes of
        the photo pipeline do not register themselves."""
        try:
            reply = await self._connection.call(
                "XINFO", "CONSUMERS", self._keys.result, self._group
            )
        except ServerError:
            return []  # there is no stream yet
        except ValkeyError as error:
            raise _away(error) from error
        by_process: dict[tuple[str, str], WorkerInfo] = {}
        for consumer in cast("list[Mapping[str, str | int]]", reply):
            named = _CONSUMER.fullmatch(str(consumer["name"]))
            if named is None:
                continue
            host, pid = named.groups()
            idle_ms = int(consumer["idle"])
            known = by_process.get((host, pid))
            if idle_ms < _GONE_MS and (known is None or idle_ms < known.heartbeat_age_ms):
                by_process[host, pid] = self._worker(host, int(pid), idle_ms)
        return list(by_process.values())

    def _worker(self, host: str, pid: int, idle_ms: int) -> WorkerInfo:
        return WorkerInfo(
            name=f"{host}-{pid}",
            system=SYSTEM,
            wire=self.wire,
            ours=True,
            host=host,
            pid=pid,
            handlers=["results"],
            heartbeat_age_ms=idle_ms,
            queues=[self._keys.result],
        )

    def _found(self, record: ImageRecord) -> FoundJob:
        return FoundJob(
            system=SYSTEM,
            name=SYSTEM,
            wire=self.wire,
            id=record.image_id,
            task=record.filename,
            status=str(record.status),
            created_ts=_ms(record.created_at),
        )


def _owner(tenant: str) -> str | None:
    """None: all tenants."""
    return None if tenant == ALL_TENANTS else tenant


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _away(error: ValkeyError) -> BackendUnavailable:
    return BackendUnavailable("Valkey does not answer", detail=str(error))


def _minutes(counts: Sequence[MinuteCount], first: int) -> list[MinuteCounts]:
    by_kind: dict[tuple[str, int], int] = {(kind, at - first): n for kind, at, n in counts}
    return [
        MinuteCounts(
            by_kind.get((CREATED, at), 0),
            by_kind.get((RecordStatus.READY, at), 0),
            by_kind.get((RecordStatus.FAILED, at), 0),
        )
        for at in range(MINUTES)
    ]
