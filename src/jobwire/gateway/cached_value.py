"""A value that is read again when it is too old, and read once for all who wait for it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class CachedValue(Generic[T]):
    """One value, at most `ttl_s` old; callers that come while it is being read wait for it."""

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._value: list[T] = []
        self._read_at_s = float("-inf")
        self._reading = asyncio.Lock()

    async def get(self, read: Callable[[], Awaitable[T]]) -> T:
        """The value; what `read` raises is not cached."""
        if not self._is_fresh():
            async with self._reading:
                if not self._is_fresh():
                    self._value = [await read()]
                    self._read_at_s = time.monotonic()
        return self._value[0]

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._read_at_s < self._ttl_s
