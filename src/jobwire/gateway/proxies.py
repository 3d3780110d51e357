"""Addresses to which waiting connections belong, also behind proxies (`gateway.proxies`, O-6)."""

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final

_HEADER: Final = b"x-forwarded-for"
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Proxies:
    """The peers whose own address counts for nothing: it is that of the clients behind them."""

    def __init__(self, networks: Sequence[str]) -> None:
        self._networks = [parsed_network(each) for each in networks]

    def has(self, address: str) -> bool:
        """Whether this is the address of a proxy."""
        found = _parsed(address) if self._networks else None
        return found is not None and any(found in each for each in self._networks)

    def client(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """The last hop of X-Forwarded-For that is not a proxy: those before it may be invented.
        None if there is none."""
        given = b",".join(value for name, value in headers if name == _HEADER).decode("latin-1")
        for hop in reversed(given.split(",")):
            found = _parsed(_without_port(hop.strip()))
            if found is None:
                return None
            if not any(found in each for each in self._networks):
                return network(str(found))
        return None


def parsed_network(text: str) -> Network:
    """An address, or a network in CIDR form; ValueError for others, and for all addresses."""
    found = ipaddress.ip_network(text)
    if not found.prefixlen:
        raise ValueError(f"{text} is every address")
    return found


def network(address: str) -> str:
    """Of an IPv6 address its network of 64 bits, because one client has them all; of a mapped one
    the IPv4 address; any other as it is."""
    if ":" not in address:
        return address
    found = _parsed(address)
    if isinstance(found, ipaddress.IPv6Address):
        return found.packed[:8].hex()
    return str(found or address)


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, ipaddress.IPv6Address) else found


def _without_port(hop: str) -> str:
    """Some proxies write the port: `192.0.2.1:4711`, `[2001:db8::1]:4711`."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
