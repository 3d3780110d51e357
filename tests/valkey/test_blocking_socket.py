"""The blocking socket: no event loop, one command at a time, the documented errors."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from jobwire.local import LocalValkey, free_port
from jobwire.valkey import (
    AuthFailed,
    Config,
    ConnectionLost,
    NotSent,
    Script,
    ServerError,
    Unavailable,
    Unsupported,
)
from jobwire.valkey.blocking_socket import BlockingSocket
from tests.support import Fresh, Plain, Proxy, wait_until_sync
from tests.support.patience import PATIENCE
from tests.support.tls import own_certificate

REPLY_S = PATIENCE.total_seconds()


@pytest.fixture
def own(valkey: LocalValkey) -> Iterator[BlockingSocket]:
    opened = BlockingSocket(Config.from_url(valkey.url), "tests-thread", timeout_s=REPLY_S)
    yield opened
    opened.close()


ADD = Script("add", "adds", "return {KEYS[1], ARGV[1] + 1}", ("key",), ("number",), ("sum",), ())


def test_connects_on_first_use_and_keeps_the_socket(own: BlockingSocket, plain: Plain) -> None:
    names = [client["name"] for client in plain.client_list()]
    assert "tests-thread" not in names
    assert own.call("ECHO", "hello") == "hello"
    assert own.call("ECHO", b"caf\xc3\xa9") == "café"
    names = [client["name"] for client in plain.client_list()]
    assert names.count("tests-thread") == 1


def test_a_script_is_sent_to_a_server_that_does_not_have_it(
    own: BlockingSocket, plain: Plain, fresh: Fresh
) -> None:
    key = fresh()
    plain.script_flush()
    assert own.run(ADD, [key], [41]) == [key, 42]
    assert own.run(ADD, [key], [1]) == [key, 2]


def test_a_reply_larger_than_one_read_is_complete(own: BlockingSocket) -> None:
    text = "x" * 300_000
    assert own.call("ECHO", text) == text


def test_the_socket_is_usable_after_an_error_reply(own: BlockingSocket) -> None:
    with pytest.raises(ServerError) as refused:
        own.call("EVALSHA", "nonsense", 0)
    assert refused.value.code == "NOSCRIPT"
    assert own.call("PING") == "PONG"


def test_a_lost_connection_raises_once_and_the_next_call_reconnects(
    valkey: LocalValkey, proxy: Proxy
) -> None:
    own = BlockingSocket(Config.from_url(proxy.url(valkey.url)), "tests-thread", timeout_s=REPLY_S)
    own.call("PING")
    proxy.cut_reply("ECHO")
    with pytest.raises(ConnectionLost, match="may have run"):
        own.call("ECHO", "x")
    assert own.call("ECHO", "y") == "y"
    own.close()


def test_a_call_to_a_hanging_server_times_out(valkey: LocalValkey, proxy: Proxy) -> None:
    own = BlockingSocket(Config.from_url(proxy.url(valkey.url)), "tests-thread", timeout_s=1)

    def answers() -> bool:
        with contextlib.suppress(ConnectionLost, Unavailable):
            return own.call("PING") == "PONG"
        return False

    wait_until_sync(answers, "an answer in time")
    proxy.silence()
    with pytest.raises(ConnectionLost):
        own.call("PING")
    with pytest.raises(Unavailable):
        own.call("PING")
    own.close()


def test_connection_refused() -> None:
    own = BlockingSocket(
        Config(address=f"127.0.0.1:{free_port()}"), "tests-thread", timeout_s=REPLY_S
    )
    with pytest.raises(Unavailable, match="cannot connect"):
        own.call("PING")


def test_a_wrong_password(valkey: LocalValkey) -> None:
    config = Config(address=valkey.address, username="jobwire", password="wrong")
    own = BlockingSocket(config, "tests-thread", timeout_s=REPLY_S)
    with pytest.raises(AuthFailed, match="wrong name or password") as refused:
        own.call("PING")
    assert "'wrong'" not in str(refused.value)


def test_not_a_valkey() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            peer, _ = listener.accept()
            peer.settimeout(30)
            with peer:
                peer.recv(1000)
                peer.sendall(b"+OK\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        port = listener.getsockname()[1]
        own = BlockingSocket(Config(address=f"127.0.0.1:{port}"), "tests-thread", timeout_s=REPLY_S)
        with pytest.raises(Unsupported):
            own.call("PING")
        thread.join(30)


def test_over_tls_and_in_another_database(valkey: LocalValkey) -> None:
    context = own_certificate().client_context()
    with Proxy(valkey.port, tls=True) as proxy:
        url = proxy.url(valkey.url).removesuffix("/0") + "/3"
        config = Config.from_url(url, tls_context=context)
        own = BlockingSocket(config, "tests-thread", timeout_s=REPLY_S)
        assert own.call("PING") == "PONG"
        assert proxy.seen("SELECT")[0].words == ("SELECT", "3")
        own.close()


def test_close_ends_a_waiting_call_and_every_later_one(own: BlockingSocket, plain: Plain) -> None:
    ended: list[Exception] = []

    def wait() -> None:
        try:
            own.call("BLPOP", "tests:never", 0)
        except ConnectionLost as error:
            ended.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    wait_until_sync(lambda: plain.info("clients")["blocked_clients"] == 1, "the blocked call")
    own.close()
    thread.join(30)
    assert len(ended) == 1
    with pytest.raises(NotSent):
        own.call("PING")
