"""The bucket's address and credentials.

Built from the settings and by the local S3 server; checked when built, so that a wrong value is
reported with its name before anything is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from jobwire.net import is_loopback_url
from jobwire.objects.errors import ConfigError

_BUCKET_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketConfig:
    """One bucket of one S3 server."""

    endpoint: str
    """`http://host:port` or `https://host`."""
    bucket: str
    access_key: str
    secret_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)
    """Sent with temporary keys, such as those of a cloud function's role."""
    region: str = "us-east-1"
    public_endpoint: str = ""
    """The server's address for other clients: URLs are signed for it."""
    timeout_s: float = 30.0
    """Limit for one request; contended conditional writes take seconds on some servers."""
    max_read_bytes: int = 64 * 1024 * 1024
    """Largest object that a read loads into memory, unless the call sets its own limit."""

    def __post_init__(self) -> None:
        if faults := tuple(self._faults()):
            raise ConfigError(faults)

    @property
    def where(self) -> str:
        """The bucket's description, for messages."""
        return f"the bucket {self.bucket} at {self.endpoint}"

    @property
    def on_loopback(self) -> bool:
        """Whether the server is on loopback: then no HTTP proxy is used."""
        return is_loopback_url(self.endpoint)

    def _faults(self) -> Iterator[tuple[str, str]]:
        yield from _endpoint_faults("endpoint", self.endpoint)
        if self.public_endpoint:
            yield from _endpoint_faults("public_endpoint", self.public_endpoint)
        if not _BUCKET_NAME.fullmatch(self.bucket):
            yield "bucket", f"must have 3 to 63 of a-z, 0-9, dot and hyphen, is {self.bucket!r}"
        for name in ("access_key", "secret_key", "region"):
            if not getattr(self, name):
                yield name, "is empty"
        # NaN compares false with everything, hence the form of this test.
        if not 0 < self.timeout_s < float("inf"):
            yield "timeout_s", f"must be a positive number of seconds, is {self.timeout_s}"
        if self.max_read_bytes < 1:
            yield "max_read_bytes", f"must be at least 1, is {self.max_read_bytes}"


def _endpoint_faults(name: str, endpoint: str) -> Iterator[tuple[str, str]]:
    try:
        parts = urlsplit(endpoint)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good, parts = False, urlsplit("")
    if not good:
        yield name, "must be a URL such as http://127.0.0.1:9000"
    elif parts.path not in ("", "/") or parts.query or parts.fragment or parts.username:
        yield name, "must have no more than scheme, host and port"
