"""What a tenant may add to its queues through a gateway (J-57).

Jobs of a queue have no lifetime, so nothing tells when their bytes are free again. The gateway
remembers the jobs that it added for each tenant; at the limit it asks the server, oldest first,
which of them are left. Each gateway counts for itself, and jobs of other programs are not counted.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Literal, NamedTuple

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


Part = Literal["data", "progress", "logs"]
"""What a job may get after it was added."""
_Part = tuple[str, str, Part | None]
"""Queue, job and part; None is the job as it was added."""


@dataclass(slots=True)
class _Tenant:
    """What is known of one tenant; at most one for each tenant of the settings."""

    stored: dict[_Part, int] = field(default_factory=dict[_Part, int])
    """Bytes by part, the oldest first."""
    size: int = 0
    """Bytes of `stored`, and of jobs that are being added."""
    open: int = 0
    open_read_s: float = -1.0
    recounted_s: float = -1.0

    def put(self, part: _Part, size: int) -> None:
        """Count a part anew."""
        self.size += size - self.stored.pop(part, 0)
        self.stored[part] = size

    def drop(self, part: _Part) -> None:
        """Count a part no more."""
        self.size -= self.stored.pop(part, 0)


class Reservation:
    """The bytes of jobs that are being added; use it as a context manager."""

    def __init__(self, tenant: _Tenant, size: int) -> None:
        self._tenant = tenant
        self._size = size

    def keep(self, jobs: Iterable[StoredJob]) -> None:
        """These jobs were made."""
        for job in jobs:
            self._tenant.put((job.queue, job.job_id, None), job.size)
            self._tenant.size -= job.size  # which the reservation has counted
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
        await self._check_bytes(tenant, size, max_bytes)
        tenant.size += size
        return Reservation(tenant, size)

    async def replace(
        self, request: HttpRequest, queue: str, job_id: str, part: Part, size: int
    ) -> None:
        """Admit a new value of a part of a job, or raise a Problem."""
        await self._put(request, (queue, job_id, part), lambda _: size + _OVERHEAD)

    async def extend(
        self, request: HttpRequest, queue: str, job_id: str, part: Part, size: int
    ) -> None:
        """Admit more bytes of a part of a job, or raise a Problem."""
        await self._put(request, (queue, job_id, part), lambda old: (old or _OVERHEAD) + size)

    def drop(self, request: HttpRequest, queue: str, job_id: str, part: Part) -> None:
        """A part of a job is deleted."""
        self._of(request, queue).drop((queue, job_id, part))

    async def _put(
        self, request: HttpRequest, part: _Part, size_after: Callable[[int], int]
    ) -> None:
        tenant, max_bytes = self._of(request, part[0]), self._max_bytes()
        if not max_bytes:
            return
        before = tenant.stored.get(part, 0)
        if (more := size_after(before) - before) > 0:
            await self._check_bytes(tenant, more, max_bytes)
        tenant.put(part, size_after(tenant.stored.get(part, 0)))

    def _of(self, request: HttpRequest, queue: str) -> _Tenant:
        return self._tenants[self._access.tenant_of.get(queue, request.principal.tenant)]

    async def _check_bytes(self, tenant: _Tenant, more: int, max_bytes: int) -> None:
        if tenant.size + more > max_bytes:
            await self._recount(tenant)
        if tenant.size + more > max_bytes:
            raise _full(
                f"the jobs of your tenant have {tenant.size} bytes, which is near the limit"
            )

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
        asked = list(islice(tenant.stored, _RECOUNTED))
        prefix, call = self._access.settings.prefix, self._access.connection.call
        replies = [call("EXISTS", Keys(queue, prefix).job(job_id)) for queue, job_id, _ in asked]
        found = await asyncio.gather(*replies, return_exceptions=True)
        for part, answer in zip(asked, found, strict=True):
            if answer == 0:
                tenant.drop(part)
            elif part in tenant.stored:  # also where the server did not answer
                tenant.stored[part] = tenant.stored.pop(part)  # the next recount asks for others


def size_of(job: NewBullJob) -> int:
    """The bytes that a job counts."""
    return len(job.data_json) + _OVERHEAD


def _full(detail: str) -> Problem:
    return Problem(QUEUE_FULL, detail, headers=retry_after(FULL_RETRY_S))
