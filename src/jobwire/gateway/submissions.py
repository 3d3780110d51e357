"""What every submission of every system passes: the rate of its key, and the memory of the server
that stores it (J-57).

Created by the features that store what callers submit; the server's memory is read by the caller's
`StoreMemory`.
"""

from typing import Final, Protocol

from jobwire.api.problems import UNAVAILABLE
from jobwire.gateway.health import Check, HealthStatus
from jobwire.gateway.limits import RequestRate
from jobwire.gateway.problems import Problem, retry_after
from jobwire.gateway.request import HttpRequest

FULL_RETRY_S: Final = 5
_NOTE: Final = "the server's memory is nearly full: nothing new is accepted, existing jobs continue"
_FIX: Final = "raise its maxmemory, or let jobs expire earlier (ttl_s)"


class StoreMemory(Protocol):
    """The last reading of a server's memory."""

    @property
    def is_due(self) -> bool:
        """Whether to read again."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether nothing new may be stored."""
        ...

    async def read(self) -> None:
        """Read it; a server that does not answer keeps its last reading."""
        ...


class SubmissionLimits:
    """The limits of one feature."""

    def __init__(self, rate: RequestRate, memory: StoreMemory) -> None:
        self.rate = rate
        self.memory = memory

    async def admit(self, request: HttpRequest, count: int) -> None:
        """Admit this many submissions of one key, or raise a Problem."""
        self.rate.spend(request.principal.key, count)
        if self.must_check_memory:
            await self.check_memory()

    @property
    def must_check_memory(self) -> bool:
        """Whether `check_memory` has something to do: few submissions wait for a reading."""
        return self.memory.is_due or self.memory.is_full

    async def check_memory(self) -> None:
        """A Problem if the server's memory is nearly full; read again when that is due."""
        if self.memory.is_due:
            await self.memory.read()
        if self.memory.is_full:
            raise Problem(UNAVAILABLE, _NOTE, headers=retry_after(FULL_RETRY_S))

    def health(self, name: str) -> Check:
        """/readyz is degraded while submissions are refused."""
        return Check(name, self._health, quiet=True)

    async def _health(self) -> HealthStatus:
        if self.memory.is_due:
            await self.memory.read()
        return HealthStatus("degraded", _NOTE, _FIX) if self.memory.is_full else _READY


_READY: Final = HealthStatus("ready")
