"""Loopback and public addresses, and the sockets that listen on this machine. Imports no other
module of jobwire.
"""

import contextlib
import ipaddress
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

_LISTENING: Final = "0A"
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
# Reachable by the tables of some version of `ipaddress`, and yet not public: relays, agents of
# cloud hosts, local and documentation networks.
_DENIED: Final = (
    ipaddress.IPv4Network("168.63.129.16/32"),
    ipaddress.IPv4Network("192.88.99.0/24"),
    ipaddress.IPv4Network("100.64.0.0/10"),
    ipaddress.IPv4Network("192.0.0.0/24"),
    ipaddress.IPv6Network("fec0::/10"),
    ipaddress.IPv6Network("3fff::/20"),
    ipaddress.IPv6Network("5f00::/16"),
)
_MAX_HOST: Final = 253
_LOCAL_DOMAINS: Final = ("localhost", "local", "internal", "home.arpa")


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


def is_public(address: Address) -> bool:
    """Whether an address, with every address embedded in it, is on the public internet."""
    for inner in _embedded(address):
        if not is_public(inner):
            return False
    if any(address in each for each in _DENIED if each.version == address.version):
        return False
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
        # Decided by the address inside; there are no other public ones.
        return address.ipv4_mapped is not None or address in _NAT64
    return address.is_global and not address.is_multicast


def _embedded(address: Address) -> list[ipaddress.IPv4Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return []
    inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [each for each in inner if each is not None]


def names_public_host(url: str) -> bool:
    """Whether a URL is http or https to a host that may be on the public internet, judged by its
    text: nothing is resolved. For a URL that another program will fetch."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
        if not host.isascii() and len(host) <= _MAX_HOST:
            # Programs that fetch it read full-width digits and ideographic dots like others.
            host = host.encode("idna").decode()
    except ValueError:
        return False
    host = host.rstrip(".")
    if parts.scheme not in ("http", "https") or parts.username is not None or not host:
        return False
    if any(ord(each) <= 32 or ord(each) == 127 or each == "\\" for each in url):
        return False
    if len(host) > _MAX_HOST or ("%" in host and ":" not in host):
        return False  # some decode %2e in a name
    try:
        return is_public(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        pass
    try:
        # Many programs read 127.1, 0x7f000001 and 2130706433 as addresses.
        return is_public(ipaddress.IPv4Address(socket.inet_aton(host)))
    except OSError:
        pass
    host = host.lower()
    return "." in host and not host.endswith(tuple(f".{each}" for each in _LOCAL_DOMAINS))


def listening_sockets(port: int) -> Iterator[ListeningSocket]:
    """The sockets that listen on a local TCP port; none without /proc."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and fields[1].endswith(f":{port:04X}"):
                    yield ListeningSocket(int(fields[7]), fields[9])
