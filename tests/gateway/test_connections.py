"""O-15: the number of connections is bounded, and a full gateway serves new clients."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from jobwire.gateway import connection
from jobwire.gateway.settings import GatewaySettings
from tests.gateway.events import EventsFeature
from tests.gateway.server import Serving, read_answer, status_of
from tests.support import clause, wait_until_sync

MOST = 8
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
STREAM = b"GET /channels/a/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
UNSENT = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n\r\n"


@pytest.fixture(scope="module")
def events_feature() -> EventsFeature:
    return EventsFeature()


@pytest.fixture(scope="module")
def served(events_feature: EventsFeature) -> Iterator[Serving]:
    with Serving(GatewaySettings(max_connections=MOST), events_feature) as served:
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


@clause("O-15", "O-6")
def test_o15_a_connection_that_is_answered_is_not_closed_for_another(
    served: Serving, peers: list[socket.socket], events_feature: EventsFeature
) -> None:
    for _ in range(MOST):
        peers.append(served.open_socket())
        peers[-1].sendall(STREAM)
        assert b"200 OK" in peers[-1].recv(65536)
    with served.open_socket() as refused, contextlib.suppress(ConnectionError):
        refused.sendall(LIVEZ)
        assert refused.recv(65536) == b""
    assert len(events_feature.watchers["a"]) == MOST
    peers.pop().close()
    wait_until_sync(lambda: len(served.server.state.connections) < MOST, "a closed connection")
    assert status_of(served.raw(LIVEZ)) == 200


@clause("O-15", "O-6")
def test_o15_idle_connections_behind_many_event_streams_make_space(
    served: Serving,
    peers: list[socket.socket],
    events_feature: EventsFeature,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: only the oldest connections were examined, each time the same ones."""
    monkeypatch.setattr(connection, "_MAX_EXAMINED", 4)
    for sent in (*[STREAM] * 5, *[b""] * (MOST - 5)):
        peers.append(served.open_socket())
        peers[-1].sendall(sent)
        if sent:
            assert b"200 OK" in peers[-1].recv(65536)
    wait_until_sync(lambda: len(served.server.state.connections) == MOST, "all connections")
    answered: list[bytes] = []
    for _ in range(4):
        peers.append(served.open_socket())
        with contextlib.suppress(ConnectionError):
            peers[-1].sendall(LIVEZ)
            answered.append(peers[-1].recv(65536)[:15])
    assert answered.count(b"HTTP/1.1 200 OK") >= 3, "four were examined for the first"
    assert len(events_feature.watchers["a"]) == 5
