"""Messages between pool and worker: one JSON object per line, over a socket.

    pool → worker   StartWorker, then one PhotoJob after the other
    worker → pool   WorkerReady or WorkerNotReady; for each job Began …, and Finished or PhotoFailed

The pool does not trust these lines: a worker has read untrusted files.
"""

from typing import Final

import msgspec

from jobwire.handlers.photo.errors import ErrorCode
from jobwire.handlers.photo.options import PhotoOptions, Sensitivity
from jobwire.handlers.photo.results import Photo, Step

END: Final = b"\n"
LONGEST: Final = 1 << 20
"""Bytes of a line: a photo with thousands of hidden areas fits."""


class StartWorker(msgspec.Struct, frozen=True):
    """The first line to a worker."""

    detect: tuple[str, ...]
    sensitivity: Sensitivity
    memory_mb: int
    cpu_limit_s: int


class PhotoJob(msgspec.Struct, frozen=True):
    """One photo. Paths are bytes: names of files need not be text."""

    source: bytes
    target: bytes
    options: PhotoOptions
    comparison: bytes | None = None


class WorkerReady(msgspec.Struct, frozen=True, tag=True):
    """The worker has loaded everything."""

    content_types: tuple[str, ...]
    """What it can decode."""


class WorkerNotReady(msgspec.Struct, frozen=True, tag=True):
    """The worker lacks something and ends."""

    message: str


class Began(msgspec.Struct, frozen=True, tag=True):
    """A step begins."""

    step: Step


class Finished(msgspec.Struct, frozen=True, tag=True):
    """The target is written."""

    photo: Photo


class PhotoFailed(msgspec.Struct, frozen=True, tag=True):
    """There is no target."""

    code: ErrorCode
    message: str
    detail: str


FromWorker = WorkerReady | WorkerNotReady | Began | Finished | PhotoFailed


def memory_hint(memory_mb: int) -> str:
    """I-21: too little memory for a worker shows as whatever the kernel answers first: an exception
    of any library, or a signal."""
    return f"is worker_memory_mb = {memory_mb} too small?"


def to_line(message: StartWorker | PhotoJob | FromWorker) -> bytes:
    """The message as it is sent."""
    return msgspec.json.encode(message) + END
