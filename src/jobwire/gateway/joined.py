"""Reads the views of all systems at once, and briefly caches what many pages ask for.

A system whose backend does not answer in time is named in `unavailable`, and the others are shown.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from jobwire.gateway.fleet_schemas import UnavailableBody
from jobwire.gateway.request import HttpRequest
from jobwire.gateway.system_view import SystemView
from jobwire.job.errors import BackendUnavailable

T = TypeVar("T")
_TIMEOUT_S: Final = 3.0
"""How long one system may take; the others are shown without it."""


async def read_each(
    views: Sequence[SystemView], read: Callable[[SystemView], Awaitable[T]]
) -> tuple[list[T], list[UnavailableBody]]:
    """The answers of the systems that answer, and the others by name."""

    async def one(view: SystemView) -> T | UnavailableBody:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                return await read(view)
        except BackendUnavailable as error:
            return UnavailableBody(view.system, error.message)
        except TimeoutError:
            return UnavailableBody(view.system, f"no answer within {_TIMEOUT_S:g} s")

    read_all = [await one(views[0])] if len(views) == 1 else await asyncio.gather(*map(one, views))
    answers = [each for each in read_all if not isinstance(each, UnavailableBody)]
    return answers, [each for each in read_all if isinstance(each, UnavailableBody)]


def audience(request: HttpRequest) -> tuple[str, bool]:
    """What decides which rows a caller sees: its tenant, and whether its key has `admin`."""
    return request.principal.tenant, "admin" in request.principal.scopes


class Brief(Generic[T]):
    """One value that is read again when it is older than `fresh_s`; callers that come while it is
    being read wait for that reading."""

    def __init__(self, fresh_s: float) -> None:
        self._fresh_s = fresh_s
        self._value: list[T] = []
        self._read_at_s = float("-inf")
        self._reading = asyncio.Lock()

    async def get(self, read: Callable[[], Awaitable[T]]) -> T:
        """The value; what `read` raises is not kept."""
        if not self._is_fresh():
            async with self._reading:
                if not self._is_fresh():
                    self._value = [await read()]
                    self._read_at_s = time.monotonic()
        return self._value[0]

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._read_at_s < self._fresh_s
