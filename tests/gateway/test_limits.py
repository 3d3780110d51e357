"""Limits of the gateway: sizes, rates, slow clients."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta

import pytest

from jobwire.gateway.settings import GatewaySettings
from tests.gateway.features import SMALL_BODY, test_feature
from tests.gateway.server import Serving, bearer, key, read_answer, status_of
from tests.support import clause, wait_until_sync


@pytest.fixture(scope="module")
def narrow() -> Iterator[Serving]:
    """A gateway that takes few and small headers."""
    with Serving(GatewaySettings(max_header_bytes=4096, max_headers=20), test_feature()) as served:
        yield served


@pytest.fixture(scope="module")
def impatient() -> Iterator[Serving]:
    """A gateway with short timeouts. That of headers begins before a test has sent anything, so it
    is longer than a busy machine delays a test."""
    settings = GatewaySettings(
        header_timeout=timedelta(seconds=4), body_timeout=timedelta(seconds=1)
    )
    with Serving(settings, test_feature()) as served:
        yield served


def is_closed(peer: socket.socket) -> bool:
    """Wait for the end of the connection."""
    try:
        while peer.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


@clause("O-6", "O-9")
@pytest.mark.parametrize("path", ["/echo", "/form"])
def test_a_content_length_over_the_limit_is_refused_unread(
    open_gateway: Serving, path: str
) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {SMALL_BODY + 1}\r\n\r\n"
    answer = open_gateway.raw(head.encode())
    assert status_of(answer) == 413
    assert b'"code":"too_large"' in answer


@clause("O-6", "O-9")
@pytest.mark.parametrize("path", ["/echo", "/form"])
def test_a_chunked_body_is_counted(open_gateway: Serving, path: str) -> None:
    def endless() -> Iterator[bytes]:
        yield b'{"name": "'
        for _ in range(100):
            yield b"x" * 100
        yield b'"}'

    headers = {"content-type": "application/json"}
    answer = open_gateway.client.post(path, content=endless(), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


@clause("O-6")
def test_a_body_of_exactly_the_limit_is_accepted(open_gateway: Serving) -> None:
    body = b'"' + b"x" * (SMALL_BODY - 2) + b'"'
    headers = {"content-type": "application/json"}
    assert open_gateway.client.post("/echo", content=body, headers=headers).content == body


@clause("O-6")
@pytest.mark.parametrize(
    "headers",
    [
        b"X-Big: " + b"x" * 20_000 + b"\r\n",
        b"".join(b"X-%d: y\r\n" % number for number in range(100)),
        b"".join(b"X-%d: %s\r\n" % (number, b"y" * 400) for number in range(15)),
    ],
    ids=["one-huge", "too-many", "large-together"],
)
def test_huge_headers_are_431(narrow: Serving, headers: bytes) -> None:
    answer = narrow.raw(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n")
    assert status_of(answer) == 431
    assert b'"code":"headers_too_large"' in answer


@clause("O-6")
def test_a_huge_path_is_431(narrow: Serving) -> None:
    answer = narrow.raw(b"GET /" + b"x" * 10_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert status_of(answer) == 431


@clause("O-6")
def test_headers_without_an_end_are_cut_off(narrow: Serving) -> None:
    with narrow.open_socket() as peer:
        peer.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Endless: ")
        answer = b""
        try:
            for _ in range(1000):
                peer.sendall(b"x" * 1000)
        except ConnectionError:
            pass
        else:
            answer = read_answer(peer)
        assert answer == b"" or status_of(answer) == 431
        assert is_closed(peer)


@clause("O-6")
def test_a_body_does_not_count_as_headers(narrow: Serving) -> None:
    body = b"x" * 900
    many = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n" + body
    with narrow.open_socket() as peer:
        for _ in range(20):  # on one connection: the count starts anew for each request
            peer.sendall(many)
            assert status_of(read_answer(peer)) == 200


@clause("O-6")
def test_headers_that_never_end_are_408(impatient: Serving) -> None:
    with impatient.open_socket() as peer:
        peer.sendall(b"GET /livez HTTP/1.1\r\nHost: loc")
        answer = read_answer(peer)
        assert status_of(answer) == 408
        assert b'"code":"request_timeout"' in answer
        assert is_closed(peer)


@clause("O-6")
@pytest.mark.parametrize("path", [b"/echo", b"/form"])
def test_a_body_that_never_arrives_is_408(impatient: Serving, path: bytes) -> None:
    with impatient.open_socket() as peer:
        peer.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{" % path)
        assert status_of(read_answer(peer)) == 408
        assert is_closed(peer)


@clause("O-6")
def test_an_idle_connection_is_closed(impatient: Serving) -> None:
    with impatient.open_socket() as peer:
        assert is_closed(peer)


@clause("O-6")
def test_an_unread_body_is_not_received_forever(impatient: Serving) -> None:
    """The client continues to send after an early refusal: it is disconnected after it could read
    the refusal."""
    with impatient.open_socket() as peer:
        peer.sendall(
            b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n"
        )
        assert status_of(read_answer(peer)) == 404

        def is_cut() -> bool:
            try:
                peer.sendall(b"x" * 1000)
            except ConnectionError:
                return True
            return False

        wait_until_sync(is_cut, "the connection to be cut")


@clause("O-6")
def test_a_slow_client_does_not_delay_others(impatient: Serving) -> None:
    peers = [impatient.open_socket() for _ in range(50)]
    for peer in peers:
        peer.sendall(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
    assert impatient.client.post("/echo", json={}).status_code == 200
    for peer in peers:
        assert status_of(read_answer(peer)) == 408
        peer.close()


@clause("O-6")
def test_the_rate_limit_is_per_key() -> None:
    keys = (key("one", "read"), key("two", "read"))
    with Serving(GatewaySettings(keys=keys, rate_limit=2), test_feature()) as served:
        answers = [served.client.get("/mixed", headers=bearer("one")) for _ in range(20)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert [answer.status_code for answer in answers[:2]] == [200, 200]
        assert refused
        assert refused[0].json()["code"] == "rate_limited"
        assert int(refused[0].headers["retry-after"]) >= 1
        assert served.client.get("/mixed", headers=bearer("two")).status_code == 200
        assert served.client.get("/livez").status_code == 200

        def allowed_again() -> bool:
            return served.client.get("/mixed", headers=bearer("one")).status_code == 200

        wait_until_sync(allowed_again, "the bucket to fill again")


@clause("O-6")
def test_many_requests_on_one_connection_are_all_answered(open_gateway: Serving) -> None:
    """Pipelined: written at once, answered in order."""
    request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with open_gateway.open_socket() as peer:
        peer.sendall(request * 10)
        got = b""
        while got.count(b'{"status":"alive"}') < 10:
            part = peer.recv(65536)
            assert part, f"the connection ended after {got!r}"
            got += part
    assert got.count(b"HTTP/1.1 200 OK") == 10


@clause("O-15")
@pytest.mark.parametrize("path", [b"/a" * 7000, b"/" * 15_000, b"/things/" + b"%2f" * 4000])
def test_o15_a_path_of_many_segments_is_not_found(open_gateway: Serving, path: bytes) -> None:
    answer = open_gateway.raw(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
    assert status_of(answer) == 404


@clause("O-9")
@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/things/default.a%2Fb", "default.a/b"),
        ("/things/default.a%2f..%2F%2fb", "default.a/..//b"),
        ("/things/default.%252Fb", "default.%2Fb"),
        ("/%74hings/default.a%2Fb", "default.a/b"),
        ("/%74hings/default.a", "default.a"),
        ("/things%2Fdefault.a", None),
        ("/livez%2F", None),
        ("/%2Flivez", None),
        ("%2Flivez", None),
    ],
)
def test_o09_an_encoded_slash_does_not_separate(
    open_gateway: Serving, path: str, found: str | None
) -> None:
    """Regression: a proxy that allows by path saw another path than the gateway."""
    answer = open_gateway.raw(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
    if found is None:
        assert status_of(answer) in (400, 404)
    else:
        assert status_of(answer) == 200
        assert answer.endswith(b'{"name":"%b"}' % found.encode())


@clause("O-15")
@pytest.mark.parametrize("name", [b"Prefer", b"traceparent", b"Accept-Encoding", b"If-None-Match"])
@pytest.mark.parametrize("text", [b",", b"wait =", b"wait=1 " * 2 + b" ", b'"', b"0-", b";q=9"])
def test_o15_headers_of_any_length_are_read_in_one_pass(
    open_gateway: Serving, name: bytes, text: bytes
) -> None:
    value = text * (15_000 // len(text)) + b"x"
    head = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n%b: %b\r\n\r\n" % (name, value)
    assert status_of(open_gateway.raw(head)) == 200
