"""HEAD: the headers of GET without the body."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from jobwire.gateway.settings import GatewaySettings
from tests.gateway.events import EventsFeature
from tests.gateway.features import test_feature
from tests.gateway.server import Serving, bearer, key, status_of
from tests.support import clause, wait_until_sync

STREAM = "/channels/a/events"


@pytest.fixture(scope="module")
def events_feature() -> EventsFeature:
    return EventsFeature()


@pytest.fixture(scope="module")
def served(events_feature: EventsFeature) -> Iterator[Serving]:
    keys = (key("reader", "read"), key("writer", "submit"), key("boss", "admin"))
    with Serving(
        GatewaySettings(keys=keys, streams_per_key=1), test_feature(), events_feature
    ) as served:
        yield served


def request(method: str, path: str, name: str = "reader") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: same\r\n"
    return f"{head}Authorization: Bearer jw_{name}\r\n\r\n".encode()


def head_of(served: Serving, method: str, path: str, name: str = "reader") -> bytes:
    """The head of the answer, however long its body is; without its date, which is another one
    where a second ends between two requests."""
    with served.open_socket() as peer:
        peer.sendall(request(method, path, name))
        got = b""
        while b"\r\n\r\n" not in got:
            part = peer.recv(65536)
            assert part, f"no whole head: {got!r}"
            got += part
    head, _, _ = got.partition(b"\r\n\r\n")
    without_date, dates = re.subn(rb"\r\ndate: [^\r]+", b"", head)
    assert dates == 1, head
    return without_date


@clause("O-9")
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/livez", 200),
        ("/version", 200),
        ("/openapi.json", 200),
        ("/things/default.1", 200),
        ("/things/acme.1", 404),
        ("/full", 429),
        ("/broken", 500),
        ("/mixed", 200),
        ("/mixed?limit=x", 422),
        ("/teapot", 418),
        ("/form", 405),
        ("/echo", 405),
        ("/nowhere", 404),
        (STREAM, 200),
        (f"{STREAM}?last_event_id=%01", 400),
    ],
)
def test_head_returns_the_headers_of_get(served: Serving, path: str, status: int) -> None:
    asked, metrics = head_of(served, "GET", path), head_of(served, "HEAD", path)
    wait_until_sync(lambda: served.streams.open == 0, "the stream to be closed")
    assert metrics == asked
    assert status_of(metrics) == status
    assert (b"content-length: " in metrics) == (path != STREAM)


@clause("O-9")
@pytest.mark.parametrize("path", ["/livez", "/openapi.json", "/mixed", "/nowhere", STREAM])
def test_head_sends_no_body_before_the_next_response(served: Serving, path: str) -> None:
    with served.open_socket() as peer:
        peer.sendall(request("HEAD", path) + request("GET", "/livez"))
        got = b""
        while not got.endswith(b'{"status":"alive"}'):
            got += peer.recv(65536)
    first, between, second = got.partition(b"\r\n\r\n")
    assert between
    assert status_of(first) in (200, 404)
    assert second.startswith(b"HTTP/1.1 200 OK\r\n")


@clause("O-6")
@pytest.mark.parametrize("path", ["/things/default.1", "/mixed", STREAM])
def test_head_requires_the_same_scope(served: Serving, path: str) -> None:
    assert status_of(head_of(served, "HEAD", path, "writer")) == 403
    assert status_of(head_of(served, "HEAD", path, "unknown")) == 401


@clause("O-9")
def test_head_opens_no_event_stream(served: Serving, events_feature: EventsFeature) -> None:
    """It does not count as an open stream, but is 429 when the limit is reached."""
    seen = events_feature.detached
    for _ in range(3):
        assert status_of(head_of(served, "HEAD", STREAM)) == 200
    assert events_feature.detached == seen
    assert served.streams.open == 0
    with served.client.stream("GET", STREAM, headers=bearer("reader")) as leased:
        assert leased.status_code == 200
        assert status_of(head_of(served, "HEAD", STREAM)) == 429
    wait_until_sync(lambda: served.streams.open == 0, "the stream to be closed")


@clause("O-9")
def test_head_is_counted_as_its_get_route(served: Serving) -> None:
    head_of(served, "HEAD", "/teapot")
    metrics = served.client.get("/metrics", headers=bearer("boss")).text
    assert 'jobwire_http_requests_total{route="GET /teapot",status="418"}' in metrics
    assert 'route="HEAD ' not in metrics
