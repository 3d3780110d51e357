"""What pool and worker tell each other: one JSON object a line, over a socket.

    pool → worker   Start, then Job, Job, …
    worker → pool   Ready or NotReady, then for each Job: Began …, and Finished or Failed

The pool does not trust these lines: a worker has read files of strangers.
"""

from typing import Final

import msgspec

from jobwire.handlers.photo.errors import ErrorCode
from jobwire.handlers.photo.options import PhotoOptions
from jobwire.handlers.photo.results import Photo, Step

END: Final = b"\n"
LONGEST: Final = 1 << 20
"""Bytes of a line: a photo with thousands of hidden areas fits."""


class Start(msgspec.Struct, frozen=True):
    """The first line to a worker."""

    detect: tuple[str, ...]
    memory_mb: int
    cpu_limit_s: int


class Job(msgspec.Struct, frozen=True):
    """One photo. Paths are bytes: names of files need not be text."""

    source: bytes
    target: bytes
    options: PhotoOptions
    comparison: bytes | None = None


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The worker has loaded everything."""


class NotReady(msgspec.Struct, frozen=True, tag=True):
    """The worker lacks something and ends."""

    message: str


class Began(msgspec.Struct, frozen=True, tag=True):
    """A step begins."""

    step: Step


class Finished(msgspec.Struct, frozen=True, tag=True):
    """The target is written."""

    photo: Photo


class Failed(msgspec.Struct, frozen=True, tag=True):
    """There is no target."""

    code: ErrorCode
    message: str
    detail: str


FromWorker = Ready | NotReady | Began | Finished | Failed


def to_line(message: Start | Job | FromWorker) -> bytes:
    """The message as it is sent."""
    return msgspec.json.encode(message) + END
