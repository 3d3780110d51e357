"""What a tenant may add to its queues through a gateway (J-57).

Jobs of a queue have no lifetime, so nothing tells when their bytes are free again. The gateway
remembers the jobs that it added for each tenant; at the limit it asks the server, oldest first,
which of them are left. Each gateway counts for itself, and jobs of other programs are not counted.
"""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from jobwire.api.jobs import QUEUE_FULL
from jobwire.gateway.problems import Problem, retry_after
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.submissions import FULL_RETRY_S, SubmissionLimits
from jobwire.systems.queues.contract import BullState, Keys
from jobwire.systems.queues.http.access import QueueAccess
from jobwire.systems.queues.queue import NewBullJob, QueueProducer

_OVERHEAD: Final = 1024
"""Bytes of a job beside its data."""
_FRESH_S: Final = 1.0
_RECOUNT_S: Final = 0.2
_RECOUNTED: Final = 10_000
"""Jobs that one recount asks for."""
_OPEN: Final = (
    BullState.WAITING,
    BullState.PRIORITIZED,
    BullState.DELAYED,
    BullState.ACTIVE,
    BullState.WAITING_CHILDREN,
)


class StoredJob(NamedTuple):
    """A job that this gateway added."""

    queue: str
    job_id: str
    size: int


@dataclass(slots=True)
class _Tenant:
    """What is known of one tenant; at most one for each tenant of the settings."""

    stored: deque[StoredJob] = field(default_factory=deque[StoredJob])
    size: int = 0
    """Bytes of `stored`, and of jobs that are being added."""
    open: int = 0
    open_read_s: float = -1.0
    recounted_s: float = -1.0


class Reservation:
    """The bytes of jobs that are being added; use it as a context manager."""

    def __init__(self, tenant: _Tenant, size: int) -> None:
        self._tenant = tenant
        self._size = size

    def keep(self, jobs: Iterable[StoredJob]) -> None:
        """These jobs were made."""
        for job in jobs:
            self._tenant.stored.append(job)
            self._size -= job.size

    def __enter__(self) -> "Reservation":
        return self

    def __exit__(self, *_: object) -> None:
        self._tenant.size -= self._size


class TenantLimits:
    """The limits of one gateway; those per tenant hold if `max_open` and `max_bytes` are not 0."""

    def __init__(
        self,
        access: QueueAccess,
        limits: SubmissionLimits,
        max_open: int,
        max_bytes: Callable[[], int],
    ) -> None:
        self._access = access
        self._limits = limits
        self._max_open = max_open
        self._max_bytes = max_bytes
        self._tenants: defaultdict[str, _Tenant] = defaultdict(_Tenant)

    async def admit(
        self, request: HttpRequest, queue: str, jobs: Sequence[NewBullJob]
    ) -> Reservation:
        """Admit new jobs to a queue of the caller, or raise a Problem."""
        await self._limits.admit(request, len(jobs))
        owner = self._access.tenant_of.get(queue, request.principal.tenant)
        tenant = self._tenants[owner]
        if self._max_open:
            await self._check_open(tenant, owner, queue, len(jobs))
        size, max_bytes = sum(map(size_of, jobs)), self._max_bytes()
        if not max_bytes:
            return Reservation(_Tenant(), 0)
        if tenant.size + size > max_bytes:
            await self._recount(tenant)
        if tenant.size + size > max_bytes:
            raise _full(
                f"the jobs of your tenant have {tenant.size} bytes, which is near the limit"
            )
        tenant.size += size
        return Reservation(tenant, size)

    async def _check_open(self, tenant: _Tenant, owner: str, queue: str, more: int) -> None:
        now_s = time.monotonic()
        if now_s - tenant.open_read_s > _FRESH_S:
            tenant.open_read_s = now_s
            own = [name for name, each in self._access.tenant_of.items() if each == owner]
            access = self._access
            tenant.open = 0
            for name in dict.fromkeys((*own, queue)):
                counts = await QueueProducer(access.connection, name, access.settings).counts()
                tenant.open += sum(counts[state] for state in _OPEN)
        if tenant.open + more > self._max_open:
            raise _full(
                f"your tenant has {tenant.open} open jobs in its queues, and may have "
                f"{self._max_open}"
            )
        tenant.open += more

    async def _recount(self, tenant: _Tenant) -> None:
        """Forget jobs that the server no longer has."""
        now_s = time.monotonic()
        if now_s - tenant.recounted_s < _RECOUNT_S:
            return
        tenant.recounted_s = now_s
        stored = tenant.stored
        asked = [stored.popleft() for _ in range(min(len(stored), _RECOUNTED))]
        prefix, call = self._access.settings.prefix, self._access.connection.call
        replies = [call("EXISTS", Keys(job.queue, prefix).job(job.job_id)) for job in asked]
        found = await asyncio.gather(*replies, return_exceptions=True)
        for job, answer in zip(asked, found, strict=True):
            if answer == 0:
                tenant.size -= job.size
            else:
                stored.append(job)  # also where the server did not answer


def size_of(job: NewBullJob) -> int:
    """The bytes that a job counts."""
    return len(job.data_json) + _OVERHEAD


def _full(detail: str) -> Problem:
    return Problem(QUEUE_FULL, detail, headers=retry_after(FULL_RETRY_S))
