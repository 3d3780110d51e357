"""Writes the stages of one image in order, without delaying its work (I-1)."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Final, Self, TypeVar

from jobwire.systems.images.contract import Stage
from jobwire.systems.images.status import ImageStatus
from jobwire.valkey import ServerError, ValkeyError

_log: Final = logging.getLogger("jobwire.images")
T = TypeVar("T")
OnStage = Callable[[str, Stage, Stage | None, float], None]
"""Called with the image, its stage, the stage before it, and the seconds spent in that."""


class ImageDeleted(Exception):
    """The image was deleted while it was being processed."""


class StageWriter:
    """`async with StageWriter(…) as stages:` around the work; at its end all are written."""

    def __init__(self, status: ImageStatus, image_id: str, on_stage: OnStage) -> None:
        self._status = status
        self._image_id = image_id
        self._on_stage = on_stage
        self._queue: asyncio.Queue[Stage | None] = asyncio.Queue()
        self._deleted = asyncio.Event()
        self._last: Stage | None = None
        self._since_s = 0.0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name=f"stages of {self._image_id}")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            self._task.cancel()
        if self._last is not None:
            spent_s = time.monotonic() - self._since_s
            self._on_stage(self._image_id, self._last, self._last, spent_s)
        self._queue.put_nowait(None)
        await asyncio.wait([self._task])

    @property
    def is_deleted(self) -> bool:
        return self._deleted.is_set()

    def delete(self) -> None:
        """The image was deleted: end `unless_deleted`."""
        self._deleted.set()

    def write(self, stage: Stage) -> None:
        """Write a stage soon; a repeated one is not written again."""
        if stage == self._last:
            return
        now_s = time.monotonic()
        self._on_stage(self._image_id, stage, self._last, now_s - self._since_s)
        self._last, self._since_s = stage, now_s
        self._queue.put_nowait(stage)

    async def unless_deleted(self, work: Coroutine[None, None, T]) -> T:
        """The result of `work`; ImageDeleted, and the work is cancelled, if the image was deleted
        meanwhile."""
        task = asyncio.create_task(work)
        deleted = asyncio.create_task(self._deleted.wait())
        try:
            await asyncio.wait({task, deleted}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ImageDeleted
            return task.result()
        finally:
            for each in (task, deleted):
                each.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({task, deleted})

    async def _run(self) -> None:
        while (stage := await self._queue.get()) is not None:
            try:
                if await self._status.advance(self._image_id, stage) == "canceled":
                    self.delete()
            except ServerError as error:
                _log.warning(
                    "stage not written image_id=%(image_id)s error=%(error)s",
                    {"image_id": self._image_id, "error": error},
                )
            except ValkeyError:
                pass  # the work goes on; the end is repeated until it is written
