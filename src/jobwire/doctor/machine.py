"""Checks of this machine: Python, data dir, open files."""

import os
import platform
import resource
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from jobwire.doctor.finding import Finding

_OLDEST_PYTHON: Final = (3, 11)
_MIN_FILES: Final = 12_000
_MIN_FREE_BYTES: Final = 1 << 30


def examine(data_dir: Path) -> Iterator[Finding]:
    """Run the checks that need no server."""
    yield _python()
    yield from _data_dir(data_dir)
    yield _open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _python() -> Finding:
    version = platform.python_version()
    if sys.version_info < _OLDEST_PYTHON:
        return Finding(
            "python", "fault", version, "jobwire needs Python 3.11", "install a newer Python"
        )
    return Finding("python", "ok", f"{version} on {platform.system()} {platform.machine()}")


def _data_dir(path: Path) -> Iterator[Finding]:
    existing = path.absolute()
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        yield Finding(
            "data dir",
            "fault",
            f"{path} cannot be written",
            "`jobwire up` stores its data there",
            "correct its owner or permissions, or use another: --data-dir DIR",
        )
        return
    free = shutil.disk_usage(existing).free
    if free < _MIN_FREE_BYTES:
        yield Finding(
            "data dir",
            "fault",
            f"{path}: {free >> 20} MiB free",
            "on a full disk Valkey refuses jobs",
            "free disk space, or use another: --data-dir DIR",
        )
        return
    yield Finding("data dir", "ok", f"{path}: {free >> 30} GiB free")
    if path.exists() and path.stat().st_mode & 0o077:
        yield Finding(
            "data dir rights",
            "fault",
            f"other users can read {path}",
            "it contains passwords and job data",
            f"chmod 700 {shlex.quote(str(path))}",
        )


def _open_files(limit: int) -> Finding:
    if 0 <= limit < _MIN_FILES:
        return Finding(
            "open files",
            "note",
            f"at most {limit}",
            "every event stream is an open file; ten thousand need more",
            f"ulimit -n {_MIN_FILES}",
        )
    return Finding("open files", "ok", "no limit" if limit < 0 else f"at most {limit}")
