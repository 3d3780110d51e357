"""Free ports are free, different, and outside of the ephemeral range."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from jobwire.local import free_ports
from jobwire.local.listen import listen, url_of
from jobwire.local.ports import port_is_free
from tests.support.machine import needs_ipv6


def test_ports_are_different_and_free() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(port_is_free(port) for port in ports)


def test_a_port_with_a_listener_is_not_free() -> None:
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        assert not port_is_free(port)
    assert port_is_free(port)


def test_server_ports_are_outside_of_the_ephemeral_range() -> None:
    """A client that connects to a restarting server from the same port would be connected to
    itself."""
    port_range = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if not port_range.exists():
        pytest.skip("expected: only Linux tells the range")
    lowest, highest = map(int, port_range.read_text().split())
    if lowest <= 32_767:
        pytest.skip("expected: this machine gives clients all ports")
    assert not [port for port in free_ports(50) if lowest <= port <= highest]


@pytest.mark.parametrize(
    ("host", "shown"),
    [("127.0.0.1", "127.0.0.1"), pytest.param("::1", "[::1]", marks=needs_ipv6)],
)
def test_the_address_of_a_listening_socket_is_a_url(host: str, shown: str) -> None:
    with listen(host, 0) as listening:
        port = urlsplit(url_of(listening)).port
        assert url_of(listening) == f"http://{shown}:{port}"
        assert port == listening.getsockname()[1]
