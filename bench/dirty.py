"""The part of a file that is not on the disk yet, by cachestat(2) of Linux 6.5 or newer.

Used by the power cut benchmark. A page is unsafe while it is dirty or being written.
"""

import ctypes
import os
from pathlib import Path
from typing import Final

PAGE: Final = os.sysconf("SC_PAGESIZE")
_CACHESTAT: Final = 451
_libc: Final = ctypes.CDLL(None, use_errno=True)


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Pages(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


class Unknown(Exception):
    """The kernel does not support cachestat."""


def unsafe_pages(fd: int, offset: int = 0, length: int = 0) -> int:
    """Count the pages of the range (length 0: to the end) that a power cut would lose."""
    requested, pages = _Range(offset, length), _Pages()
    if _libc.syscall(_CACHESTAT, fd, ctypes.byref(requested), ctypes.byref(pages), 0):
        raise Unknown(f"cachestat: {os.strerror(ctypes.get_errno())}")
    dirty: int = pages.dirty
    writeback: int = pages.writeback
    return dirty + writeback


def safe_size(file: Path) -> int:
    """Return how many bytes from the start are on the disk, rounded down to a page."""
    fd = os.open(file, os.O_RDWR)
    try:
        size = os.fstat(fd).st_size
        if not unsafe_pages(fd):
            return size
        low, high = 0, size // PAGE
        while low < high:  # the first page that is not safe
            middle = (low + high) // 2
            if unsafe_pages(fd, 0, (middle + 1) * PAGE):
                high = middle
            else:
                low = middle + 1
        return low * PAGE
    finally:
        os.close(fd)
