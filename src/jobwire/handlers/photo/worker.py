"""A program: processes photos for the pool that started it, one at a time.

`process.py` starts it with one end of a socket and speaks `messages.py` with it. It reads
untrusted files: it has no address and no secret, and the kernel limits its memory, CPU time and
file sizes. It ends when the pool closes the socket or kills it.
"""

import math
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from jobwire.handlers.photo import messages, vips
from jobwire.handlers.photo.detectors import Detector, load
from jobwire.handlers.photo.errors import PhotoError, SetupError
from jobwire.handlers.photo.messages import (
    Began,
    Finished,
    PhotoFailed,
    PhotoJob,
    StartWorker,
    WorkerNotReady,
    WorkerReady,
    memory_hint,
)
from jobwire.handlers.photo.options import MEGABYTE
from jobwire.handlers.photo.pipeline import process
from jobwire.handlers.photo.probe import decodable

_LARGEST_FILE: Final = 64 * MEGABYTE
_OOM_SCORE: Final = "500"
"""Where the machine's memory runs out, the kernel should end this program before a server."""
_LONGEST_DETAIL: Final = 1000


def main() -> None:
    """Load, report readiness, serve."""
    with socket.socket(fileno=int(sys.argv[1])) as line:
        lines = _lines(line)
        start = msgspec.json.decode(next(lines), type=StartWorker)
        _limit(start)
        try:
            vips.images()
            content_types = decodable()
            detectors = {name: load(name, start.sensitivity) for name in start.detect}
        except SetupError as missing:
            line.sendall(messages.to_line(WorkerNotReady(missing.message)))
            return
        except Exception as error:  # noqa: BLE001 - a foreign detector may raise anything
            message = (
                f"a photo worker cannot start: {type(error).__name__}: {error}; "
                f"{memory_hint(start.memory_mb)}"
            )
            line.sendall(messages.to_line(WorkerNotReady(message)))
            return
        line.sendall(messages.to_line(WorkerReady(content_types)))
        decode_job = msgspec.json.Decoder(PhotoJob).decode
        for text in lines:
            _limit_cpu(start.cpu_limit_s)
            line.sendall(messages.to_line(_answer(decode_job(text), detectors, line)))


def _answer(
    job: PhotoJob, detectors: dict[str, Detector], line: socket.socket
) -> Finished | PhotoFailed:
    try:
        photo = process(
            _path(job.source),
            _path(job.target),
            job.options,
            detectors,
            report=lambda step: line.sendall(messages.to_line(Began(step))),
            comparison=None if job.comparison is None else _path(job.comparison),
        )
    except PhotoError as error:
        return PhotoFailed(error.error_code, error.message, error.detail[:_LONGEST_DETAIL])
    return Finished(photo)


def _path(name: bytes) -> Path:
    return Path(os.fsdecode(name))


def _lines(line: socket.socket) -> Iterator[bytes]:
    received = b""
    while more := line.recv(65536):
        received += more
        *whole, received = received.split(messages.END)
        yield from whole


def _limit(start: StartWorker) -> None:
    """Limits that hold for as long as the process lives."""
    os.umask(0o077)
    with suppress(OSError):  # only Linux has it
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    memory = start.memory_mb * MEGABYTE
    for kind, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, _LARGEST_FILE),
        (resource.RLIMIT_CORE, 0),
    ):
        with suppress(ValueError, OSError):  # a lower limit is set already; macOS has no RLIMIT_AS
            resource.setrlimit(kind, (most, most))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then writing fails, and the photo with it


def _limit_cpu(seconds: int) -> None:
    """The kernel counts since the start of the process: allow so much more from now."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = math.ceil(used.ru_utime + used.ru_stime) + seconds
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


if __name__ == "__main__":
    main()
