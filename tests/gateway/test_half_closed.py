"""Clients that close their own side after the request, as `nc -N` and some proxies do."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Generator, Iterator

import pytest

from jobwire.gateway.feature import Feature
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.sse import SseEvent
from tests.gateway.events import EventsFeature, on_loop
from tests.gateway.features import test_feature
from tests.gateway.routes import route
from tests.gateway.server import Serving, status_of
from tests.support import clause, wait_until_sync

LARGE = 3_000_000
STREAM = b"GET /channels/a/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def large(_: HttpRequest) -> Reply:
    return Reply(b"x" * LARGE)


@pytest.fixture
def events_feature() -> EventsFeature:
    return EventsFeature()


@pytest.fixture
def served(events_feature: EventsFeature) -> Iterator[Serving]:
    more = Feature(name="large", routes=[route("GET", "/large", "read", large)])
    with Serving(None, test_feature(), events_feature, more) as served:
        yield served
        wait_until_sync(lambda: not served.server.state.connections, "all connections to be closed")


def post(path: bytes, body: bytes) -> bytes:
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return (head + b"Content-Length: %d\r\n\r\n") % (path, len(body)) + body


PARTS = (b"", LIVEZ[:20], post(b"/echo", b"half")[:-2])
PARTS_OF = ("nothing", "a-head", "a-body")


@contextlib.contextmanager
def busy(served: Serving) -> Generator[None]:
    """Block the gateway's loop inside of the block: it reads all bytes sent meanwhile at once."""
    begun, go_on = threading.Event(), threading.Event()
    work = threading.Thread(target=on_loop, args=(served, lambda: (begun.set(), go_on.wait(30))))
    work.start()
    assert begun.wait(30)
    try:
        yield
    finally:
        go_on.set()
        work.join(30)


def ask_and_close(served: Serving, *requests: bytes) -> bytes:
    """All bytes received after our side was closed."""
    with served.open_socket() as peer:
        with busy(served):
            peer.sendall(b"".join(requests))
            peer.shutdown(socket.SHUT_WR)
        got = b""
        while part := peer.recv(65536):
            got += part
    return got


@clause("O-9")
@pytest.mark.parametrize(
    ("request_", "status", "end"),
    [
        (LIVEZ, 200, b'{"status":"alive"}'),
        (LIVEZ.replace(b"1.1", b"1.0"), 200, b'{"status":"alive"}'),
        (post(b"/echo", b'{"name":"x"}'), 200, b'{"name":"x"}'),
        (post(b"/form", b'{"name":"x"}'), 200, b'"tenant":"default"}'),
        (LIVEZ.replace(b"livez", b"large"), 200, b"x" * LARGE),
        (LIVEZ.replace(b"livez", b"nowhere"), 404, b"}"),
        (STREAM.replace(b"GET", b"HEAD"), 200, b"\r\n\r\n"),
    ],
    ids=["get", "http-1.0", "post", "typed", "large", "problem", "head"],
)
def test_a_half_closed_client_gets_its_whole_response(
    served: Serving, request_: bytes, status: int, end: bytes
) -> None:
    """Regression: it got no response."""
    got = ask_and_close(served, request_)
    assert status_of(got) == status
    assert got.endswith(end)


@clause("O-9")
@pytest.mark.parametrize("rest", PARTS, ids=PARTS_OF)
def test_complete_requests_before_a_half_close_are_answered(served: Serving, rest: bytes) -> None:
    got = ask_and_close(served, LIVEZ, post(b"/echo", b'"one"'), LIVEZ, rest)
    assert got.count(b"HTTP/1.1 ") == 3
    assert got.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert got.endswith(b'{"status":"alive"}')


@clause("O-9")
@pytest.mark.parametrize("part", PARTS, ids=PARTS_OF)
def test_an_incomplete_request_is_dropped_at_a_half_close(served: Serving, part: bytes) -> None:
    assert ask_and_close(served, part) == b""
    wait_until_sync(lambda: not served.server.state.tasks, "the request to be aborted")


@clause("O-9", "R-7")
@pytest.mark.parametrize("when", ["at-once", "later"])
@pytest.mark.parametrize("behind", [b"", LIVEZ], ids=["alone", "with-more"])
def test_an_event_stream_ends_at_a_half_close(
    served: Serving, events_feature: EventsFeature, when: str, behind: bytes
) -> None:
    """Most clients that close their side are gone, and without data the server cannot tell. A
    client that counts as present would hold a stream until the next heartbeat fails."""
    with served.open_socket() as peer:
        peer.sendall(STREAM + behind)
        if when == "later":
            wait_until_sync(lambda: events_feature.watchers.get("a"), "the watcher")
            events_feature.push(served, "a", SseEvent("token", b"1", "1-1"))
        peer.shutdown(socket.SHUT_WR)
        while peer.recv(65536):
            pass
    wait_until_sync(lambda: events_feature.detached == 1, "the feeder to be detached")
    assert served.streams.open == 0
