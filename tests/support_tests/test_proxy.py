"""The proxy causes network faults on request."""

from __future__ import annotations

import contextlib
import gc
import socket
import ssl
import warnings
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from jobwire.local import LocalValkey
from jobwire.valkey import Config, Connection
from tests.support import Fresh, Plain, Proxy, wait_until_sync
from tests.support.resp import CommandReader
from tests.support.servers import plain_from_url
from tests.support.tls import own_certificate

PING = b"*1\r\n$4\r\nPING\r\n"
ECHO = b"*2\r\n$4\r\nECHO\r\n$5\r\nhello\r\n"


@contextmanager
def raw_client(proxy: Proxy, server: LocalValkey) -> Generator[socket.socket]:
    """A bare socket through the proxy, authenticated."""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as client:
        words = ["AUTH", "jobwire", server.password]
        client.sendall(b"*3\r\n" + b"".join(f"${len(w)}\r\n{w}\r\n".encode() for w in words))
        assert client.recv(100) == b"+OK\r\n"
        proxy.forget_seen()
        yield client


def is_cut(client: socket.socket) -> bool:
    """Wait until the peer has closed the connection."""
    try:
        return client.recv(100) == b""
    except ConnectionResetError:
        return True


def test_the_proxy_records_both_directions(valkey: LocalValkey, proxy: Proxy) -> None:
    with raw_client(proxy, valkey) as client:
        client.sendall(PING + ECHO[:9])
        assert client.recv(100) == b"+PONG\r\n"
        client.sendall(ECHO[9:])
        assert client.recv(100) == b"$5\r\nhello\r\n"
    assert [command.words for command in proxy.commands] == [("PING",), ("ECHO", "hello")]
    assert proxy.names == ["PING", "ECHO"]
    assert proxy.wait_seen("echo").words == ("ECHO", "hello")
    assert proxy.seen(lambda command: "hello" in command.words) == proxy.seen("ECHO")
    assert bytes(proxy.sent) == PING + ECHO
    assert bytes(proxy.received) == b"+PONG\r\n$5\r\nhello\r\n"


def test_a_held_command_waits_before_the_server_sees_it(
    valkey: LocalValkey, proxy: Proxy, plain: Plain, fresh: Fresh
) -> None:
    key = fresh()
    command = f"*5\r\n$3\r\nSET\r\n${len(key)}\r\n{key}\r\n$1\r\n1\r\n$2\r\nEX\r\n$2\r\n60\r\n"
    with raw_client(proxy, valkey) as client, proxy.hold("SET") as hold:
        client.sendall(PING + command.encode() + PING)
        assert hold.wait_reached().words[1] == key
        assert client.recv(100) == b"+PONG\r\n", "earlier commands have passed"
        assert plain.get(key) is None
        assert proxy.names == ["PING", "SET"], "later commands wait behind it"
        hold.release()
        wait_until_sync(lambda: plain.get(key) == "1", "the command to arrive")


def test_cut_breaks_every_connection(valkey: LocalValkey, proxy: Proxy) -> None:
    with raw_client(proxy, valkey) as one, raw_client(proxy, valkey) as two:
        assert proxy.connections == 2
        proxy.cut()
        assert is_cut(one)
        assert is_cut(two)
        wait_until_sync(lambda: proxy.connections == 0, "both to be gone")
    with raw_client(proxy, valkey) as again:
        again.sendall(PING)
        assert again.recv(100) == b"+PONG\r\n", "new connections are accepted"
    assert proxy.accepted == 3


def test_cut_in_the_middle_of_a_command(valkey: LocalValkey, proxy: Proxy) -> None:
    with raw_client(proxy, valkey) as client:
        proxy.cut_at("ECHO", 7)
        client.sendall(PING + ECHO)
        wait_until_sync(lambda: proxy.connections == 0, "the cut")
    assert bytes(proxy.sent) == PING + ECHO[:7]


def test_cut_after_a_number_of_bytes(valkey: LocalValkey, proxy: Proxy) -> None:
    with raw_client(proxy, valkey) as client:
        proxy.cut_after(len(PING) + 3)
        client.sendall(PING)
        assert client.recv(100) == b"+PONG\r\n"
        client.sendall(PING)
        assert is_cut(client)
    assert bytes(proxy.sent) == PING + PING[:3]


def test_a_command_runs_but_its_reply_is_lost(
    valkey: LocalValkey, proxy: Proxy, plain: Plain, fresh: Fresh
) -> None:
    key = fresh()
    with raw_client(proxy, valkey) as client:
        proxy.cut_reply("INCR")
        client.sendall(f"*2\r\n$4\r\nINCR\r\n${len(key)}\r\n{key}\r\n".encode())
        assert is_cut(client)
    assert plain.get(key) == "1"
    plain.expire(key, 60)


def test_half_close_ends_the_answers_only(valkey: LocalValkey, proxy: Proxy) -> None:
    with raw_client(proxy, valkey) as client:
        proxy.half_close()
        assert client.recv(100) == b"", "an orderly end"
        client.sendall(PING)
        proxy.wait_seen("PING")
        wait_until_sync(lambda: bytes(proxy.received) == b"+PONG\r\n", "the server's answer")


def test_a_peer_that_never_reads_blocks_its_client(valkey: LocalValkey, proxy: Proxy) -> None:
    with raw_client(proxy, valkey) as client:
        proxy.stop_reading()
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.sendall(PING * 2_000_000)
        client.settimeout(30)
        proxy.resume_reading()
        assert client.recv(7) == b"+PONG\r\n"
        proxy.cut()


def test_silence_keeps_the_connection_and_sends_nothing(valkey: LocalValkey, proxy: Proxy) -> None:
    with raw_client(proxy, valkey) as client:
        proxy.silence()
        client.sendall(PING)
        proxy.wait_seen("PING")
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(100)
        assert proxy.connections == 1
        assert not proxy.received


def test_delay_slows_both_ways_but_loses_nothing(valkey: LocalValkey, proxy: Proxy) -> None:
    with raw_client(proxy, valkey) as client:
        proxy.delay_s = 0.05
        client.sendall(PING)
        assert client.recv(100) == b"+PONG\r\n"


def test_refuse_drops_all_and_accepts_no_connection(valkey: LocalValkey, proxy: Proxy) -> None:
    with raw_client(proxy, valkey) as client:
        proxy.refuse()
        assert is_cut(client)
    # The reset may come before connect has returned.
    with (
        contextlib.suppress(ConnectionResetError),
        socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as client,
    ):
        assert is_cut(client)
    proxy.accept()
    with raw_client(proxy, valkey) as client:
        client.sendall(PING)
        assert client.recv(100) == b"+PONG\r\n"


def test_the_upstream_can_be_changed(
    valkey: LocalValkey, own_valkey: LocalValkey, proxy: Proxy
) -> None:
    with raw_client(proxy, valkey):
        proxy.upstream = own_valkey.port
        proxy.cut()
    with raw_client(proxy, own_valkey) as client:
        client.sendall(PING)
        assert client.recv(100) == b"+PONG\r\n"


async def test_the_proxy_offers_tls_to_the_client(valkey: LocalValkey, fresh: Fresh) -> None:
    context = own_certificate().client_context()
    with Proxy(valkey.port, tls=True) as proxy:
        url = proxy.url(valkey.url)
        assert url.startswith("valkeys://")
        async with Connection.open(Config.from_url(url, tls_context=context)) as connection:
            assert await connection.call("ECHO", "secret") == "secret"
        assert proxy.seen("ECHO")[0].words == ("ECHO", "secret")


def test_the_certificate_of_the_proxy_is_not_trusted_by_default(valkey: LocalValkey) -> None:
    strict = ssl.create_default_context()
    with (
        Proxy(valkey.port, tls=True) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port)) as bare,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        strict.wrap_socket(bare, server_hostname="127.0.0.1")


def test_stopping_the_proxy_ends_all_connections(valkey: LocalValkey) -> None:
    proxy = Proxy(valkey.port).start()
    with raw_client(proxy, valkey) as client:
        hold = proxy.hold("PING")
        client.sendall(PING)
        hold.wait_reached()
        proxy.stop()
        proxy.stop()
        assert is_cut(client)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port))


@pytest.mark.parametrize(
    ("url", "through"),
    [
        ("valkey://user:pw@127.0.0.1:7000/0", "valkey://user:pw@127.0.0.1:{port}/0"),
        ("redis://127.0.0.1:7000", "redis://127.0.0.1:{port}"),
        ("valkey://127.0.0.1:7000/3", "valkey://127.0.0.1:{port}/3"),
    ],
)
def test_a_url_through_the_proxy(proxy: Proxy, url: str, through: str) -> None:
    assert proxy.url(url) == through.format(port=proxy.port)


def test_a_pooled_client_gets_an_error_after_refuse(
    valkey: LocalValkey, proxy: Proxy, fresh: Fresh
) -> None:
    with plain_from_url(proxy.url(valkey.admin_url)) as through:
        through.ping()
        proxy.refuse()
        with pytest.raises(RedisConnectionError):
            through.ping()


def test_commands_are_split_at_any_byte_boundary() -> None:
    stream = PING + ECHO + PING
    for size in range(1, len(stream)):
        reader = CommandReader()
        found = [
            command
            for start in range(0, len(stream), size)
            for command in reader.feed(stream[start : start + size])
        ]
        assert [command.words for command in found] == [("PING",), ("ECHO", "hello"), ("PING",)]
        assert b"".join(command.raw for command in found) == stream
        assert reader.rest == b""


def test_bytes_that_are_no_command_pass_unchanged() -> None:
    reader = CommandReader()
    assert [each.raw for each in reader.feed(b"PING\r\n")] == [b"PING\r\n"]
    assert [each.raw for each in reader.feed(PING)] == [PING]


@pytest.mark.parametrize("tls", [False, True])
def test_a_proxy_that_stops_among_new_connections_leaves_no_socket_open(
    valkey: LocalValkey, tls: bool
) -> None:
    """Clients dial while it stops: each connection is closed, whatever had become of it by then."""
    with warnings.catch_warnings(record=True) as left_open:
        warnings.simplefilter("always", ResourceWarning)
        for _ in range(20):
            with contextlib.ExitStack() as clients, Proxy(valkey.port, tls=tls) as proxy:
                for _ in range(10):
                    client = clients.enter_context(socket.socket())
                    client.setblocking(False)
                    with contextlib.suppress(BlockingIOError):
                        client.connect(("127.0.0.1", proxy.port))
        gc.collect()
    assert [str(each.message) for each in left_open] == []
