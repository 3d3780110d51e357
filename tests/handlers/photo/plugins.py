"""Third-party detectors, some of them faulty; loaded by name in worker processes."""

from __future__ import annotations

import errno
import logging
import os
import signal
import time
from collections.abc import Sequence

import numpy as np

from jobwire.handlers.photo.picture import Pixels
from jobwire.handlers.photo.results import Area


class EndOnWarning:
    """Finds nothing. A warning of the library that reaches Python ends the process."""

    def __init__(self) -> None:
        logging.getLogger("pyvips").addFilter(lambda _record: os.abort())

    def find(self, pixels: Pixels) -> Sequence[Area]:
        return []


class LeftHalf:
    """Finds one thing: the left half."""

    def find(self, pixels: Pixels) -> Sequence[Area]:
        height, width = pixels.shape[:2]
        return [Area(0, 0, width // 2, height, "half")]


class Broken:
    """Raises."""

    def find(self, pixels: Pixels) -> Sequence[Area]:
        raise RuntimeError("no eyes today in /secret/path")


class Crash:
    """Ends the process as a fault in native code does."""

    def find(self, pixels: Pixels) -> Sequence[Area]:
        os.kill(os.getpid(), signal.SIGSEGV)
        return []


class CrashOnDark:
    """Crashes on a dark picture and finds nothing in a bright one."""

    def find(self, pixels: Pixels) -> Sequence[Area]:
        if pixels.mean() < 10:
            os.kill(os.getpid(), signal.SIGSEGV)
        return []


class SleepOnDark:
    """Never ends on a dark picture, and finds nothing in a bright one."""

    def find(self, pixels: Pixels) -> Sequence[Area]:
        while pixels.mean() < 10:
            time.sleep(0.01)
        return []


class SpinOnDark:
    """Burns CPU forever on a dark picture, and finds nothing in a bright one."""

    def find(self, pixels: Pixels) -> Sequence[Area]:
        while pixels.mean() < 10:
            pass
        return []


class Greedy:
    """Allocates more memory than a worker may have."""

    def find(self, pixels: Pixels) -> Sequence[Area]:
        np.ones(4 << 30, np.uint8)
        return []


class Curious:
    """Fails when it sees a secret of the parent's."""

    def find(self, pixels: Pixels) -> Sequence[Area]:
        if any("SECRET" in name for name in os.environ):
            raise RuntimeError("the worker knows a secret")
        return []


def NoMemory() -> LeftHalf:
    """An allocation of Python fails while a worker starts."""
    raise MemoryError


def NoSegment() -> LeftHalf:
    """The loader cannot map a library."""
    raise ImportError("libvips.so.42: failed to map segment from shared object")


def NoAllocation() -> LeftHalf:
    """A system call fails."""
    raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))


def Aborted() -> LeftHalf:
    """A library in C++ ends the process."""
    os.abort()


def Killed() -> LeftHalf:
    """The kernel ends it."""
    os.kill(os.getpid(), signal.SIGKILL)
    return LeftHalf()


def Exited() -> LeftHalf:
    """The loader ends the process."""
    os._exit(127)
