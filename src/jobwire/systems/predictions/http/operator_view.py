"""The system `predictions` in /v1/overview, /v1/failures, /v1/search, /v1/workers, /v1/stats.

All tasks belong to the bot's tenant (P-32): other tenants see no row. The bucket is the database,
so everything comes from bounded listings of it, at most `FRESH_S` old.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from jobwire.api.fleet import Now, WorkerInfo
from jobwire.gateway import tenants
from jobwire.gateway.cached_value import CachedValue
from jobwire.gateway.failure_kinds import FailureKinds
from jobwire.gateway.minute_counts import MINUTES, MinuteCounts, SystemStats
from jobwire.gateway.operator_view import FailurePart, FoundJob, RowPart, SearchPart, row_body
from jobwire.gateway.request import HttpRequest
from jobwire.job.clock import Clock, SystemClock
from jobwire.objects import Bucket, Missing
from jobwire.systems.predictions.contract import (
    FAILED,
    PROCESSING,
    SUCCEEDED,
    TaskErrorCode,
    is_prediction_id,
)
from jobwire.systems.predictions.http.errors import bucket_errors
from jobwire.systems.predictions.listing import TaskView, find_task
from jobwire.systems.predictions.overview import ListedTask, PredictionsOverviewReader, TaskOverview
from jobwire.systems.predictions.records import Records
from jobwire.systems.predictions.task_names import TaskNamesReader
from jobwire.systems.predictions.telegram.poller import read_lease

SYSTEM: Final = "predictions"
FRESH_S: Final = 5.0
_MAX_FOUND: Final = 20


class PredictionsView:
    """Implements `OperatorView`."""

    system = SYSTEM
    wire = SYSTEM

    def __init__(
        self,
        bucket: Bucket,
        records: Records,
        names: TaskNamesReader,
        tenant: str,
        clock: Clock | None = None,
    ) -> None:
        self._bucket = bucket
        self._records = records
        self._tenant = tenant
        self._clock = clock or SystemClock()
        self._reader = PredictionsOverviewReader(names, records)
        self._snapshot: CachedValue[TaskOverview] = CachedValue(FRESH_S)

    async def rows(self, request: HttpRequest) -> RowPart:
        stats = await self.stats(request)
        return RowPart([row_body(self, SYSTEM, *each) for each in stats])

    async def stats(self, request: HttpRequest) -> Sequence[SystemStats]:
        if not tenants.may_see(request, self._tenant):
            return []
        snapshot, now_ms = await self._read(), self._clock.now_ms()
        return [SystemStats(_now(snapshot, now_ms), _minutes(snapshot.tasks, now_ms))]

    async def _read(self) -> TaskOverview:
        with bucket_errors():
            return await self._snapshot.get(self._reader.read)

    async def failures(self, request: HttpRequest, hours: int, tenant: str | None) -> FailurePart:
        owner = tenants.listed_tenant(request, tenant, "failures") if tenant else self._tenant
        if owner != self._tenant or not tenants.may_see(request, owner):
            return FailurePart([], 0, 0)
        snapshot = await self._read()
        kinds = FailureKinds(self, hours, self._clock.now_ms())
        failed = [each for each in snapshot.tasks if each.view.status == FAILED]
        for view, written_at in failed:
            code = view.error or TaskErrorCode.PROVIDER_FAILED
            kinds.add(SYSTEM, SYSTEM, code, "", _ended_ms(view, written_at), view.id, "")
        bodies = kinds.bodies()
        count = sum(kind.count for kind in bodies)
        return FailurePart(bodies, count, count)

    async def search(self, request: HttpRequest, text: str) -> SearchPart:
        """The task of this prediction id or task id; else the newest ones with this text."""
        if not tenants.may_see(request, self._tenant):
            return SearchPart([], 0, 0)
        with bucket_errors():
            exact = await find_task(self._records, text) if is_prediction_id(text) else None
        if exact is not None:
            return SearchPart([self._found(exact)], 0, 0)
        snapshot = await self._read()
        views = [each.view for each in snapshot.tasks]
        found = [each for each in views if text in each.id or text == str(each.chat_id)]
        return SearchPart(
            [self._found(each) for each in found[:_MAX_FOUND]], len(views), snapshot.total
        )

    async def workers(self, request: HttpRequest) -> Sequence[WorkerInfo]:
        """The process that polls for updates: the only one that registers itself."""
        if not tenants.may_see(request, self._tenant):
            return []
        with bucket_errors():
            found, lease = await read_lease(self._bucket)
        now_ms = self._clock.now_ms()
        if isinstance(found, Missing) or lease.until_ms < now_ms:
            return []
        return [
            WorkerInfo(
                name=lease.poller,
                system=SYSTEM,
                wire=self.wire,
                ours=True,
                handlers=["updates"],
                heartbeat_age_ms=max(0, now_ms - _ms(found.modified_at)),
            )
        ]

    def _found(self, view: TaskView) -> FoundJob:
        return FoundJob(
            system=SYSTEM,
            name=SYSTEM,
            wire=self.wire,
            id=view.id,
            task=view.model or SYSTEM,
            status=view.status,
            created_ts=_time_ms(view.created_at) or 0,
        )


def _now(snapshot: TaskOverview, now_ms: int) -> Now:
    running = [each for each in snapshot.open if each.view and each.view.status == PROCESSING]
    waiting = [each for each in snapshot.open if not each.view or each.view.status != PROCESSING]
    ages = [max(0, now_ms - _ms(each.opened_at)) for each in waiting]
    return Now(snapshot.open_count - len(running), 0, len(running), max(ages, default=None))


def _minutes(tasks: Sequence[ListedTask], now_ms: int) -> list[MinuteCounts]:
    first = now_ms // 60_000 - MINUTES + 1
    counts = [[0, 0, 0] for _ in range(MINUTES)]
    for view, written_at in tasks:
        created_ms = _time_ms(view.created_at)
        if created_ms is not None and created_ms // 60_000 >= first:
            counts[min(created_ms // 60_000 - first, MINUTES - 1)][0] += 1
        if view.status not in (SUCCEEDED, FAILED):
            continue
        ended = _ended_ms(view, written_at) // 60_000 - first
        if ended >= 0:
            counts[min(ended, MINUTES - 1)][1 if view.status == SUCCEEDED else 2] += 1
    return [MinuteCounts(made, done, failed) for made, done, failed in counts]


def _ended_ms(view: TaskView, written_at: datetime) -> int:
    return _time_ms(view.updated_at) or _ms(written_at)


def _time_ms(moment: str | None) -> int | None:
    """A time of a task object, which another program may have written."""
    try:
        return _ms(datetime.fromisoformat(moment)) if moment else None
    except (ValueError, OverflowError):
        return None


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
