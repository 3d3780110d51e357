"""O-15: the number of connections is bounded, and a full gateway serves new clients.

Who gives when there are too many: `test_accounts`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from jobwire.gateway.settings import GatewaySettings
from tests.gateway.server import Serving, read_answer, status_of
from tests.support import clause, wait_until_sync

MOST = 8
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
UNSENT = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n\r\n"


@pytest.fixture(scope="module")
def served() -> Iterator[Serving]:
    with Serving(GatewaySettings(max_connections=MOST)) as served:
        yield served


@pytest.fixture
def peers(served: Serving) -> Iterator[list[socket.socket]]:
    """Connections that a test opens."""
    peers: list[socket.socket] = []
    yield peers
    for peer in peers:
        peer.close()
    wait_until_sync(lambda: not served.server.state.connections, "all connections to be closed")


@clause("O-15", "O-6")
@pytest.mark.parametrize("sent", [b"", b"\r\n", LIVEZ[:20], LIVEZ, LIVEZ + LIVEZ[:20], UNSENT])
def test_o15_connections_that_await_nothing_make_space(
    served: Serving, peers: list[socket.socket], sent: bytes
) -> None:
    """Also those of clients without a key, which could keep all others out."""
    for _ in range(5 * MOST):
        peers.append(served.open_socket())
        peers[-1].sendall(sent)
        if sent.endswith(b"\r\n\r\n"):
            assert status_of(read_answer(peers[-1])) in (200, 404)
    assert status_of(served.raw(LIVEZ)) == 200
    assert len(served.server.state.connections) <= MOST
