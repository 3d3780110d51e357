"""Attacks by one connection: limits of its requests, memory and CPU."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from jobwire.gateway.feature import Feature
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.settings import GatewaySettings
from jobwire.gateway.sse import SseEvent
from tests.gateway.events import EventsFeature
from tests.gateway.features import test_feature
from tests.gateway.routes import route
from tests.gateway.server import Serving, read_answer, status_of
from tests.gateway.test_self_authenticated import SIGNED
from tests.support import clause, wait_until_sync

HOST = b"Host: localhost\r\n"
LIVEZ = b"GET /livez HTTP/1.1\r\n" + HOST + b"\r\n"
STREAM = b"GET /channels/a/events HTTP/1.1\r\n" + HOST + b"\r\n"
ALIVE = b'{"status":"alive"}'
MAX_QUEUED = 16
LARGE = 4_000_000


async def large(_: HttpRequest) -> Reply:
    return Reply(b"x" * LARGE)


async def parts(request: HttpRequest) -> Reply:
    return Reply(b"%d" % sum([len(part) async for part in request.chunks()]))


@pytest.fixture(scope="module")
def events_feature() -> EventsFeature:
    return EventsFeature()


@pytest.fixture(scope="module")
def impatient(events_feature: EventsFeature) -> Iterator[Serving]:
    """A gateway whose limits on time are one second each; that of headers begins before a test has
    sent anything, so it is longer than a busy machine delays a test."""
    second = timedelta(seconds=1)
    settings = GatewaySettings(
        header_timeout=timedelta(seconds=4),
        body_timeout=second,
        keep_alive=second,
        slow_client=second,
        heartbeat=timedelta(milliseconds=200),
    )
    more = Feature(
        name="more",
        routes=[
            route("GET", "/large", "read", large),
            route("PUT", "/parts", "submit", parts, max_body=2_000_000),
            route("POST", "/signed", SIGNED, large),
        ],
    )
    with Serving(settings, test_feature(), events_feature, more) as served:
        yield served


def until_closed(peer: socket.socket) -> bytes:
    got = b""
    with contextlib.suppress(ConnectionError):
        while part := peer.recv(65536):
            got += part
    return got


def connections(served: Serving) -> int:
    return len(served.server.state.connections)


def small_window(served: Serving) -> socket.socket:
    """A client with the smallest receive buffer that the system allows."""
    peer = socket.socket()
    peer.settimeout(30)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.connect(("127.0.0.1", served.port))
    return peer


# ── pipelined requests ───────────────────────────────────────────────────────────────────────────


@clause("O-6", "O-9")
def test_o06_queued_requests_are_bounded(open_gateway: Serving) -> None:
    """Regression: 18 MiB of requests on one connection took 1.1 GiB of memory."""
    with open_gateway.open_socket() as peer:
        peer.sendall(LIVEZ * 40)
        got = until_closed(peer)
    assert got.count(ALIVE) == 1 + MAX_QUEUED
    assert got.count(b"connection: close") == 1
    assert got.endswith(ALIVE)


@clause("O-6", "O-9")
def test_o06_a_flood_of_requests_is_not_read(open_gateway: Serving) -> None:
    """The client can read every answer it got, although it never stopped sending."""
    with open_gateway.open_socket() as peer:
        sent = 0

        def flood() -> None:
            nonlocal sent
            with contextlib.suppress(OSError):
                while sent < 16 << 20:
                    sent += peer.send(LIVEZ * 1000)

        sender = threading.Thread(target=flood)
        sender.start()
        got = until_closed(peer)
        wait_until_sync(lambda: not sender.is_alive(), "the connection to be cut")
    assert got.count(ALIVE) == 1 + MAX_QUEUED
    assert sent < 16 << 20


@clause("O-9")
def test_o09_requests_are_all_answered_when_few_are_queued(open_gateway: Serving) -> None:
    with open_gateway.open_socket() as peer:
        for _ in range(10):
            peer.sendall(LIVEZ * MAX_QUEUED)
            got = b""
            while got.count(ALIVE) < MAX_QUEUED:
                part = peer.recv(65536)
                assert part, f"the connection ended after {got!r}"
                got += part


@clause("O-9")
def test_o09_queued_bodies_arrive_complete(open_gateway: Serving) -> None:
    body = b'"' + b"x" * 100_000 + b'"'
    head = b"POST /mixed HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (HOST, len(body))
    with open_gateway.open_socket() as peer:
        sender = threading.Thread(target=peer.sendall, args=((head + body) * 8,))
        sender.start()
        got = b""
        while got.count(body) < 8:
            part = peer.recv(65536)
            assert part, "the connection ended early"
            got += part
        sender.join(30)


@clause("O-6", "O-9")
def test_o06_requests_behind_a_stream_are_bounded(
    impatient: Serving, events_feature: EventsFeature
) -> None:
    detached = events_feature.detached
    with impatient.open_socket() as peer:
        peer.sendall(STREAM)
        wait_until_sync(lambda: events_feature.watchers.get("a"), "the watcher")
        for _ in range(40):
            peer.sendall(LIVEZ)
        events_feature.push(impatient, "a", SseEvent("token", b"1", "1-1"))
        events_feature.end(impatient, "a")
        got = until_closed(peer)
    assert got.count(ALIVE) == 1 + MAX_QUEUED or got.count(ALIVE) == MAX_QUEUED
    assert got.index(b"id: 1-1") < got.index(ALIVE)
    wait_until_sync(lambda: events_feature.detached == detached + 1, "the stream to be closed")


# ── bytes outside bodies ─────────────────────────────────────────────────────────────────────────

CHUNKED = b"POST /mixed HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"


@clause("O-6")
@pytest.mark.parametrize(
    ("begin", "endless"),
    [
        (b"1\r\nx\r\n0\r\nX-Endless: ", b"x" * 1000),
        (b"1\r\nx\r\n0\r\nX", b"x" * 1000),
        (b"1;a=", b"x" * 1000),
        (b"1\r\nx\r\n1;a=", b"x" * 1000),
    ],
    ids=["trailer-value", "trailer-name", "first-extension", "extension"],
)
def test_o06_endless_bytes_around_a_body_are_431(
    open_gateway: Serving, begin: bytes, endless: bytes
) -> None:
    """Regression: an endless trailer kept a core busy, without a key."""
    with open_gateway.open_socket() as peer:
        peer.sendall(CHUNKED + begin)
        cut = False
        for _ in range(2000):
            try:
                peer.sendall(endless)
            except OSError:
                cut = True
                break
        assert cut or status_of(read_answer(peer)) == 431


@clause("O-6", "O-15")
@pytest.mark.parametrize("before", [b"", LIVEZ])
def test_o06_endless_line_ends_are_431(open_gateway: Serving, before: bytes) -> None:
    with open_gateway.open_socket() as peer:
        peer.sendall(before)
        if before:
            assert status_of(read_answer(peer)) == 200
        peer.sendall(b"\r\n" * 10_000)
        assert status_of(read_answer(peer)) == 431
        assert until_closed(peer) == b""


@clause("O-6", "O-9")
def test_o06_a_body_in_chunks_of_one_byte_is_accepted(open_gateway: Serving) -> None:
    body = b'"' + b"x" * 50_000 + b'"'
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    answer = open_gateway.raw(CHUNKED + chunks + b"0\r\n\r\n")
    assert status_of(answer) == 200
    assert answer.endswith(body)


@clause("O-6")
def test_o06_a_large_head_behind_a_request_is_431(open_gateway: Serving) -> None:
    """Regression: a head in one read with the request before it was not counted."""
    large_head = LIVEZ[:-2] + b"".join(b"X-%d: %b\r\n" % (n, b"y" * 2000) for n in range(20))
    with open_gateway.open_socket() as peer:
        peer.sendall(LIVEZ + large_head + b"\r\n" + LIVEZ)
        got = until_closed(peer)
    assert got.count(b"HTTP/1.1 ") == 1
    assert status_of(got) == 200


# ── connections that stay ────────────────────────────────────────────────────────────────────────


@clause("O-6")
@pytest.mark.parametrize("stray", [b"\r\n", b"\n", b""])
def test_o06_an_idle_connection_is_closed_after_a_stray_line_end(
    impatient: Serving, stray: bytes
) -> None:
    with impatient.open_socket() as peer:
        peer.sendall(LIVEZ)
        assert status_of(read_answer(peer)) == 200
        peer.sendall(stray)
        until_closed(peer)


@clause("O-9")
def test_o09_a_stray_line_end_does_not_end_a_stream(
    impatient: Serving, events_feature: EventsFeature
) -> None:
    with impatient.open_socket() as peer:
        peer.sendall(STREAM + b"\r\n")
        got = b""
        while got.count(b": heartbeat") < 15:  # for three seconds
            part = peer.recv(65536)
            assert part, f"the stream ended: {got!r}"
            got += part


@clause("O-6")
def test_o06_a_body_that_stops_is_408(impatient: Serving) -> None:
    """Regression: each KiB received allowed one more second without data: two hours for 8 MiB."""
    with impatient.open_socket() as peer:
        head = b"POST /mixed HTTP/1.1\r\n%bContent-Length: 1000000\r\n\r\n" % HOST
        peer.sendall(head + b"x" * 500_000)
        assert status_of(read_answer(peer)) == 408
        until_closed(peer)


@clause("O-6", "O-15")
def test_o06_a_body_that_trickles_after_a_quick_start_is_408(impatient: Serving) -> None:
    """However its route reads it: whole, in parts, or for its verifier."""
    with contextlib.ExitStack() as opened:
        got: dict[socket.socket, bytes] = {}
        for target in (b"POST /mixed", b"PUT /parts", b"POST /signed"):
            peer = opened.enter_context(impatient.open_socket())
            head = b"%b HTTP/1.1\r\n%bContent-Length: 1000000\r\n\r\n" % (target, HOST)
            peer.sendall(head + b"x" * 500_000)
            peer.setblocking(False)
            got[peer] = b""

        def refused() -> bool:
            for peer in got:
                with contextlib.suppress(OSError):
                    peer.send(b"x")
                with contextlib.suppress(BlockingIOError):
                    got[peer] += peer.recv(65536)
            return all(got.values())

        wait_until_sync(refused, "the answers")
    assert [status_of(answer) for answer in got.values()] == [408, 408, 408]


@clause("O-6")
def test_o06_a_slow_but_steady_body_is_accepted() -> None:
    settings = GatewaySettings(body_timeout=timedelta(seconds=4))
    with Serving(settings, test_feature()) as served, served.open_socket() as peer:
        parts = 20  # for five seconds
        head = b"POST /mixed HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (HOST, parts * 4096)
        peer.sendall(head)
        for _ in range(parts):
            time.sleep(0.25)  # the test is about the pace of the client
            peer.sendall(b"x" * 4096)
        assert status_of(read_answer(peer)) == 200


@clause("O-6")
@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
def test_o06_a_client_that_does_not_read_its_response_is_disconnected(
    impatient: Serving, version: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's kernel acknowledges what fits its window; the client reads nothing."""
    monkeypatch.setattr("jobwire.gateway.connection._UNACKNOWLEDGED", timedelta(0))
    monkeypatch.setattr("jobwire.gateway.connection._MIN_BYTES_PER_S", LARGE)
    wait_until_sync(lambda: connections(impatient) == 0, "earlier connections to be closed")
    with small_window(impatient) as peer:
        peer.sendall(b"GET /large HTTP/%b\r\n%b\r\n" % (version, HOST))
        wait_until_sync(lambda: connections(impatient) == 1, "the connection")
        wait_until_sync(lambda: connections(impatient) == 0, "the connection to be dropped")


@clause("O-6", "O-15")
def test_o15_responses_that_are_not_read_have_one_budget() -> None:
    """Regression: five hundred clients without a key that did not read the API document took 350
    MB."""
    feature = Feature(name="more", routes=[route("GET", "/large", "public", large)])
    with Serving(GatewaySettings(unread_budget_mb=10), feature) as served:
        peers: list[socket.socket] = []
        for _ in range(6):
            peers.append(served.open_socket())
            peers[-1].sendall(LIVEZ.replace(b"/livez", b"/large"))
            assert peers[-1].recv(1) == b"H"
        wait_until_sync(lambda: connections(served) <= 3, "the oldest to be disconnected")
        assert len(until_closed(peers[0])) < LARGE
        peers[-1].sendall(LIVEZ)
        whole = b""
        while not whole.endswith(ALIVE):
            part = peers[-1].recv(1 << 20)
            assert part, "the newest one is answered"
            whole += part
        assert len(whole) > LARGE
        for peer in peers:
            peer.close()


@clause("O-6", "J-17")
def test_j17_memory_of_a_watcher_that_does_not_read_is_bounded() -> None:
    """Besides its own buffer a stream used those of the transport and the kernel: half a MiB and
    more."""
    events_feature = EventsFeature()
    limit = 64 << 10
    with (
        Serving(GatewaySettings(stream_buffer_bytes=limit), events_feature) as served,
        small_window(served) as peer,
    ):
        peer.sendall(STREAM)
        wait_until_sync(lambda: events_feature.watchers.get("a"), "the watcher")
        event = SseEvent("token", b"x" * 1000)
        taken = 0

        def full() -> bool:
            nonlocal taken
            accepted = events_feature.push(served, "a", *[event] * 100).count(True)
            taken += accepted * len(event.frame)
            return not accepted

        def stays_full() -> bool:
            # Until the window of the client and the buffers below are full as well.
            return all(full() for _ in range(20))

        wait_until_sync(stays_full, "the buffer to be full")
    assert taken < 3 * limit
