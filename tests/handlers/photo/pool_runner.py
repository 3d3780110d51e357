"""A pool on its own event loop, for tests that use it one after the other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from jobwire.handlers.photo import Photo, PhotoError, PhotoOptions, PhotoPool, PoolLimits, Step

T = TypeVar("T")
PLUGINS = "tests.handlers.photo.plugins"


@dataclass(frozen=True)
class Outcome:
    """How a photo ended."""

    steps: tuple[Step, ...]
    photo: Photo | None
    error: PhotoError | None

    @property
    def code(self) -> str:
        return "" if self.error is None else self.error.code


class RunningPool:
    """`with RunningPool(…) as pool`; every call waits for its answer."""

    def __init__(
        self, limits: PoolLimits | None = None, options: PhotoOptions | None = None
    ) -> None:
        self.pool = PhotoPool(limits or PoolLimits(workers=1), options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.call(self.pool.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.call(self.pool.__aexit__(kind, error, trace))
        self.call(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(100)

    def process(
        self, source: Path | bytes, target: Path, options: PhotoOptions | None = None
    ) -> Outcome:
        """Process a file, or bytes that are written beside the target first."""
        if isinstance(source, bytes):
            target.with_suffix(".upload").write_bytes(source)
            source = target.with_suffix(".upload")
        steps: list[Step] = []
        try:
            photo = self.call(
                self.pool.process(source, target, options=options, on_step=steps.append)
            )
        except PhotoError as error:
            return Outcome(tuple(steps), None, error)
        return Outcome(tuple(steps), photo, None)
