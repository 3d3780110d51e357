"""Start once, run in the background, stop once: shared by consumer and reclaimer.

All work is a child of one task, so that nothing is left running after its end.
"""

import asyncio
from abc import ABC, abstractmethod
from typing import Self

from jobwire.valkey.errors import AlreadyStarted, ConsumerClosed, NotStarted, Unavailable


class Lifecycle(ABC):
    """`await start()`, `await stop()`, or `async with`."""

    def __init__(self, name: str, ready_timeout_s: float) -> None:
        self._name = name
        self._ready_timeout_s = ready_timeout_s
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._closed = False
        self._last_error: Exception | None = None

    @property
    def ready(self) -> bool:
        """Whether the object is running."""
        return self._ready.is_set() and self._task is not None and not self._task.done()

    async def start(self) -> None:
        """Return when running; Unavailable after the ready timeout, with nothing left running."""
        if self._closed:
            raise ConsumerClosed(f"{self._name} was stopped; build a new one")
        if self._task is not None:
            raise AlreadyStarted(f"{self._name} was already started")
        self._task = asyncio.create_task(self._run(), name=self._name)
        ready = asyncio.create_task(self._ready.wait(), name=f"{self._name}: ready")
        try:
            await asyncio.wait(
                {self._task, ready},
                timeout=self._ready_timeout_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
        except asyncio.CancelledError:
            await self._cancel()
            raise
        finally:
            ready.cancel()
        if self._ready.is_set():
            return
        ended = self._task
        await self._cancel()
        if ended.done() and not ended.cancelled() and (error := ended.exception()):
            raise error
        raise Unavailable(
            f"{self._name} was not ready within {self._ready_timeout_s:g} s"
            + (f": {self._last_error}" if self._last_error else "")
        ) from self._last_error

    async def stop(self) -> None:
        """Start no more work, wait for entries in flight, and end."""
        if self._task is None and not self._closed:
            raise NotStarted(f"{self._name} was not started")
        self._closed = True
        if self._task is None:
            return
        try:
            await self._request_stop()
            await asyncio.shield(self._task)
        except asyncio.CancelledError:
            await self._cancel()
            raise
        finally:
            self._task = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.stop()

    @abstractmethod
    async def _run(self) -> None:
        """Run until `_request_stop` is called; sets `_ready` when running."""

    @abstractmethod
    async def _request_stop(self) -> None:
        """Let `_run` return."""

    async def _cancel(self) -> None:
        task, self._task = self._task, None
        self._ready.clear()
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
