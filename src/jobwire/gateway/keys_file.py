"""API keys in a file that a running gateway follows: `gateway.keys_file`.

`jobwire keys` writes it, by replacing it; a mounted secret may replace it, too. The gateway looks
at it twice a second, so that a change holds within a second. Who may write it gives access, so it
is used only if no other user may (O-16).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from jobwire.gateway.auth import Keyring
from jobwire.gateway.settings import GatewaySettings, KeySettings
from jobwire.log import component
from jobwire.private_files import Untrusted, UnusableFile, open_private, read_trusted, write_private

_LOOK_S: Final = 0.4
_log = component("gateway.keys")


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    keys: list[KeySettings] = []


def read_keys(path: Path) -> tuple[KeySettings, ...]:
    """The keys of the file; none if it does not exist. Raises UnusableFile."""
    try:
        found = msgspec.json.decode(read_trusted(path), type=_Document).keys
    except FileNotFoundError:
        return ()
    except Untrusted as error:
        raise UnusableFile(f"{path} is not used: {error.strerror}") from None
    except OSError as error:
        raise UnusableFile(f"{path} cannot be read ({error.strerror})") from None
    except msgspec.DecodeError as error:
        raise UnusableFile(f"{path}: {error}") from None
    for name, problem in replace(GatewaySettings(), keys=tuple(found)).key_faults():
        raise UnusableFile(f"{path}: {name} {problem}")
    return tuple(found)


@contextlib.contextmanager
def changed_keys(path: Path) -> Generator[dict[str, KeySettings]]:
    """The keys by name, written at the end of the block; one program at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = open_private(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        keys = {key.name: key for key in read_keys(path)}
        yield keys
        content = msgspec.json.format(msgspec.json.encode(_Document([*keys.values()])), indent=2)
        write_private(path, content + b"\n")
    finally:
        os.close(lock)


class KeysFollower:
    """Keeps the keyring of a gateway as its settings and its file say."""

    def __init__(
        self, settings: GatewaySettings, keyring: Keyring, revoked: Callable[[str], object]
    ) -> None:
        """Read the file; raises UnusableFile. `revoked` is called with each key that is no longer
        valid."""
        self._path = Path(settings.keys_file).expanduser() if settings.keys_file else None
        self._own = settings.keys
        self._keyring = keyring
        self._revoked = revoked
        self._seen: tuple[int, ...] = ()
        if self._path is not None:
            self._seen = _identity(self._path)
            self._use(read_keys(self._path), self._path)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Follow the file inside."""
        if self._path is None:
            yield
            return
        async with asyncio.TaskGroup() as group:
            looks = group.create_task(self._look(self._path))
            try:
                yield
            finally:
                looks.cancel()

    async def _look(self, path: Path) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            if (seen := _identity(path)) == self._seen:
                continue
            self._seen = seen
            try:
                self._use(read_keys(path), path)
            except UnusableFile as error:
                _log.error(
                    "keys not changed error=%(error)s; those read before stay",
                    {"error": str(error)},
                )

    def _use(self, keys: Sequence[KeySettings], path: Path) -> None:
        twice = {key.name for key in self._own} & {key.name for key in keys}
        if twice:
            raise UnusableFile(f"{path}: gateway.keys has a key named {min(twice)!r}, too")
        revoked = self._keyring.replace([*self._own, *keys])
        for name in revoked:
            self._revoked(name)
        _log.info(
            "keys read file=%(file)s keys=%(keys)s revoked=%(revoked)s",
            {"file": str(path), "keys": len(keys), "revoked": len(revoked)},
        )


def _identity(path: Path) -> tuple[int, ...]:
    """What changes with the content; nothing while there is no file."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return (found.st_ino, found.st_dev, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
