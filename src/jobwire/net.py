"""Loopback addresses, and the sockets that listen on this machine. Imports no other module of
jobwire.
"""

import contextlib
import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

_LISTENING: Final = "0A"


class ListeningSocket(NamedTuple):
    """A row of /proc/net/tcp."""

    uid: int
    inode: str


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server at `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_loopback_url(url: str) -> bool:
    """The same for the host of a URL."""
    return is_loopback(urlsplit(url).hostname or "")


def listening_sockets(port: int) -> Iterator[ListeningSocket]:
    """The sockets that listen on a local TCP port; none without /proc."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and fields[1].endswith(f":{port:04X}"):
                    yield ListeningSocket(int(fields[7]), fields[9])
