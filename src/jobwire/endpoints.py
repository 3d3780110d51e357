"""The address card of a running program: `<data-dir>/endpoints.json`, for its owner's eyes only.

Written by `jobwire up`, read by the CLI and by clients. It holds passwords, hence mode 600.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

FILE: Final = "endpoints.json"


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


class Found(msgspec.Struct, frozen=True):
    """A program to talk to, and how we know of it."""

    url: str
    api_key: str
    origin: str


def write_private(path: Path, body: bytes) -> None:
    """Replace a file as a whole; nobody sees half of it, and nobody but us sees it at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(body)
    draft.replace(path)


def write(data_dir: Path, endpoints: Endpoints) -> None:
    """Put the card into the data dir."""
    write_private(data_dir / FILE, msgspec.json.format(msgspec.json.encode(endpoints)) + b"\n")


def read(data_dir: Path) -> Endpoints | None:
    """The card of the program that last ran there, or None."""
    try:
        return msgspec.json.decode((data_dir / FILE).read_bytes(), type=Endpoints)
    except (OSError, msgspec.DecodeError):
        return None


def remove(data_dir: Path) -> None:
    """The program has ended."""
    (data_dir / FILE).unlink(missing_ok=True)


def find(data_dir: Path, environ: Mapping[str, str] | None = None) -> Found | None:
    """Which program to talk to: JOBWIRE_URL, else the one whose card lies in the data dir."""
    environ = os.environ if environ is None else environ
    key = environ.get("JOBWIRE_API_KEY", "")
    if url := environ.get("JOBWIRE_URL"):
        return Found(url.rstrip("/"), key, "JOBWIRE_URL")
    card = read(data_dir)
    return Found(card.http, key, str(data_dir / FILE)) if card else None
