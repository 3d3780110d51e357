"""Requests that no well-behaved client sends, and their responses."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from datetime import timedelta

import pytest

from jobwire.gateway.settings import GatewaySettings
from jobwire.gateway.sse import SseEvent
from tests.gateway.events import EventsFeature
from tests.gateway.server import Serving, read_answer, status_of
from tests.support import clause, wait_until_sync

HOST = b"Host: localhost\r\n"
STREAM = b"GET /channels/a/events HTTP/1.1\r\n" + HOST + b"\r\n"
LIVEZ = b"GET /livez HTTP/1.1\r\n" + HOST + b"\r\n"
REPAIR = 19
"""TCP_REPAIR: closes a socket without sending anything to its peer."""


@pytest.fixture
def events_feature() -> EventsFeature:
    return EventsFeature()


@pytest.fixture
def served(events_feature: EventsFeature) -> Iterator[Serving]:
    with Serving(GatewaySettings(heartbeat=timedelta(milliseconds=200)), events_feature) as served:
        yield served


def post(path: bytes, body: bytes, more: bytes = b"", version: bytes = b"1.1") -> bytes:
    head = b"POST %b HTTP/%b\r\n%b%bContent-Length: %d\r\n\r\n"
    return head % (path, version, HOST, more, len(body)) + body


def chunked(
    path: bytes, body: bytes, *, coding: bytes = b"chunked", trailers: bytes = b""
) -> bytes:
    head = b"POST %b HTTP/1.1\r\n%bTransfer-Encoding: %b\r\n\r\n" % (path, HOST, coding)
    return head + b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(body), body, trailers)


def until_closed(peer: socket.socket) -> bytes:
    got = b""
    while part := peer.recv(65536):
        got += part
    return got


def until(peer: socket.socket, wanted: bytes) -> bytes:
    got = b""
    while wanted not in got:
        part = peer.recv(65536)
        assert part, f"the connection ended before {wanted!r}: {got!r}"
        got += part
    return got


@clause("O-6", "R-7")
@pytest.mark.parametrize("how", ["closes", "resets"])
def test_a_stream_with_a_pipelined_request_ends_with_its_client(
    served: Serving, events_feature: EventsFeature, how: str
) -> None:
    """Regression: the disconnect was reported to the last request only. A stream before it
    stayed open, and counted against the limit of its API key."""
    with served.open_socket() as peer:
        peer.sendall(STREAM + LIVEZ + LIVEZ)
        until(peer, b"event: hello")
        wait_until_sync(lambda: events_feature.watchers.get("a"), "the watcher")
        if how == "resets":
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until_sync(lambda: served.streams.open == 0, "the stream to be closed")
    assert events_feature.detached == 1


@clause("O-9")
def test_a_pipelined_request_waits_for_the_end_of_the_stream(
    served: Serving, events_feature: EventsFeature
) -> None:
    with served.open_socket() as peer:
        peer.sendall(STREAM + LIVEZ)
        until(peer, b"event: hello")
        wait_until_sync(lambda: events_feature.watchers.get("a"), "the watcher")
        events_feature.push(served, "a", SseEvent("token", b"1", "1-1"))
        events_feature.end(served, "a")
        got = until(peer, b'{"status":"alive"}')
    assert got.index(b"id: 1-1") < got.index(b"HTTP/1.1 200 OK")


@clause("O-9")
@pytest.mark.parametrize(
    "behind",
    [b"GARBAGE\r\n\r\n", b"CONNECT x HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
)
def test_invalid_bytes_after_a_request_do_not_change_its_response(
    open_gateway: Serving, behind: bytes
) -> None:
    """Regression: a job was created, and its caller read 400 because of later bytes."""
    with open_gateway.open_socket() as peer:
        peer.sendall(post(b"/echo", b'"whole"') + behind)
        got = until_closed(peer)
    assert got.count(b"HTTP/1.1 ") == 1
    assert status_of(got) == 200
    assert got.endswith(b'"whole"')
    assert b"connection: close" in got


@clause("O-6")
def test_a_trailer_does_not_count_as_a_header(open_gateway: Serving) -> None:
    """A proxy that checks headers does not check trailers, so a trailer must not count as one."""
    body = b'"x"'
    with open_gateway.open_socket() as peer:
        trailers = b"Host: evil.example\r\nContent-Type: text/plain\r\nX-Request-ID: forged\r\n"
        peer.sendall(chunked(b"/echo", body, trailers=trailers))
        got = read_answer(peer)
        assert status_of(got) == 200
        assert b"forged" not in got
        peer.sendall(LIVEZ)
        assert status_of(read_answer(peer)) == 200


@clause("O-6")
def test_trailers_are_counted(open_gateway: Serving) -> None:
    with open_gateway.open_socket() as peer:
        trailers = b"".join(b"X-%d: y\r\n" % number for number in range(100))
        head, _, rest = chunked(b"/echo", b'"x"', trailers=trailers).partition(b"0\r\n")
        peer.sendall(head)
        peer.sendall(b"0\r\n" + rest)
        answer = read_answer(peer)
    assert status_of(answer) == 431


@clause("O-9")
@pytest.mark.parametrize("protocol", [b"h2c", b"websocket", b"tea"])
def test_an_upgrade_request_is_answered_in_http_11(open_gateway: Serving, protocol: bytes) -> None:
    """Some clients offer HTTP/2 with each request, also with bodies. Regression: the body was
    lost."""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: %b\r\nHTTP2-Settings: AAMA\r\n"
    body = b'"the whole body"'
    with open_gateway.open_socket() as peer:
        for _ in range(2):
            peer.sendall(post(b"/echo", body, upgrade % protocol))
            got = read_answer(peer)
            assert status_of(got) == 200
            assert got.endswith(body)
        whole = post(b"/echo", body, upgrade % protocol)
        peer.sendall(whole[:-5])
        peer.sendall(whole[-5:])
        assert read_answer(peer).endswith(body)


@clause("O-9")
def test_http_10_gets_no_chunks(served: Serving, events_feature: EventsFeature) -> None:
    with served.open_socket() as peer:
        peer.sendall(STREAM.replace(b"HTTP/1.1", b"HTTP/1.0"))
        got = until(peer, b"event: hello")
        wait_until_sync(lambda: events_feature.watchers.get("a"), "the watcher")
        events_feature.push(served, "a", SseEvent("token", b"1", "1-1"))
        events_feature.end(served, "a")
        got += until_closed(peer)
    head, _, body = got.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert body.startswith(b"event: hello\n")
    # A slow end has time for heartbeats.
    events = body.replace(b": heartbeat\n\n", b"")
    assert events.endswith(b"id: 1-1\nevent: token\ndata: 1\n\n")


@clause("O-6")
@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"http://localhost:8080/livez", 200),
        (b"http://evil.example/livez", 421),
        (b"http://evil.example:8080/livez", 421),
        (b"http://localhost@evil.example/livez", 421),
        (b"http://[::1]:8080/livez", 200),
        (b"http://localhost", 404),
        (b"http://localhost?x=/livez", 404),
    ],
)
def test_the_host_of_an_absolute_url_is_checked(
    open_gateway: Serving, target: bytes, status: int
) -> None:
    answer = open_gateway.raw(b"GET %b HTTP/1.1\r\n%b\r\n" % (target, HOST))
    assert status_of(answer) == status


@clause("O-6")
@pytest.mark.parametrize("coding", [b"gzip, chunked", b"deflate, chunked"])
def test_a_transfer_encoding_is_not_decoded(open_gateway: Serving, coding: bytes) -> None:
    answer = open_gateway.raw(chunked(b"/echo", b'"x"', coding=coding))
    assert status_of(answer) == 415
    assert b'"code":"unsupported_encoding"' in answer


@clause("O-6")
@pytest.mark.parametrize(
    "name", [b"Idempotency-Key", b"Authorization", b"Last-Event-ID", b"Content-Type", b"Origin"]
)
def test_duplicate_headers_are_refused(open_gateway: Serving, name: bytes) -> None:
    answer = open_gateway.raw(post(b"/echo", b"{}", b"%b: a\r\n%b: b\r\n" % (name, name)))
    assert status_of(answer) == 400
    assert b"is given twice" in answer


@clause("O-6")
@pytest.mark.parametrize(
    "request_",
    [
        b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\nContent-Length: 4\r\n\r\n{}{}",
        post(b"/echo", b"0\r\n\r\n", b"Transfer-Encoding: chunked\r\n"),
        b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: +2\r\n\r\n{}",
        b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 18446744073709551616\r\n\r\n{}",
        b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: %b2\r\n\r\n{}" % (b"0" * 5000),
        b"POST /nowhere HTTP/1.1\r\n" + HOST + b"Content-Length: %b2\r\n\r\n" % (b"0" * 5000),
        chunked(b"/echo", b"{}").replace(b"2\r\n{}", b"zz\r\n{}"),
        chunked(b"/echo", b"{}").replace(b"2\r\n{}", b"1\r\n{}"),
        chunked(b"/echo", b"{}", coding=b"identity, chunked"),
        chunked(b"/echo", b"{}", coding=b"chunked, chunked"),
        chunked(b"/echo", b"{}", coding=b"identity\r\nTransfer-Encoding: chunked"),
        chunked(b"/echo", b"{}", coding=b"chunked\r\nTransfer-Encoding: chunked"),
        chunked(b"/echo", b"{}").replace(b"HTTP/1.1", b"HTTP/1.0"),
        b"GET /livez HTTP/2.0\r\n" + HOST + b"\r\n",
        b"GET /livez HTTP/0.9\r\n" + HOST + b"\r\n",
        b"GET /livez HTTP/1.1\r\nHost : localhost\r\n\r\n",
        b"GET /livez HTTP/1.1\nHost: localhost\n\n",
        b"GET /livez HTTP/1.1\r\n" + HOST + b"X-A: b\r\n c\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n" + HOST + b"X-A: b\x00c\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\n" + HOST + b"\r\n",
        b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n",
        b"BREW /livez HTTP/1.1\r\n" + HOST + b"\r\n",
    ],
)
def test_ambiguous_requests_are_400(open_gateway: Serving, request_: bytes) -> None:
    with open_gateway.open_socket() as peer:
        peer.sendall(request_)
        got = until_closed(peer)
    assert status_of(got) == 400
    assert got.count(b"HTTP/1.1 ") == 1
    assert b'"code":"bad_request"' in got


@clause("O-9", "O-6")
def test_blanks_around_a_header_value_do_not_count(open_gateway: Serving) -> None:
    """RFC 9112, 5.1. Regression: those behind it were part of the value."""
    head = b"POST /echo HTTP/1.1\r\nHost:\t localhost \t\r\nContent-Type: application/json \r\n"
    framing = b"Transfer-Encoding: chunked \r\nExpect: 100-continue\t\r\n\r\n"
    with open_gateway.open_socket() as peer:
        peer.sendall(head + framing)
        until(peer, b"HTTP/1.1 100 Continue\r\n\r\n")
        peer.sendall(b'3\r\n"x"\r\n0\r\n\r\n')
        assert status_of(read_answer(peer)) == 200


@clause("O-9")
def test_expect_continue_gets_100(open_gateway: Serving) -> None:
    whole = post(b"/echo", b'"x"', b"Expect: 100-continue\r\n")
    with open_gateway.open_socket() as peer:
        peer.sendall(whole[:-3])
        until(peer, b"HTTP/1.1 100 Continue\r\n\r\n")
        peer.sendall(whole[-3:])
        assert status_of(read_answer(peer)) == 200


@clause("O-9")
def test_expect_continue_of_http_10_is_ignored(open_gateway: Serving) -> None:
    """A client of that version takes the 100 for its response (RFC 9110, 10.1.1)."""
    whole = post(b"/echo", b'"x"', b"Expect: 100-continue\r\n", b"1.0")
    with open_gateway.open_socket() as peer:
        peer.sendall(whole)
        got = until_closed(peer)
    assert status_of(got) == 200
    assert got.endswith(b'\r\n\r\n"x"')


@clause("O-9")
def test_an_upgrade_request_of_http_10_ends_with_its_connection(open_gateway: Serving) -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    with open_gateway.open_socket() as peer:
        peer.sendall(post(b"/echo", b'"x"', upgrade, b"1.0"))
        got = until_closed(peer)
    assert status_of(got) == 200
    assert b"connection: close" in got


@clause("O-6")
@pytest.mark.parametrize(
    ("target", "hosts"),
    [
        (b"/livez", b""),
        (b"/livez", HOST + HOST),
        (b"/livez", HOST + b"Host: evil.example\r\n"),
        (b"http://localhost/livez", b"Host: evil.example\r\n" + HOST),
    ],
)
def test_http_11_has_one_host(open_gateway: Serving, target: bytes, hosts: bytes) -> None:
    """RFC 9112, 3.2: a proxy could use another one of two."""
    answer = open_gateway.raw(b"GET %b HTTP/1.1\r\n%b\r\n" % (target, hosts))
    assert status_of(answer) == 400


@clause("O-9", "R-7")
def test_a_vanished_client_is_found_by_the_heartbeat(
    served: Serving, events_feature: EventsFeature
) -> None:
    """As when its machine lost power: no end of the connection ever arrives."""
    with served.open_socket() as peer:
        peer.sendall(STREAM)
        until(peer, b"event: hello")
        wait_until_sync(lambda: events_feature.watchers.get("a"), "the watcher")
        try:
            peer.setsockopt(socket.IPPROTO_TCP, REPAIR, 1)
        except PermissionError:
            pytest.skip("expected: only root may leave a connection half open")
    wait_until_sync(lambda: served.streams.open == 0, "the stream to be closed")
    assert events_feature.detached == 1


@clause("O-9")
def test_unacknowledged_data_ends_the_connection(open_gateway: Serving) -> None:
    """A vanished machine does not answer: the kernel closes the connection after the limit set by
    TCP_USER_TIMEOUT."""
    if not hasattr(socket, "TCP_USER_TIMEOUT"):
        pytest.skip("expected: this system has no TCP_USER_TIMEOUT")
    with open_gateway.open_socket() as peer:
        peer.sendall(LIVEZ)
        read_answer(peer)
        (theirs,) = [
            connection.transport.get_extra_info("socket")
            for connection in tuple(open_gateway.server.state.connections)
            if connection.transport.get_extra_info("peername") == peer.getsockname()
        ]
        raw = theirs.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 4)
    assert struct.unpack("i", raw) == (60_000,)
