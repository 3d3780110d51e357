"""The gateway that the client uses: address, API key, request headers."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from jobwire import __version__, endpoints
from jobwire.client.errors import ClientError, Unreachable
from jobwire.net import is_loopback_url
from jobwire.private_files import Untrusted

_DATA_DIR: Final = ".jobwire"


class BadAddress(ClientError, ValueError):
    """The address or the API key is malformed."""

    code = "bad_address"
    status = 400


@dataclass(frozen=True, slots=True)
class Target:
    """One gateway."""

    url: str
    api_key: str
    is_local: bool
    """It runs on this machine: no proxy is used."""

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of every request."""
        headers = {"User-Agent": f"jobwire/{__version__}", "Content-Type": "application/json"}
        return {**headers, "Authorization": f"Bearer {self.api_key}"} if self.api_key else headers


def find(url: str | None, api_key: str | None, data_dir: Path | str | None = None) -> Target:
    """Use the arguments, else JOBWIRE_URL and JOBWIRE_API_KEY, else the endpoints file (O-12)."""
    key = _default_key(url) if api_key is None else api_key
    if url is None:
        configured = data_dir or os.environ.get("JOBWIRE_DATA_DIR")
        folder = Path(configured) if configured else endpoints.nearest(Path(_DATA_DIR))
        try:
            found = endpoints.find(folder)
        except Untrusted as error:
            raise BadAddress(
                f"{error.filename} is not used: {error.strerror}. Give the address by JOBWIRE_URL, "
                "or start the program again: jobwire up"
            ) from None
        if found is None:
            where = str(folder) if configured else f"{folder} or above it"
            raise Unreachable(
                f"no program is known: JOBWIRE_URL is not set, and nothing runs in {where}. "
                "Start one: jobwire up"
            )
        url = found.url
    if not key.isascii() or not key.isprintable():
        raise BadAddress("the API key contains invalid characters; copy it again")
    return Target(_checked(url), key, is_loopback_url(url))


def _default_key(url: str | None) -> str:
    """JOBWIRE_API_KEY, unless JOBWIRE_URL is another address than the given one."""
    named = os.environ.get("JOBWIRE_URL")
    if url is not None and named and url.rstrip("/") != named.rstrip("/"):
        return ""
    return os.environ.get("JOBWIRE_API_KEY", "")


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise BadAddress(f"{url!r} is not an address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadAddress(f"{url!r} is not an address; write it as http://localhost:8080")
    if parts.username or parts.query or parts.fragment:
        raise BadAddress("the address may only have a scheme, host, port and path")
    return url.rstrip("/")
