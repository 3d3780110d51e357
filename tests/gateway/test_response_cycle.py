"""Responses are complete, in order, and exactly what the application sent."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from jobwire.gateway.feature import Feature
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.settings import GatewaySettings
from tests.gateway.routes import route
from tests.gateway.server import Serving, status_of
from tests.support import clause, wait_until_sync

LARGE = 300_000


async def forging(call: HttpRequest) -> Reply:
    """Puts the caller's text into a header without a check."""
    values = {
        "crlf": b"a\r\nX-Forged: yes",
        "lf": b"a\nX-Forged: yes",
        "cr": b"a\rb",
        "nul": b"a\0b",
    }
    return Reply(b"{}", headers=((b"x-value", values[call.params[0]]),))


async def lying(call: HttpRequest) -> None:
    """Declares a content-length of ten."""
    body = {"short": b"12345", "long": b"12345678901"}[call.params[0]]
    await call.start(200, ((b"content-length", b"10"),))
    await call.send({"type": "http.response.body", "body": body})


async def parts(call: HttpRequest) -> None:
    await call.start(200, ())
    for part in (b"one ", b"", b"two ", b"three"):
        await call.send({"type": "http.response.body", "body": part, "more_body": True})
    await call.send({"type": "http.response.body"})


async def large(_: HttpRequest) -> Reply:
    return Reply(b"x" * LARGE)


@pytest.fixture(scope="module")
def served() -> Iterator[Serving]:
    paths = {"/forging/{how}": forging, "/lying/{how}": lying, "/parts": parts, "/large": large}
    routes = [route("GET", path, "read", endpoint) for path, endpoint in paths.items()]
    with Serving(GatewaySettings(), Feature(name="answers", routes=routes)) as served:
        yield served


def request(path: str, version: str = "1.1") -> bytes:
    return f"GET {path} HTTP/{version}\r\nHost: localhost\r\n\r\n".encode()


@clause("O-9")
@pytest.mark.parametrize("how", ["crlf", "lf", "cr", "nul"])
def test_a_header_value_cannot_inject_a_header(served: Serving, how: str) -> None:
    assert served.raw(request(f"/forging/{how}")) == b""
    assert served.client.get("/livez").status_code == 200


@clause("O-9")
@pytest.mark.parametrize("how", ["short", "long"])
def test_a_response_with_a_wrong_content_length_is_aborted(served: Serving, how: str) -> None:
    answer = served.raw(request(f"/lying/{how}") + request("/livez"))
    assert answer.count(b"HTTP/1.1 ") <= 1
    assert b"alive" not in answer


@clause("O-9")
def test_a_response_in_parts_arrives_complete(served: Serving) -> None:
    answer = served.client.get("/parts")
    assert answer.headers["transfer-encoding"] == "chunked"
    assert answer.text == "one two three"
    old = served.raw(request("/parts", "1.0"))
    assert status_of(old) == 200
    assert old.endswith(b"\r\n\r\none two three")


@clause("O-9")
def test_a_large_response_and_the_next_on_one_connection(served: Serving) -> None:
    for _ in range(3):
        assert served.client.get("/large").content == b"x" * LARGE
    assert served.client.get("/livez").json() == {"status": "alive"}


@clause("O-9", "R-7")
@pytest.mark.parametrize("path", ["/livez", "/mixed"])
def test_a_request_leaves_no_reference_cycles(open_gateway: Serving, path: str) -> None:
    """Regression: with FastAPI a request and its scope referenced each other. Every request used
    new memory and cost a quarter more through cache misses."""

    def kept() -> int:
        return sum(isinstance(each, HttpRequest) for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = kept()
        for _ in range(20):
            assert open_gateway.client.get(path).status_code == 200
        wait_until_sync(lambda: kept() <= before + 1, "all requests but the last to be freed")
    finally:
        gc.enable()
