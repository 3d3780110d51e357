"""Which program to talk to, and how: its address, the API key, the headers of every request."""

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from jobwire import __version__, endpoints
from jobwire.client.errors import ClientError, Unreachable
from jobwire.private_files import Untrusted

_DATA_DIR: Final = ".jobwire"


class BadAddress(ClientError, ValueError):
    """The address of the program, or the API key, cannot be one."""

    code = "bad_address"
    status = 400


@dataclass(frozen=True, slots=True)
class Target:
    """A program to talk to."""

    url: str
    api_key: str
    is_here: bool
    """Whether it runs on this machine: then no proxy lies between."""

    @property
    def headers(self) -> dict[str, str]:
        """What every request says."""
        said = {"User-Agent": f"jobwire/{__version__}", "Content-Type": "application/json"}
        return {**said, "Authorization": f"Bearer {self.api_key}"} if self.api_key else said


def find(url: str | None, api_key: str | None, data_dir: Path | str | None = None) -> Target:
    """As given; else JOBWIRE_URL and JOBWIRE_API_KEY; else what `jobwire up` wrote (O-12)."""
    key = _known_key(url) if api_key is None else api_key
    if url is None:
        folder = Path(data_dir or os.environ.get("JOBWIRE_DATA_DIR") or _DATA_DIR)
        try:
            found = endpoints.find(folder)
        except Untrusted as error:
            raise BadAddress(
                f"{error.filename} is not used: {error.strerror}. Give the address by JOBWIRE_URL, "
                "or start the program again: jobwire up"
            ) from None
        if found is None:
            raise Unreachable(
                f"no program is known: JOBWIRE_URL is not set, and nothing runs in {folder}. "
                "Start one: jobwire up"
            )
        url = found.url
    if not key.isascii() or not key.isprintable():
        raise BadAddress("the API key holds characters that no key has; copy it again")
    return Target(_checked(url), key, _is_here(url))


def _known_key(url: str | None) -> str:
    """JOBWIRE_API_KEY, unless it belongs to another address than the one that was given."""
    named = os.environ.get("JOBWIRE_URL")
    if url is not None and named and url.rstrip("/") != named.rstrip("/"):
        return ""
    return os.environ.get("JOBWIRE_API_KEY", "")


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise BadAddress(f"{url!r} is no address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadAddress(f"{url!r} is no address; it looks like http://localhost:8080")
    if parts.username or parts.query or parts.fragment:
        raise BadAddress("the address holds more than scheme, host, port and path")
    return url.rstrip("/")


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
