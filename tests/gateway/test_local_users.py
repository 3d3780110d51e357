"""Without keys a gateway serves its own user and root, not the other users of the machine."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobwire.gateway.feature import Feature
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.settings import GatewaySettings
from jobwire.local import free_port
from tests.gateway.features import test_feature
from tests.gateway.routes import route
from tests.gateway.server import Serving, key, status_of
from tests.gateway.test_self_authenticated import BODY, SIGNED, signature
from tests.support import clause, wait_until_sync
from tests.support.machine import needs_ipv6, needs_root
from tests.support.other_user import Exchange, exchange

pytestmark = needs_root

THING = "/things/default.1"
FIN_WAIT2 = "05"


class Recorded:
    """A route that remembers its requests."""

    def __init__(self) -> None:
        self.senders: list[str] = []

    async def endpoint(self, request: HttpRequest) -> Reply:
        self.senders.append(request.headers[b"x-sender"].decode())
        return Reply(b"{}")

    def feature(self) -> Feature:
        async def hook(_: HttpRequest) -> Reply:
            return Reply(b"{}")

        return Feature(
            name="recorded",
            routes=[
                route("POST", "/recorded", "submit", self.endpoint),
                route("POST", "/hook", SIGNED, hook),
            ],
        )


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return Recorded()


@pytest.fixture(scope="module")
def served(recorded: Recorded) -> Iterator[Serving]:
    with Serving(GatewaySettings(), test_feature(), recorded.feature()) as served:
        yield served


def request(path: str, method: str = "GET", body: str = "", **headers: str) -> str:
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: localhost",
        "Connection: close",
        f"Content-Length: {len(body)}",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", body])


def ipv4(served: Serving, text: str, leave: str = "", port: int = 0) -> Exchange:
    return socket.AF_INET, ("127.0.0.1", port), ("127.0.0.1", served.port), text, leave


def states(port: int) -> set[str]:
    """The TCP states of the sockets with this local port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[3] for row in rows if row[1].endswith(f":{port:04X}")}


def status(answer: str) -> int:
    return status_of(answer.encode())


def code(answer: str) -> tuple[int, str]:
    return status(answer), json.loads(answer.partition("\r\n\r\n")[2])["code"]


@clause("O-6")
def test_o06_another_user_is_refused(served: Serving) -> None:
    paths = (THING, "/v1/me", "/metrics", "/nothing")
    for answer in exchange(*(ipv4(served, request(path)) for path in paths)):
        assert code(answer) == (401, "other_user")
        assert "gateway.local_users" in answer
        assert "www-authenticate: Bearer" in answer
    assert served.client.get(THING).status_code == 200


@clause("O-6")
def test_o06_a_half_closed_connection_has_its_user(served: Serving) -> None:
    other, root = (exchange(ipv4(served, request(THING), "half"), uid=uid)[0] for uid in (65534, 0))
    assert (status(other), status(root)) == (401, 200)


@clause("O-6")
def test_o06_public_and_self_authenticated_routes_serve_all_users(served: Serving) -> None:
    body = BODY.decode()
    answers = exchange(
        ipv4(served, request("/livez")),
        ipv4(served, request("/version")),
        ipv4(served, request("/openapi.json")),
        ipv4(served, request("/hook", "POST", body, x_signature=signature(BODY))),
    )
    assert [status(answer) for answer in answers] == [200] * 4


@clause("O-6")
def test_o06_a_browser_of_another_user_gets_a_readable_page(served: Serving) -> None:
    accept = "text/html,application/xhtml+xml,*/*;q=0.8"
    for answer in exchange(
        *(ipv4(served, request(path, accept=accept)) for path in (THING, "/docs/"))
    ):
        assert status(answer) == 401
        assert "content-type: text/html" in answer
        assert "gateway.local_users" in answer.partition("\r\n\r\n")[2]
    page = served.client.get("/docs/", headers={"accept": accept})
    assert page.status_code == 200


@clause("O-6")
@pytest.mark.parametrize("leave", ["close", "reset"])
def test_o06_a_client_that_has_left_is_no_user(
    served: Serving, recorded: Recorded, leave: str
) -> None:
    """The kernel reports the uid 0 for a socket that no program has open; and with its port free
    again, the socket of another user may have the same address."""
    # Not an ephemeral port, which a connection of another program could take meanwhile.
    port = free_port()
    resume, sender = threading.Event(), f"other-{leave}"
    assert served.loop is not None
    served.loop.call_soon_threadsafe(resume.wait, 30)
    try:
        post = request("/recorded", "POST", x_sender=sender)
        exchange(ipv4(served, post, leave, port))
        if leave == "close":
            wait_until_sync(lambda: FIN_WAIT2 in states(port), "the kernel to forget the socket")
        with socket.socket() as own:
            own.settimeout(30)
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            own.bind(("127.0.0.1", port if leave == "reset" else 0))
            own.connect(("127.0.0.1", served.port))
            resume.set()
            own.sendall(request("/recorded", "POST", x_sender="root").encode())
            assert status_of(own.recv(65536)) == 200
    finally:
        resume.set()
    assert recorded.senders[-1] == "root"
    assert sender not in recorded.senders


@clause("O-6")
@needs_ipv6
def test_o06_ipv6_and_dual_stack() -> None:
    """A client may reach an IPv4 address from an IPv6 socket, and a server the other way."""
    mapped = "::ffff:127.0.0.1"
    cases = [
        ("::1", socket.AF_INET6, "::1"),
        ("127.0.0.1", socket.AF_INET6, mapped),
        (mapped, socket.AF_INET, "127.0.0.1"),
        (mapped, socket.AF_INET6, mapped),
    ]
    for host, family, target in cases:
        with Serving(GatewaySettings(), test_feature(), host=host) as served:
            source = ("::" if family == socket.AF_INET6 else "0.0.0.0", 0)
            one: Exchange = family, source, (target, served.port), request(THING), ""
            found = [status(exchange(one, uid=uid)[0]) for uid in (65534, 0)]
            assert found == [401, 200], (host, family, target)


@clause("O-6")
def test_o06_a_gateway_of_a_user_serves_that_user_and_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1001)
    with Serving(GatewaySettings(), test_feature()) as served:
        monkeypatch.undo()
        asked = ipv4(served, request(THING))
        found = {uid: status(exchange(asked, uid=uid)[0]) for uid in (0, 1001, 1002)}
    assert found == {0: 200, 1001: 200, 1002: 401}


@clause("O-6")
def test_o06_a_setting_or_a_key_admits_other_users() -> None:
    with Serving(GatewaySettings(local_users="any"), test_feature()) as served:
        assert status(exchange(ipv4(served, request(THING)))[0]) == 200
    settings = GatewaySettings(keys=(key("ci", "read"),))
    with Serving(settings, test_feature()) as served:
        keyed = request(THING, authorization="Bearer jw_ci")
        answers = exchange(ipv4(served, keyed), ipv4(served, request(THING)))
        assert [status(answer) for answer in answers] == [200, 401]
