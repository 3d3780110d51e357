"""O-15: all request bodies that a gateway holds in memory have one budget, and each key a share."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from jobwire.gateway.feature import Feature
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.settings import GatewaySettings
from tests.gateway.features import test_feature
from tests.gateway.routes import route
from tests.gateway.server import Serving, bearer, key, read_answer, status_of
from tests.gateway.test_self_authenticated import BODY, SIGNED, signature
from tests.support import clause, wait_until_sync

KEYS = ("one", "two", "three", "four", "five")
HELD = 240_000
"""Below the share of a key: a quarter of the budget of 1 MiB."""


async def hook(request: HttpRequest) -> Reply:
    return Reply(await request.body(None))


@pytest.fixture(scope="module")
def served() -> Iterator[Serving]:
    settings = GatewaySettings(
        keys=tuple(key(name, "submit") for name in KEYS), body_budget_mb=1, max_body_bytes=900_000
    )
    hooks = Feature(name="hooks", routes=[route("POST", "/hook", SIGNED, hook)])
    with Serving(settings, test_feature(), hooks) as started:
        yield started


def head(name: str, length: int, path: str = "/mixed") -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer jw_{name}\r\n"
        f"X-Signature: none\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


class Holders:
    """Clients that send a part of a body and wait."""

    def __init__(self, served: Serving) -> None:
        self._served = served
        self._opened = contextlib.ExitStack()
        self.count = 0

    def hold(self, name: str, size: int = HELD, path: str = "/mixed") -> socket.socket:
        peer = self._opened.enter_context(self._served.open_socket())
        before = self.held
        peer.sendall(head(name, size + 1, path) + b"x" * size)
        wait_until_sync(lambda: self.held >= before + size, "the body to be received")
        return peer

    @property
    def held(self) -> int:
        return self._served.gateway.body_budget.held

    def close(self) -> None:
        self._opened.close()
        wait_until_sync(lambda: self.held == 0, "the budget to be free again")


@pytest.fixture
def holders(served: Serving) -> Iterator[Holders]:
    made = Holders(served)
    yield made
    made.close()


def post(served: Serving, name: str, size: int) -> tuple[int, str]:
    answer = served.client.post("/mixed", headers=bearer(name), json="x" * size)
    return answer.status_code, answer.json()["code"] if answer.is_error else ""


@clause("O-15")
def test_o15_the_bodies_of_one_key_have_a_share_of_the_budget(
    served: Serving, holders: Holders
) -> None:
    """Regression: a few hundred connections that sent most of a body took a gigabyte."""
    peer = holders.hold("one")
    assert post(served, "one", HELD) == (429, "too_many_bodies")
    assert post(served, "one", 100) == (200, "")
    assert post(served, "two", HELD) == (200, "")
    peer.sendall(b"x")
    assert status_of(read_answer(peer)) == 200
    assert post(served, "one", HELD) == (200, "")


@clause("O-15")
def test_o15_all_bodies_have_one_budget(served: Serving, holders: Holders) -> None:
    for name in KEYS[:4]:
        holders.hold(name)
    assert post(served, "five", HELD) == (503, "busy")
    assert post(served, "five", 100) == (200, "")
    holders.close()
    assert post(served, "five", HELD) == (200, "")


@clause("O-15")
def test_o15_one_body_may_be_larger_than_the_share_of_its_key(served: Serving) -> None:
    assert post(served, "one", 800_000) == (200, "")


@clause("O-15")
def test_o15_senders_without_a_proof_share_one_part(served: Serving, holders: Holders) -> None:
    """Nothing distinguishes them, so together they are one key."""
    holders.hold("", path="/hook")
    with served.open_socket() as peer:
        peer.sendall(head("", HELD, "/hook") + b"x" * HELD)
        assert status_of(read_answer(peer)) == 429
    assert post(served, "one", HELD) == (200, "")
    answer = served.client.post("/hook", content=BODY, headers={"x-signature": signature(BODY)})
    assert answer.content == BODY
