"""The address card of a running program: `<data-dir>/endpoints.json`, for its owner's eyes only.

Written by `jobwire up`, read by the CLI and by clients. It holds passwords, hence mode 600.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from jobwire.private_files import Untrusted, check_directory, read_private, write_private

FILE: Final = "endpoints.json"
_LISTENING: Final = "0A"


class S3Endpoint(msgspec.Struct, frozen=True):
    """Where the bucket is, and the keys to it."""

    endpoint: str
    bucket: str
    access_key: str
    secret_key: str
    region: str


class Endpoints(msgspec.Struct, frozen=True):
    """Where everything listens."""

    http: str
    valkey: str
    """URL with its password."""
    s3: S3Endpoint | None
    pids: Mapping[str, int]
    version: str


class FoundProgram(msgspec.Struct, frozen=True):
    """A program to talk to, and how we know of it."""

    url: str
    api_key: str
    origin: str


def write(data_dir: Path, endpoints: Endpoints) -> None:
    """Put the card into the data dir."""
    write_private(data_dir / FILE, msgspec.json.format(msgspec.json.encode(endpoints)) + b"\n")


def read(data_dir: Path) -> Endpoints | None:
    """The card of the program that last ran there, or None; Untrusted if it may be another's."""
    try:
        check_directory(data_dir)
        return msgspec.json.decode(read_private(data_dir / FILE), type=Endpoints)
    except Untrusted:
        raise
    except (OSError, msgspec.DecodeError):
        return None


def is_ours(endpoints: Endpoints) -> bool:
    """Whether what listens at the address of a card runs as this user: the program may have ended
    and another user's have taken its port."""
    listeners = _listeners(urlsplit(endpoints.http).port or 80)
    if listeners:
        return listeners == {os.geteuid()}
    # The system does not say who listens: then the gateway must at least be there.
    try:
        os.kill(endpoints.pids["gateway"], 0)
    except (KeyError, OSError):
        return False
    return True


def _listeners(port: int) -> set[int]:
    """The users that listen on a port of this machine; none where the system does not tell."""
    users: set[int] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and fields[1].endswith(f":{port:04X}"):
                    users.add(int(fields[7]))
    return users


def remove(data_dir: Path) -> None:
    """The program has ended."""
    (data_dir / FILE).unlink(missing_ok=True)


def find(data_dir: Path, environ: Mapping[str, str] | None = None) -> FoundProgram | None:
    """Which program to talk to: JOBWIRE_URL, else the one whose card lies in the data dir.

    JOBWIRE_API_KEY is only for these two, and for the second only while it runs as this user.
    Untrusted if the card, or what listens at its address, is another user's.
    """
    environ = os.environ if environ is None else environ
    key = environ.get("JOBWIRE_API_KEY", "")
    if url := environ.get("JOBWIRE_URL"):
        return FoundProgram(url.rstrip("/"), key, "JOBWIRE_URL")
    card = read(data_dir)
    if card is None:
        return None
    if key and not is_ours(card):
        raise Untrusted(data_dir / FILE, f"its program has ended, or {card.http} is another's")
    return FoundProgram(card.http, key, str(data_dir / FILE))
