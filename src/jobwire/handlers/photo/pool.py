"""The pool of photo workers: files in, files out, steps as they happen.

    async with PhotoPool(PoolLimits(workers=2), PhotoOptions()) as pool:
        photo = await pool.process(source, target, on_step=print)

`process` ends in one of four ways: a Photo; a PhotoError with a code of I-6; PoolFull at once, when
too many wait; a cancellation, which kills the worker that has the photo. In all but the first the
target does not exist. A worker that crashes fails its own photo alone and is replaced. The photo of
a worker that is killed runs again in another one, up to a limit; a start that fails is repeated.
Closing the pool kills all workers; photos that were not finished fail as INTERNAL.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from jobwire.handlers.photo.admission import PhotoAdmission, memory_cost
from jobwire.handlers.photo.errors import ErrorCode, PhotoError, SetupError
from jobwire.handlers.photo.messages import PhotoJob
from jobwire.handlers.photo.options import MEGABYTE, PhotoOptions, PoolLimits
from jobwire.handlers.photo.process import WorkerExited, WorkerNotStarted, WorkerProcess
from jobwire.handlers.photo.results import Photo, Step

_log: Final = logging.getLogger("jobwire.handlers.photo")
_TRIES: Final = 4
"""Workers that may be killed, or not start, for one photo; as often as an upload gateway may be
killed while it processes one."""
_START_PAUSE_S: Final = 0.1


def _ignore(_step: Step) -> None:
    """The default for `on_step`."""


class PhotoPool:
    """Long-lived worker processes. Used on one event loop."""

    def __init__(
        self, limits: PoolLimits | None = None, options: PhotoOptions | None = None
    ) -> None:
        self._limits = limits or PoolLimits()
        self._options = options or PhotoOptions()
        _check(self._limits, self._options)
        self._admission = PhotoAdmission(
            workers=self._limits.worker_count,
            budget=self._limits.pixel_budget_mb * MEGABYTE,
            max_waiting=self._limits.max_waiting,
        )
        self._idle: list[WorkerProcess] = []
        self._busy: set[WorkerProcess] = set()
        self._is_open = False
        self.content_types: tuple[str, ...] = ()
        """What the workers can decode, once they are started."""

    async def __aenter__(self) -> Self:
        """Start the workers; SetupError where a library, weights or memory are missing."""
        self._is_open = True
        try:
            await self._add_worker()  # what one lacks, all lack: one error is enough
            others = (self._add_worker() for _ in range(self._limits.worker_count - 1))
            await asyncio.gather(*others)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._close()

    @property
    def is_full(self) -> bool:
        """Whether `process` would raise PoolFull now."""
        return self._admission.is_full

    @property
    def waiting(self) -> int:
        """Photos that wait for a worker or for their share of the budget."""
        return self._admission.waiting

    @property
    def pids(self) -> list[int]:
        """Of the workers that have no photo."""
        return [worker.pid for worker in self._idle]

    async def process(
        self,
        source: Path,
        target: Path,
        *,
        options: PhotoOptions | None = None,
        on_step: Callable[[Step], None] = _ignore,
        comparison: Path | None = None,
    ) -> Photo:
        """Write `target` from `source`. `options` may differ from the pool's, but not in `detect`
        and `sensitivity`."""
        chosen = options or self._options
        if (chosen.detect, chosen.sensitivity) != (
            self._options.detect,
            self._options.sensitivity,
        ):
            raise ValueError("the detectors are chosen when the pool is made")
        _check(self._limits, chosen)
        shown = None if comparison is None else _path(comparison)
        job = PhotoJob(_path(source), _path(target), chosen, shown)
        cost = await asyncio.to_thread(memory_cost, source, chosen)
        try:
            async with self._admission.admitted(cost):
                return await self._run(job, on_step)
        except BaseException:
            _remove(target, comparison)
            raise

    async def _run(self, job: PhotoJob, on_step: Callable[[Step], None]) -> Photo:
        for _ in range(_TRIES):
            worker = await self._take()
            self._busy.add(worker)
            try:
                return await worker.run(job, on_step)
            except WorkerExited as exited:
                if not self._is_open:  # the pool has killed it
                    break
                _log.warning(
                    "photo worker ended reason=%(reason)s; another one gets the photo",
                    {"reason": exited},
                )
            finally:
                await self._put_back(worker)
        raise PhotoError(ErrorCode.INTERNAL, "processing was interrupted; upload the photo again")

    async def _take(self) -> WorkerProcess:
        """A worker that is ready. Admission counts them, so there is one, or one is missing."""
        if not self._is_open:
            raise PhotoError(ErrorCode.INTERNAL, "processing has stopped; upload the photo again")
        while self._idle:
            worker = self._idle.pop()
            if worker.is_usable():
                return worker
            await worker.kill()
        try:
            return await self._start()
        except SetupError as error:
            _log.exception("photo worker did not start; the photo fails")
            raise PhotoError(
                ErrorCode.INTERNAL, "photos cannot be processed now; try again later"
            ) from error

    async def _put_back(self, worker: WorkerProcess) -> None:
        self._busy.discard(worker)
        if self._is_open and worker.is_usable():
            self._idle.append(worker)
        else:
            await worker.kill()

    async def _add_worker(self) -> None:
        worker = await self._start()
        self.content_types = worker.content_types
        await self._put_back(worker)

    async def _close(self) -> None:
        self._is_open = False
        for worker in [*self._idle, *self._busy]:
            await worker.kill()
        self._idle.clear()

    async def _start(self) -> WorkerProcess:
        """A worker; SetupError where a library, weights or memory are missing."""
        for number in range(1, _TRIES):
            try:
                return await WorkerProcess.start(self._limits, self._options)
            except WorkerNotStarted as error:
                _log.warning(
                    "photo worker did not start error=%(error)s; will retry", {"error": error}
                )
                await asyncio.sleep(number * _START_PAUSE_S)
        return await WorkerProcess.start(self._limits, self._options)


def _check(limits: PoolLimits, options: PhotoOptions) -> None:
    faults = [*options.check(), *limits.check(options)]
    if faults:
        raise SetupError("; ".join(f"{name} {what}" for name, what in faults))


def _path(file: Path) -> bytes:
    return os.fsencode(file.absolute())


def _remove(*files: Path | None) -> None:
    for file in files:
        if file is not None:
            file.unlink(missing_ok=True)
