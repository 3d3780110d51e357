"""Reads and writes files that only this user may have written.

Used for data directories and their files: locks, passwords, endpoints. A file or directory of
another user, one that others may write, or a symbolic link raises `Untrusted`. What is only read
and not secret, like settings files and modules, may also be root's, and reached by a link (O-16).
Imports no other module of jobwire.
"""

import errno
import os
import stat
from pathlib import Path


class Untrusted(OSError):
    """Another user may have written this file or directory."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(errno.EPERM, reason, str(path))


class UnusableFile(ValueError):
    """The content of such a file is wrong; the message has its path and the reason."""


def check_directory(path: Path) -> None:
    """Raise `Untrusted` unless this user owns the directory, and a link that leads to it."""
    _check(path, path.lstat(), link=True)
    _check(path, path.stat())


def check_trusted(path: Path) -> None:
    """Raise `Untrusted` unless only this user and root may have written the file or directory. A
    link is judged by its target; the user's own group counts as the user."""
    _check_trusted(path, path.stat())


def read_trusted(path: Path) -> bytes:
    """The content of such a file."""
    with path.open("rb") as file:
        _check_trusted(path, os.fstat(file.fileno()))
        return file.read()


def _check_trusted(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (os.geteuid(), 0):
        raise Untrusted(path, f"it belongs to another user (uid {found.st_uid})")
    writable = found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid)
    if writable or found.st_mode & stat.S_IWOTH:
        raise Untrusted(path, f"others may write it (mode {stat.S_IMODE(found.st_mode):o})")


def _is_own_group(gid: int) -> bool:
    """Whether a group has no other member than this user, as most systems create one for each."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return user.pw_gid == gid and group.gr_name == user.pw_name and not group.gr_mem


def open_private(path: Path, flags: int) -> int:
    """Open a file of this user (created with mode 600); never through a link."""
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise Untrusted(path, "it is a link") from None
        raise
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise Untrusted(path, "it is not a regular file")
        _check(path, found)
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_private(path: Path) -> bytes:
    """The content of a file of this user."""
    with os.fdopen(open_private(path, os.O_RDONLY), "rb") as file:
        return file.read()


def write_private(path: Path, content: str | bytes) -> None:
    """Replace a file atomically, mode 600."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(open_private(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    draft.replace(path)


def _check(path: Path, found: os.stat_result, *, link: bool = False) -> None:
    if found.st_uid != os.geteuid():
        raise Untrusted(path, f"it belongs to another user (uid {found.st_uid})")
    # The mode of a link has no meaning.
    if not link and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Untrusted(path, f"others may write it (mode {stat.S_IMODE(found.st_mode):o})")
