"""O-6, O-15: connections and requests are one account; whoever has most gives the oldest.

The gateway has 16 connections, so that 12 can have proved requests and 4 always wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from jobwire.gateway import accounts, connection
from jobwire.gateway.accounts import Accounts, prove
from jobwire.gateway.feature import Feature
from jobwire.gateway.problems import Problem
from jobwire.gateway.proxies import Proxies, network
from jobwire.gateway.request import HttpRequest, Reply
from jobwire.gateway.settings import GatewaySettings
from tests.gateway.events import EventsFeature, on_loop
from tests.gateway.features import test_feature
from tests.gateway.routes import route
from tests.gateway.server import Serving, key, read_answer, status_of
from tests.gateway.test_self_authenticated import BODY, SIGNED
from tests.support import clause, wait_until_sync
from tests.support.machine import needs_loopback_network

LIMIT: Final = 16
PROVED: Final = 12
HOST: Final = b" HTTP/1.1\r\nHost: localhost\r\n"
LIVEZ: Final = b"GET /livez" + HOST + b"\r\n"
HOOK: Final = b"POST /signed" + HOST + b"X-Signature: 00\r\nContent-Length: 900\r\n"
"""Without its body: it proves nothing."""
KEYS: Final = (
    key("alpha1", "read", "submit", tenant="alpha"),
    key("alpha2", "read", "submit", tenant="alpha"),
    key("beta", "read", "submit", tenant="beta"),
    key("gamma", "read", "submit", tenant="gamma"),
)


def request(target: str, name: str, more: bytes = b"") -> bytes:
    return target.encode() + HOST + b"Authorization: Bearer jw_%b\r\n%b\r\n" % (name.encode(), more)


def stream(name: str) -> bytes:
    return request("GET /channels/a/events", name)


def waits(name: str) -> bytes:
    return request("GET /waits", name)


def pipelined_waits(name: str) -> bytes:
    return waits(name) * 10


def never_ends(name: str) -> bytes:
    return request("GET /forever", name)


def body_of(name: str) -> bytes:
    """The head of a request with a body."""
    return request("POST /echo", name, b"Content-Length: 9\r\n")


async def until_left(request: HttpRequest) -> Reply:
    """As `Prefer: wait`: what is known now if the client leaves."""
    found = await request.while_present(asyncio.Event().wait())
    return Reply(b"ended" if found else b"not ended")


async def forever(_: HttpRequest) -> Reply:
    """A route that forgets that its client may leave."""
    await asyncio.Event().wait()
    return Reply()


class Gate:
    """A gateway, and the connections that a test opens."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.events = EventsFeature()
        more = Feature(
            name="more",
            routes=[
                route("GET", "/waits", "read", until_left),
                route("GET", "/forever", "read", forever),
                route("POST", "/signed", SIGNED, until_left),
            ],
        )
        self.served = Serving(settings, test_feature(), self.events, more)
        self.peers: list[socket.socket] = []

    @property
    def accounts(self) -> Accounts:
        return self.served.gateway.accounts

    def send(self, data: bytes, address: str = "127.0.0.1") -> socket.socket:
        peer = socket.create_connection(
            ("127.0.0.1", self.served.port), timeout=30, source_address=(address, 0)
        )
        self.peers.append(peer)
        peer.sendall(data)
        return peer

    def ask(self, data: bytes, address: str = "127.0.0.1") -> bytes:
        """The answer to a client that comes and goes."""
        peer = self.send(data, address)
        self.peers.remove(peer)
        with peer:
            return read_answer(peer)

    def begun(self, data: bytes, times: int, name: str) -> list[socket.socket]:
        """So many requests of a key that are being answered."""
        before = self.running(name)
        peers = [self.send(data) for _ in range(times)]
        wait_until_sync(lambda: self.running(name) == before + times, f"requests of {name}")
        return peers

    def running(self, name: str) -> int:
        account = self.accounts.by_key.get(name)
        return account.running if account else 0

    def end(self, name: str) -> int:
        """End the requests of a key."""
        return on_loop(self.served, lambda: self.accounts.end(name))

    def nobody_is_kept_out(self, address: str = "127.0.0.1") -> None:
        """Health is answered, and so are two other tenants; no connection is beyond the limit."""
        assert status_of(self.ask(LIVEZ, address)) == 200
        for name in ("beta", "gamma"):
            assert status_of(self.ask(body_of(name) + b'{"a": 12}', address)) == 200
        assert len(self.accounts.connections) <= LIMIT
        assert self.accounts.proved <= PROVED

    def is_empty(self) -> bool:
        every = (self.accounts.connections, self.served.server.state.tasks, self.accounts.proved)
        return not any(every)


@pytest.fixture(scope="module")
def gate_of_keys() -> Iterator[Gate]:
    gate = Gate(GatewaySettings(keys=KEYS, max_connections=LIMIT))
    with gate.served:
        yield gate


@pytest.fixture
def gate(gate_of_keys: Gate) -> Iterator[Gate]:
    yield from emptied(gate_of_keys)


def emptied(gate: Gate) -> Iterator[Gate]:
    """At the end no connection, no task and nothing in the account is left."""
    yield gate
    for peer in gate.peers:
        peer.close()
    gate.peers.clear()
    for name in tuple(gate.accounts.by_key):
        gate.end(name)
    wait_until_sync(gate.is_empty, "all connections and requests to be closed")


def rest_of(peer: socket.socket) -> bytes:
    got = b""
    with contextlib.suppress(ConnectionError):
        while part := peer.recv(65536):
            got += part
    return got


def is_open(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        return bool(peer.recv(65536, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
    finally:
        peer.settimeout(30)


# ── those who have proved nothing ────────────────────────────────────────────────────────────────


@clause("O-6", "O-15")
def test_o15_an_invented_proof_without_its_body_keeps_nobody_out(gate: Gate) -> None:
    """Regression: without a key, it took every connection of a gateway that serves webhooks."""
    for _ in range(5):
        for _ in range(LIMIT):
            gate.send(HOOK + b"\r\n")
        gate.nobody_is_kept_out()
    assert gate.accounts.proved == 0


@clause("O-15")
@needs_loopback_network
def test_o15_who_has_most_connections_gives_the_oldest(gate: Gate) -> None:
    """A client of another address keeps its idle connection, although it is the oldest of all."""
    other = gate.send(LIVEZ, "127.0.0.9")
    assert status_of(read_answer(other)) == 200
    strangers = [gate.send(HOOK + b"\r\n") for _ in range(3 * LIMIT)]
    gate.nobody_is_kept_out()
    wait_until_sync(lambda: not is_open(strangers[0]), "the oldest to be closed")
    assert not any(is_open(peer) for peer in strangers[:LIMIT])
    assert is_open(strangers[-1])
    other.sendall(LIVEZ)
    assert status_of(read_answer(other)) == 200


@clause("O-15")
@needs_loopback_network
@pytest.mark.parametrize("examined", [2, 256])
def test_o15_idle_connections_are_found_behind_proved_requests(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, examined: int
) -> None:
    """However few are examined for one new connection, the next one goes on behind them."""
    monkeypatch.setattr(accounts, "_EXAMINED", examined)
    streams = gate.begun(stream("alpha1"), PROVED, "alpha1")
    for _ in range(4 * LIMIT):
        gate.send(b"", "127.0.0.9")
    wait_until_sync(lambda: gate.ask(LIVEZ).startswith(b"HTTP/1.1 200"), "health")
    assert all(is_open(peer) for peer in streams)
    assert len(gate.accounts.connections) <= LIMIT + PROVED / examined


@clause("O-15")
def test_o15_a_connection_in_use_is_closed_last(gate: Gate) -> None:
    """Of one address: one that was used since the search has passed it has a second chance."""
    used, *idle = (gate.send(b"") for _ in range(LIMIT))
    for _ in range(LIMIT):
        used.sendall(LIVEZ)
        assert status_of(read_answer(used)) == 200
        gate.send(b"")
    wait_until_sync(lambda: not any(is_open(peer) for peer in idle), "idle ones to be closed")
    assert is_open(used)


# ── those who have proved their key ──────────────────────────────────────────────────────────────


@clause("O-6", "O-15")
@pytest.mark.parametrize("asked", [stream, waits, body_of, never_ends])
def test_o15_one_key_leaves_a_quarter_and_gives_way(
    gate: Gate, asked: Callable[[str], bytes]
) -> None:
    """Regression: event streams, waits or slow bodies of one key took every connection."""
    gate.begun(asked("alpha1"), PROVED, "alpha1")
    for _ in range(2 * LIMIT):
        refused = gate.ask(asked("alpha1"))
        assert status_of(refused) == 429
        assert b'"too_many_requests"' in refused
        assert b"\r\nretry-after: " in refused
    assert status_of(gate.ask(LIVEZ)) == 200
    assert gate.running("alpha1") == PROVED, "nothing gives way to its own key"
    gate.nobody_is_kept_out()
    assert gate.running("alpha1") >= PROVED - 2


@clause("O-15")
def test_o15_a_wait_that_gives_way_is_answered(gate: Gate) -> None:
    peers = gate.begun(waits("alpha1"), PROVED, "alpha1")
    assert status_of(gate.ask(body_of("beta") + b'{"a": 12}')) == 200
    ended = rest_of(peers[0])
    assert status_of(ended) == 503
    assert b'"displaced"' in ended
    assert b"\r\nretry-after: " in ended
    assert all(is_open(peer) for peer in peers[1:])


@clause("O-15")
def test_o15_streams_and_waits_give_way_before_other_requests(gate: Gate) -> None:
    """Also if they are younger: a client that waits again loses nothing."""
    body = gate.begun(body_of("alpha1"), 1, "alpha1")[0]
    streams = gate.begun(stream("alpha1"), PROVED - 1, "alpha1")
    assert status_of(gate.ask(body_of("beta") + b'{"a": 12}')) == 200
    assert b"HTTP/1.1 200" in rest_of(streams[0])
    body.sendall(b'{"a": 12}')
    assert status_of(read_answer(body)) == 200


@clause("O-6", "O-15")
def test_o15_keys_of_one_tenant_share_its_part(gate: Gate) -> None:
    """Tenants get equal parts, and so do the keys of one, however many it has."""
    gate.begun(stream("alpha1"), PROVED - 3, "alpha1")
    gate.begun(stream("alpha2"), 3, "alpha2")
    mine = [gate.send(stream("beta")) for _ in range(PROVED // 2)]
    assert all(b"200 OK" in peer.recv(65536) for peer in mine)
    assert gate.running("alpha2") == 3, "the largest key of the tenant gave"
    assert gate.running("alpha1") == PROVED // 2 - 3
    assert status_of(gate.ask(stream("beta"))) == 429, "both have the same"
    assert status_of(gate.ask(stream("alpha2"))) == 429
    third = [gate.send(stream("gamma")) for _ in range(PROVED // 3)]
    assert all(b"200 OK" in peer.recv(65536) for peer in third)
    assert gate.running("beta") == PROVED // 3
    assert gate.running("alpha1") + gate.running("alpha2") == PROVED // 3


@clause("O-6", "O-15")
def test_o15_a_tenant_alone_uses_all_but_a_quarter(gate: Gate) -> None:
    gate.begun(stream("alpha1"), PROVED, "alpha1")
    for _ in range(PROVED // 2):
        assert b"200 OK" in gate.send(stream("alpha2")).recv(65536)
    assert gate.running("alpha1") == gate.running("alpha2") == PROVED // 2


@clause("O-15")
def test_o15_one_connection_has_one_request_at_a_time(gate: Gate) -> None:
    """Requests in a pipeline begin when the task of the one before has ended."""
    for _ in range(PROVED):
        gate.send(waits("alpha1") * 10)
    wait_until_sync(lambda: gate.running("alpha1") == PROVED, "the first of each connection")
    assert len(gate.served.server.state.tasks) == PROVED
    gate.nobody_is_kept_out()


@clause("O-6")
def test_o06_a_connection_of_many_keys_belongs_to_each_while_it_is_answered(gate: Gate) -> None:
    """As from a proxy that uses one connection for all of its clients."""
    peer = gate.send(b"")
    for name in ("alpha1", "beta", "alpha2", "beta", "gamma"):
        peer.sendall(body_of(name))
        wait_until_sync(lambda name=name: gate.running(name) == 1, "the request")
        assert gate.accounts.proved == 1
        peer.sendall(b'{"a": 12}')
        assert status_of(read_answer(peer)) == 200
        wait_until_sync(lambda: gate.accounts.proved == 0, "the end of the request")


# ── clients that leave ───────────────────────────────────────────────────────────────────────────


@clause("O-6", "O-15")
@pytest.mark.parametrize("asked", [stream, waits, pipelined_waits])
def test_o15_a_wait_ends_when_its_client_leaves(gate: Gate, asked: Callable[[str], bytes]) -> None:
    """Regression: a client with one descriptor took all, because it closed each connection."""
    for _ in range(3):
        for peer in gate.begun(asked("alpha1"), PROVED, "alpha1"):
            peer.close()
        wait_until_sync(gate.is_empty, "the requests to end")


@clause("O-15")
def test_o15_a_request_whose_client_has_left_belongs_to_its_key(gate: Gate) -> None:
    """A route that does not notice it takes from its own key only."""
    for peer in gate.begun(never_ends("alpha1"), PROVED, "alpha1"):
        peer.close()
    connections = gate.served.server.state.connections
    wait_until_sync(
        lambda: all(each.transport.is_closing() for each in tuple(connections)), "their sockets"
    )
    refused = gate.ask(never_ends("alpha1"))
    assert status_of(refused) == 429
    assert gate.running("alpha1") == PROVED
    gate.nobody_is_kept_out()


@clause("O-15", "O-9")
def test_o15_a_half_closed_wait_gets_what_is_known(gate: Gate) -> None:
    for peer in gate.begun(waits("alpha1"), PROVED, "alpha1"):
        peer.shutdown(socket.SHUT_WR)
        got = rest_of(peer)
        assert status_of(got) == 200
        assert got.endswith(b"not ended")
    wait_until_sync(lambda: gate.accounts.proved == 0, "the requests to end")


@clause("O-15")
def test_o15_a_half_closed_client_that_is_not_answered_is_reset(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_LINGER_S", 0.0)
    peer = gate.begun(never_ends("alpha1"), 1, "alpha1")[0]
    peer.shutdown(socket.SHUT_WR)
    assert rest_of(peer) == b""
    assert gate.end("alpha1") == 1


# ── keys that are no longer valid ────────────────────────────────────────────────────────────────


@clause("O-6")
def test_o06_the_requests_of_a_revoked_key_are_ended(gate: Gate) -> None:
    streams = gate.begun(stream("alpha1"), 3, "alpha1")
    waiting = gate.begun(waits("alpha1"), 3, "alpha1")
    others = gate.begun(stream("alpha2"), 3, "alpha2")
    assert gate.end("alpha1") == 6
    assert gate.end("alpha1") == 0
    for peer in streams:
        assert b"HTTP/1.1 200" in rest_of(peer)
    for peer in waiting:
        assert status_of(rest_of(peer)) == 401
    wait_until_sync(lambda: len(gate.served.server.state.tasks) == 3, "the tasks to end")
    assert gate.accounts.proved == gate.running("alpha2") == 3
    assert all(is_open(peer) for peer in others)


@clause("O-15")
def test_o15_keys_without_a_request_are_forgotten(gate: Gate) -> None:
    """Every upload has a key of its own."""
    gate.begun(stream("alpha2"), 1, "alpha2")
    for name in ("alpha1", "beta"):
        assert status_of(gate.ask(body_of(name) + b'{"a": 12}')) == 200
    wait_until_sync(lambda: list(gate.accounts.by_key) == ["alpha2"], "the accounts to be removed")


# ── without keys ─────────────────────────────────────────────────────────────────────────────────


@clause("O-15")
def test_o15_without_keys_all_programs_are_one_key() -> None:
    gate = Gate(GatewaySettings(max_connections=LIMIT))
    opened = b"GET /channels/a/events" + HOST + b"\r\n"
    with gate.served:
        for gate_ in emptied(gate):
            gate_.begun(opened, PROVED, "local")
            assert status_of(gate_.ask(opened)) == 429
            for _ in range(2 * LIMIT):
                gate_.send(b"")
            assert status_of(gate_.ask(LIVEZ)) == 200
            assert gate_.running("local") == PROVED


# ── proxies ──────────────────────────────────────────────────────────────────────────────────────

PROXY: Final = "127.0.0.2"


@pytest.fixture(scope="module")
def gate_of_proxies() -> Iterator[Gate]:
    gate = Gate(GatewaySettings(keys=KEYS, max_connections=LIMIT, proxies=(PROXY,)))
    with gate.served:
        yield gate


@pytest.fixture
def proxied(gate_of_proxies: Gate) -> Iterator[Gate]:
    yield from emptied(gate_of_proxies)


def forwarded(head: bytes, chain: str) -> bytes:
    return head + b"X-Forwarded-For: %b\r\n\r\n" % chain.encode()


@clause("O-6", "O-15")
@needs_loopback_network
def test_o15_idle_connections_of_a_proxy_are_kept(proxied: Gate) -> None:
    """Whatever strangers do through the same proxy: it may just be sending a request on them."""
    idle = [proxied.send(LIVEZ, PROXY) for _ in range(4)]
    assert all(status_of(read_answer(peer)) == 200 for peer in idle)
    for number in range(3 * LIMIT):
        proxied.send(forwarded(HOOK, f"198.51.100.{number}, 203.0.113.7"), PROXY)
    proxied.nobody_is_kept_out()
    for peer in idle:
        peer.sendall(LIVEZ)
        assert status_of(read_answer(peer)) == 200


@clause("O-6", "O-15")
@needs_loopback_network
def test_o15_a_request_through_a_proxy_belongs_to_the_address_it_came_from(proxied: Gate) -> None:
    """Not to the proxy, and not to an address that the client has invented."""
    honest = proxied.send(forwarded(HOOK, "203.0.113.8").replace(b"900", b"17"), PROXY)
    for number in range(3 * LIMIT):
        proxied.send(forwarded(HOOK, f"198.51.100.{number}, 203.0.113.7"), PROXY)
    proxied.nobody_is_kept_out("127.0.0.9")
    honest.sendall(BODY)
    assert status_of(read_answer(honest)) == 401, "its proof was looked at"


@clause("O-15")
@needs_loopback_network
def test_o15_idle_connections_of_a_proxy_are_bounded(
    proxied: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "_EXAMINED", 4)
    for _ in range(3 * LIMIT):
        proxied.send(b"", PROXY)
    assert status_of(proxied.ask(LIVEZ)) == 200
    assert len(proxied.accounts.connections) <= LIMIT + 4


@clause("O-6")
@pytest.mark.parametrize(
    ("chain", "found"),
    [
        (b"203.0.113.7", "203.0.113.7"),
        (b"6.6.6.6, 203.0.113.7", "203.0.113.7"),
        (b"6.6.6.6, 203.0.113.7, 10.0.0.9, 192.0.2.1", "203.0.113.7"),
        (b"6.6.6.6, 203.0.113.7:4711", "203.0.113.7"),
        (b"::ffff:203.0.113.7, ::ffff:10.0.0.9", "203.0.113.7"),
        (b"2001:db8:0:1::7", "20010db800000001"),
        (b"[2001:db8:0:1::8]:4711", "20010db800000001"),
        (b"6.6.6.6, invented", None),
        (b"10.0.0.9", None),
        (b"", None),
    ],
)
def test_o06_the_last_hop_that_is_not_a_proxy_counts(chain: bytes, found: str | None) -> None:
    proxies = Proxies(("10.0.0.0/8", "192.0.2.1"))
    assert proxies.client([(b"host", b"x"), (b"x-forwarded-for", chain)]) == found
    before, comma, last = chain.rpartition(b",")
    if comma:  # two headers are one list
        split = [(b"x-forwarded-for", before), (b"x-forwarded-for", last)]
        assert proxies.client(split) == found


@clause("O-6")
@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("2001:db8:0:1::1", "20010db800000001"),
        ("2001:db8:0:1:ffff::", "20010db800000001"),
        ("2001:db8:0:2::1", "20010db800000002"),
        ("fe80::1%eth0", "fe80000000000000"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("", ""),
        ("not: an address", "not: an address"),
    ],
)
def test_o06_an_ipv6_client_is_its_network(address: str, expected: str) -> None:
    assert network(address) == expected


@clause("O-6")
def test_o06_proxies_and_streams_are_checked_in_the_settings() -> None:
    def faults(**given: Any) -> dict[str, str]:
        return dict(GatewaySettings(**given).check())

    assert not faults(proxies=("10.1.2.3", "10.1.0.0/16", "2001:db8::/32"))
    for wrong in ("10.1.2.3/16", "proxy.example", "0.0.0.0/0", "::/0", ""):
        assert "proxies" in faults(proxies=(wrong,)), wrong
    assert not faults(streams_per_key=37_500)
    assert "streams_per_key" in faults(streams_per_key=37_501)
    assert "streams_per_key" in faults(streams_per_key=13, max_connections=LIMIT)
    assert not faults(max_connections=LIMIT)


@clause("O-15")
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 16, 1088, 50_000])
def test_o15_a_quarter_always_waits(limit: int) -> None:
    most = Accounts(limit).most_proved
    assert 1 <= most <= max(1, limit * 3 / 4)


def test_an_account_is_not_needed_on_a_server_of_others() -> None:
    """`prove` and `while_present` work with any ASGI server."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        raise AssertionError("nothing is sent")

    async def ask() -> None:
        request = HttpRequest({"type": "http", "headers": []}, receive, send)
        prove(request, request.principal)
        assert await request.while_present(asyncio.Event().wait()) is None
        with pytest.raises(Problem):
            await request.while_present(fails())

    async def fails() -> None:
        raise Problem(accounts.BAD_KEY)

    asyncio.run(ask())
