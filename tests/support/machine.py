"""What a test needs of the machine: short paths, and marks that skip it elsewhere with a reason."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

_OPEN_FILES: Final = 8192


@contextlib.contextmanager
def short_folder() -> Generator[Path]:
    """A folder for Unix sockets, whose paths have 107 bytes at most: TMPDIR may be longer."""
    with TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _can_bind(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def raise_open_files() -> None:
    """Allow this process, and the programs that it starts, as many files as tests open, where the
    user may. A gateway in the test process does the same, so that the order of tests decided."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def needs_open_files(count: int) -> pytest.MarkDecorator:
    """A test, or a program of it, opens so many files or sockets at once."""
    _, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    return pytest.mark.skipif(
        allowed != resource.RLIM_INFINITY and allowed < count,
        reason=f"expected: it opens {count} files, and this user may open {allowed}",
    )


needs_root: Final = pytest.mark.skipif(
    os.geteuid() != 0, reason="expected: only root can act for another user"
)
needs_ipv6: Final = pytest.mark.skipif(
    not _can_bind("::1"), reason="expected: this machine has no IPv6 on loopback"
)
needs_loopback_network: Final = pytest.mark.skipif(
    not _can_bind("127.0.0.9"), reason="expected: of 127.0.0.0/8 this machine has 127.0.0.1 only"
)
