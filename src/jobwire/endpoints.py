"""The endpoints file of a running program: `<data-dir>/endpoints.json`.

Written by `jobwire up`, read by the CLI and by clients. It contains passwords, hence mode 600.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from jobwire.net import listening_sockets
from jobwire.private_files import Untrusted, check_directory, read_private, write_private

FILE: Final = "endpoints.json"


class S3Endpoint(msgspec.Struct, frozen=True):
    """The bucket's address and keys."""

    endpoint: str
    bucket: str
    access_key: str
    secret_key: str
    region: str


class Endpoints(msgspec.Struct, frozen=True):
    """The addresses of a running program."""

    http: str
    valkey: str | None
    """URL with its password; None if no system needs it."""
    s3: S3Endpoint | None
    pids: Mapping[str, int]
    version: str
    systems: Sequence[str] = ()


class FoundProgram(msgspec.Struct, frozen=True):
    """The program to use, and where its address comes from."""

    url: str
    api_key: str
    origin: str


def write(data_dir: Path, endpoints: Endpoints) -> None:
    """Write the endpoints file."""
    write_private(data_dir / FILE, msgspec.json.format(msgspec.json.encode(endpoints)) + b"\n")


def read(data_dir: Path) -> Endpoints | None:
    """The endpoints of the last program in this directory, or None.

    Untrusted if another user may have written the file.
    """
    try:
        check_directory(data_dir)
        return msgspec.json.decode(read_private(data_dir / FILE), type=Endpoints)
    except Untrusted:
        raise
    except (OSError, msgspec.DecodeError):
        return None


def nearest(data_dir: Path) -> Path:
    """The data directory of a program in the working directory or the nearest folder above it, so
    that a program is found from subfolders; `data_dir` itself if there is none. A directory that
    another user may have written does not count."""
    for folder in (here := Path.cwd(), *here.parents):
        candidate = folder / data_dir
        try:
            if (candidate / FILE).is_file():
                check_directory(candidate)
                return data_dir if folder == here else candidate
        except OSError:
            if folder == here:
                return data_dir  # reported by `read`
    return data_dir


def is_ours(endpoints: Endpoints) -> bool:
    """Whether the process that listens at the address runs as this user: the program may have
    ended, and another user's program may have its port."""
    uids = {each.uid for each in listening_sockets(urlsplit(endpoints.http).port or 80)}
    if uids:
        return uids == {os.geteuid()}
    # The listener's user is unknown: at least the gateway's process must exist.
    try:
        os.kill(endpoints.pids["gateway"], 0)
    except (KeyError, OSError):
        return False
    return True


def remove(data_dir: Path) -> None:
    """Delete the endpoints file: the program has ended."""
    (data_dir / FILE).unlink(missing_ok=True)


def find(data_dir: Path, environ: Mapping[str, str] | None = None) -> FoundProgram | None:
    """The program to use: JOBWIRE_URL, else the one of the data directory's endpoints file.

    JOBWIRE_API_KEY is sent only to these two, and to the second only while it runs as this user.
    Untrusted if the file, or the listener at its address, belongs to another user.
    """
    environ = os.environ if environ is None else environ
    key = environ.get("JOBWIRE_API_KEY", "")
    if url := environ.get("JOBWIRE_URL"):
        return FoundProgram(url.rstrip("/"), key, "JOBWIRE_URL")
    endpoints = read(data_dir)
    if endpoints is None:
        return None
    if key and not is_ours(endpoints):
        raise Untrusted(
            data_dir / FILE, f"its program has ended, or {endpoints.http} belongs to another user"
        )
    return FoundProgram(endpoints.http, key, str(data_dir / FILE))
