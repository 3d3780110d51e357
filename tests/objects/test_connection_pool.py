"""Signed calls use their connections again, whatever the server does with them."""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from jobwire.objects import BucketConfig, Unavailable, Unexpected
from jobwire.objects.signed import SignedCalls
from tests.support import wait_until_sync
from tests.support.listening import Listening

IN_TIME_S = 4.0
"""For tests of an answer that does not come: the others come within this time."""
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Step = Callable[[socket.socket], None]


def answer(response: bytes = OK) -> Step:
    return lambda peer: peer.sendall(response)


def cut(peer: socket.socket) -> None:
    """Close without an answer."""
    peer.close()


def reset(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def answer_and_close(peer: socket.socket) -> None:
    peer.sendall(OK)
    peer.close()


class Server:
    """Answers the n-th request by the n-th step, and all later ones with 200."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.requests: list[int] = []
        """The number of the connection of each request."""
        self._numbers = itertools.count(1)
        self.barrier: threading.Barrier | None = None
        self.listening = Listening(self._serve)

    @property
    def connections(self) -> int:
        return len(set(self.requests))

    @property
    def open(self) -> set[socket.socket]:
        return self.listening.open

    def calls(self, timeout_s: float = 60.0) -> SignedCalls:
        return SignedCalls(
            BucketConfig(
                endpoint=f"http://127.0.0.1:{self.listening.port}",
                bucket="photos",
                access_key="key",
                secret_key="secret",
                timeout_s=timeout_s,
            )
        )

    def _serve(self, peer: socket.socket) -> None:
        number = next(self._numbers)
        while head := peer.recv(65536):
            assert head.endswith(b"\r\n\r\n")
            self.requests.append(number)
            step = self.steps.pop(0) if self.steps else answer()
            if self.barrier is not None:
                self.barrier.wait(60)
            step(peer)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    with server.listening:
        yield server


async def test_calls_in_a_row_share_a_connection(server: Server) -> None:
    calls = server.calls()
    for method in ("GET", "DELETE", "GET", "DELETE", "GET"):
        assert (await calls.send(method, "a/b")).body == b"ok"
    assert (server.connections, len(server.requests)) == (1, 5)


async def test_calls_at_a_time_have_a_connection_each(server: Server) -> None:
    calls = server.calls()
    for _ in range(2):
        server.barrier = threading.Barrier(3)
        await asyncio.gather(*(calls.send("GET", str(number)) for number in range(3)))
    assert server.connections == 3


@pytest.mark.parametrize(
    "ends", [cut, reset, answer(b"nonsense\r\n\r\n")], ids=["closed", "reset", "no HTTP"]
)
async def test_a_used_connection_that_ends_is_replaced_at_once(
    server: Server, ends: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobwire.objects.signed._BACKOFF_S", ())
    calls = server.calls()
    server.steps = [answer(), ends]
    for _ in range(3):
        assert (await calls.send("GET")).status == 200
    assert server.requests == [1, 1, 2, 2]


async def test_a_connection_that_the_server_closed_meanwhile_is_not_used(server: Server) -> None:
    calls = server.calls()
    server.steps = [answer_and_close]
    await calls.send("GET")
    wait_until_sync(lambda: not server.open, "the server to close")
    await calls.send("GET")
    assert server.requests == [1, 2]


async def test_a_new_connection_without_an_answer_is_tried_again_later(server: Server) -> None:
    server.steps = [cut, reset]
    assert (await server.calls().send("GET")).status == 200
    assert server.requests == [1, 2, 3]


async def test_a_server_that_does_not_answer_is_unavailable(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that lost power: an idle connection seems to be open."""
    monkeypatch.setattr("jobwire.objects.signed._BACKOFF_S", (0.01,))
    calls = server.calls(IN_TIME_S)
    server.steps = [answer(), lambda _: None, lambda _: None]
    await calls.send("GET")
    with pytest.raises(Unavailable, match="timed out"):
        await calls.send("GET")
    assert server.requests == [1, 1, 2]
    await calls.send("GET")
    assert server.requests == [1, 1, 2, 3], "a late answer cannot reach another call"


async def test_an_answer_in_parts_is_read_whole_before_the_next_call(server: Server) -> None:
    calls = server.calls(IN_TIME_S)
    chunked = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )
    server.steps = [answer(chunked), answer(OK[:-1])]
    assert (await calls.send("GET")).body == b"abcde"
    assert (await calls.send("GET")).body == b"ok"  # cut off, timed out, and repeated
    assert server.requests == [1, 1, 2]


async def test_statuses_mean_what_they_did(server: Server) -> None:
    calls = server.calls()
    busy = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n"
    moved = b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    server.steps = [answer(busy), answer(), answer(moved)]
    assert (await calls.send("GET")).status == 200
    with pytest.raises(Unexpected, match="307"):
        await calls.send("GET")
    assert server.requests == [1, 1, 1], "a redirect is not followed"


async def test_an_answer_that_ends_its_connection(server: Server) -> None:
    calls = server.calls()
    server.steps = [answer(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")]
    await calls.send("GET")
    await calls.send("GET")
    assert server.requests == [1, 2]


async def test_idle_connections_end_with_their_client(server: Server) -> None:
    calls = server.calls()
    await calls.send("GET")
    assert len(server.open) == 1
    del calls
    wait_until_sync(lambda: not server.open, "the connection to be closed")
