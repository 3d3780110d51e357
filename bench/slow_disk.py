"""A slow fsync for one server: its fsync thread is stopped with ptrace and continued.

For the rest of the server the fsync does not return, as on a busy disk. Linux only, and only for a
child process; attach and detach in the same thread.
"""

import contextlib
import ctypes
import os
from collections.abc import Generator
from pathlib import Path
from typing import Final

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_ALL_THREADS: Final = 0x40000000
_FSYNC_THREAD: Final = "bio_aof"
_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


@contextlib.contextmanager
def slow_disk(pid: int) -> Generator[None]:
    """No fsync of this server returns before the end of the block."""
    (thread,) = [
        int(task.name)
        for task in Path(f"/proc/{pid}/task").iterdir()
        if (task / "comm").read_text().strip() == _FSYNC_THREAD
    ]
    _ptrace(_SEIZE, thread)
    _ptrace(_INTERRUPT, thread)
    os.waitpid(thread, _ALL_THREADS)
    try:
        yield
    finally:
        try:
            _ptrace(_DETACH, thread)
        except ProcessLookupError:  # it was killed: reap it
            os.waitpid(thread, _ALL_THREADS)


def _ptrace(request: int, thread: int) -> None:
    if _libc.ptrace(request, thread, None, None):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
