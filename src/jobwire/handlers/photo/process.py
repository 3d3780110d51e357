"""The pool's side of one worker process: start it, give it photos, kill it.

It never outlives the pool's process. A worker has read untrusted files, so its messages are
checked: known messages only, steps in order, a target of the size that it claims.
"""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from jobwire.handlers.photo import messages
from jobwire.handlers.photo.errors import FAILURES, ErrorCode, PhotoError, SetupError
from jobwire.handlers.photo.messages import (
    Began,
    Finished,
    FromWorker,
    PhotoFailed,
    PhotoJob,
    StartWorker,
    WorkerNotReady,
    WorkerReady,
)
from jobwire.handlers.photo.options import PhotoOptions, PoolLimits
from jobwire.handlers.photo.results import ORDER, Photo, Step
from jobwire.spawn import ChildProcess, environment_without_secrets, how_ended, spawn

_log: Final = logging.getLogger("jobwire.handlers.photo")
_WORKER: Final = "jobwire.handlers.photo.worker"
_START_TIMEOUT_S: Final = 120.0
_EXIT_TIMEOUT_S: Final = 2.0
"""How long a worker whose socket is closed may take to be gone."""
_CRASHES: Final = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP}
)
_LONGEST_MESSAGE: Final = 300
_decode: Final = msgspec.json.Decoder(FromWorker).decode


class WorkerExited(Exception):
    """The worker ended, or was killed, through no fault of the photo: another one can have it."""


class WorkerNotStarted(SetupError):
    """The worker ended while it started. Another one may start."""


class WorkerProcess:
    """One worker. Used on the event loop, by one photo at a time."""

    def __init__(
        self,
        child: ChildProcess,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        limits: PoolLimits,
    ) -> None:
        self._child = child
        self._reader = reader
        self._writer = writer
        self._limits = limits
        self._photos = 0

    @classmethod
    async def start(cls, limits: PoolLimits, options: PhotoOptions) -> "WorkerProcess":
        """A worker that has loaded its libraries; SetupError where it lacks something."""
        try:
            child, ours = await asyncio.to_thread(_spawn)
        except OSError as error:
            raise WorkerNotStarted(
                f"a photo worker cannot be started: {error}; "
                f"are {limits.worker_count} workers too many for this machine?"
            ) from error
        reader, writer = await asyncio.open_connection(sock=ours, limit=messages.LONGEST)
        worker = cls(child, reader, writer, limits)
        try:
            await worker._prepare(options)
        except BaseException:
            await worker.kill()
            raise
        return worker

    async def _prepare(self, options: PhotoOptions) -> None:
        limits = self._limits
        start = StartWorker(
            options.detect, options.sensitivity, limits.worker_memory_mb, limits.cpu_limit_s
        )
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await self._send(start)
                match await self._receive():
                    case WorkerReady(content_types):
                        self.content_types = content_types
                        return
                    case WorkerNotReady(message):
                        raise SetupError(message)
                    case _:
                        how = how_ended(await self._exit_code())
                        hint = messages.memory_hint(limits.worker_memory_mb)
                        raise WorkerNotStarted(f"a photo worker {how} while it started; {hint}")
        except TimeoutError:
            raise SetupError(f"a photo worker was not ready after {_START_TIMEOUT_S:g} s") from None

    @property
    def pid(self) -> int:
        return self._child.pid

    def is_usable(self) -> bool:
        """Whether it may have another photo."""
        return self._child.exit_code() is None and self._photos < self._limits.photos_per_worker

    async def run(self, job: PhotoJob, on_step: Callable[[Step], None]) -> Photo:
        """Process one photo. Unless the worker answers, it is killed."""
        self._photos += 1
        began: list[Step] = []
        is_answered = False
        try:
            async with asyncio.timeout(self._limits.deadline_s):
                await self._send(job)
                while True:
                    match await self._receive():
                        case Began(step) if ORDER.index(step) == len(began):
                            began.append(step)
                            on_step(step)
                        case Finished(photo) if len(began) == len(ORDER) and _is_written(
                            job, photo
                        ):
                            is_answered = True
                            return photo
                        case PhotoFailed(code, message, detail):
                            is_answered = True
                            raise PhotoError(code, message[:_LONGEST_MESSAGE], detail=detail)
                        case None:
                            raise await self._exited(began)
                        case _:
                            raise _internal("the worker sent an unexpected message")
        except TimeoutError:
            raise _too_slow(f"{self._limits.deadline_s:g} s of wall time") from None
        finally:
            if not is_answered:  # it may still be at work on this photo
                await self.kill()

    async def kill(self) -> None:
        """End it now."""
        self._child.send(signal.SIGKILL)
        self._writer.close()
        await asyncio.to_thread(self._child.kill)

    async def _send(self, message: StartWorker | PhotoJob) -> None:
        with suppress(OSError):  # it is gone, as the next read will see
            self._writer.write(messages.to_line(message))
            await self._writer.drain()

    async def _receive(self) -> FromWorker | None:
        """The next message; None when it has ended or sends no messages of ours."""
        try:
            line = await self._reader.readline()
            return _decode(line) if line.endswith(messages.END) else None
        except (OSError, ValueError):  # too long a line, too; msgspec's errors are ValueErrors
            return None

    async def _exit_code(self) -> int | None:
        return await asyncio.to_thread(self._child.wait, _EXIT_TIMEOUT_S)

    async def _exited(self, began: list[Step]) -> Exception:
        """What it means that the worker ended by itself."""
        code = await self._exit_code()
        how = how_ended(code)
        if not began:
            return WorkerExited(f"{how} while idle")
        _log.warning(
            "photo worker ended pid=%(pid)s step=%(step)s reason=%(reason)s; it is replaced",
            {"pid": self.pid, "step": began[-1], "reason": how},
        )
        if code == -signal.SIGXCPU:
            return _too_slow(f"{self._limits.cpu_limit_s} s of CPU")
        if code is not None and -code in _CRASHES:
            failed, message = FAILURES[began[-1]]
            return PhotoError(failed, message, detail=f"the worker {how}")
        if code is None or code < 0:  # killed, by the out-of-memory killer or by an operator
            return WorkerExited(how)
        return _internal(f"the worker {how}")


def _spawn() -> tuple[ChildProcess, socket.socket]:
    """The process, and our end of the socket."""
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            child = spawn(
                [sys.executable, "-P", "-m", _WORKER, str(theirs.fileno())],
                env=environment_without_secrets(OPENBLAS_NUM_THREADS="1", MALLOC_ARENA_MAX="2"),
                # Library output about a file may quote the untrusted file.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                keep_fds=[theirs.fileno()],
                last_signal=signal.SIGKILL,
            )
    except OSError:
        ours.close()
        raise
    return child, ours


def _is_written(job: PhotoJob, photo: Photo) -> bool:
    try:
        return os.stat(job.target).st_size == photo.file_size  # noqa: PTH116 - bytes
    except OSError:
        return False


def _too_slow(detail: str) -> PhotoError:
    return PhotoError(
        ErrorCode.TIMEOUT, "the photo takes too long; save it again, smaller", detail=detail
    )


def _internal(detail: str) -> PhotoError:
    return PhotoError(
        ErrorCode.INTERNAL, "processing was interrupted; upload the photo again", detail=detail
    )
