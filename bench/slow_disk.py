"""A disk that is slow to sync, for one server: its syncing thread is stopped and let go again.

To the rest of the server this is an fsync that does not come back, as on a disk that others keep
busy. Linux only, and for a child of ours only: a debugger's call, made by the thread that ends it.
"""

import contextlib
import ctypes
import os
from collections.abc import Generator
from pathlib import Path
from typing import Final

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_ALL_THREADS: Final = 0x40000000
_SYNCING: Final = "bio_aof"
_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


@contextlib.contextmanager
def slow_disk(pid: int) -> Generator[None]:
    """No fsync of this server comes back before the end of the block."""
    (thread,) = [
        int(task.name)
        for task in Path(f"/proc/{pid}/task").iterdir()
        if (task / "comm").read_text().strip() == _SYNCING
    ]
    _ptrace(_SEIZE, thread)
    _ptrace(_INTERRUPT, thread)
    os.waitpid(thread, _ALL_THREADS)
    try:
        yield
    finally:
        try:
            _ptrace(_DETACH, thread)
        except ProcessLookupError:  # it was killed: its death is ours to take note of
            os.waitpid(thread, _ALL_THREADS)


def _ptrace(request: int, thread: int) -> None:
    if _libc.ptrace(request, thread, None, None):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
