"""Which frames of a traceback are the user's code: neither jobwire, nor Python, nor a library.

Used by the worker, whose tracebacks begin with the user's first frame, and by the loader of an App,
which names the user's line. Imports no other module of jobwire.
"""

import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

_JOBWIRE: Final = f"{Path(__file__).parent}/"
_LIBRARIES: Final = tuple(
    f"{path}/"
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_paths().get(name))
)


def is_users(filename: str) -> bool:
    """Whether the file is the user's code."""
    # Frames of compiled modules and of `<frozen …>` have no path.
    return filename.startswith("/") and not filename.startswith((_JOBWIRE, *_LIBRARIES))


def is_jobwire_file(filename: str) -> bool:
    """Whether the file is part of jobwire."""
    return filename.startswith(_JOBWIRE)


def is_jobwire(trace: TracebackType | None) -> bool:
    """Whether the exception was raised in jobwire itself, or by an import there."""
    file = ""
    while trace is not None:
        found = trace.tb_frame.f_code.co_filename
        file = file if found.startswith("<") else found
        trace = trace.tb_next
    return is_jobwire_file(file)


def first(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the user's first frame on; None if it has none."""
    return next(_of_user(trace), None)


def last(trace: TracebackType | None) -> TracebackType | None:
    """The user's last frame; None if there is none."""
    frames = list(_of_user(trace))
    return frames[-1] if frames else None


def _of_user(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        if is_users(trace.tb_frame.f_code.co_filename):
            yield trace
        trace = trace.tb_next
