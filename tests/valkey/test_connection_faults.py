"""Network and server faults: the documented error, then reconnection."""

import asyncio
import gc
import logging
import time
from contextlib import AsyncExitStack

import pytest
from redis import Redis

from jobwire.local import LocalValkey
from jobwire.valkey import (
    Config,
    Connection,
    ConnectionLost,
    NotSent,
    ServerError,
    Unavailable,
    resp_socket,
)
from jobwire.valkey.connection import Opening
from jobwire.valkey.pool import OwnSocket
from tests.support import Fresh, Proxy, clause, wait_until, wait_until_sync
from tests.support.wait import DEADLINE_S

pytestmark = clause("T-2", "T-4")


def open_with_short_timeouts(url: str, *, pool_size: int = 8) -> Opening:
    """Short timeouts, for tests that wait for one of them. A loaded machine may need more than one
    attempt to connect in that time."""
    config = Config.from_url(
        url,
        dial_timeout_s=0.5,
        failover_timeout_s=0.5,
        read_timeout_s=0.3,
        write_timeout_s=0.3,
        pool_size=pool_size,
    )
    return Connection.open(config, connect_timeout_s=DEADLINE_S)


async def test_t04_a_reply_that_nobody_awaits_is_not_logged_as_lost(
    valkey: LocalValkey, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    async with Connection.open(proxy.url(valkey.url)) as connection:
        connection.call("NO-SUCH-COMMAND")
        await connection.call("ECHO", "answered")
        with proxy.hold("PING") as held:
            connection.call("PING")
            await held.until_reached()
            proxy.cut()
            await wait_until(lambda: not connection.connected, "the loss of the connection")
    gc.collect()
    assert "never retrieved" not in caplog.text


async def own_socket(connection: Connection, stack: AsyncExitStack) -> OwnSocket:
    """An exclusive socket, released when the stack is closed."""

    async def opened() -> OwnSocket | None:
        try:
            return await stack.enter_async_context(connection.socket())
        except Unavailable:
            return None

    own = await wait_until(opened, "a connect in time")
    assert own is not None
    return own


async def wait_connected(connection: Connection) -> None:
    """Wait until commands are answered again."""

    async def answers() -> bool:
        try:
            return await connection.ping() == "PONG"
        except (ConnectionLost, NotSent, Unavailable, ServerError):
            return False

    await wait_until(answers, "the reconnect")


async def test_t02_a_lost_reply_raises_and_the_command_is_not_sent_again(
    valkey: LocalValkey, proxy: Proxy, plain: Redis, fresh: Fresh
) -> None:
    key = fresh("counter")
    async with Connection.open(proxy.url(valkey.url)) as connection:
        proxy.cut_reply("INCR")
        with pytest.raises(ConnectionLost, match="may have run") as caught:
            await connection.call("INCR", key)
        assert caught.value.may_have_run
        assert caught.value.__cause__ is not None
        await wait_connected(connection)
        assert await connection.call("GET", key) == "1"
    assert len(proxy.seen("INCR")) == 1
    plain.delete(key)


async def test_t02_a_command_cut_halfway_does_not_run(
    valkey: LocalValkey, proxy: Proxy, plain: Redis, fresh: Fresh
) -> None:
    key = fresh("counter")
    async with Connection.open(proxy.url(valkey.url)) as connection:
        proxy.cut_at("INCR", 9)
        with pytest.raises(ConnectionLost):
            await connection.call("INCR", key)
        await wait_connected(connection)
    assert plain.get(key) is None


async def test_t02_a_broken_socket_fails_commands_in_flight_only(
    valkey: LocalValkey, proxy: Proxy
) -> None:
    async with Connection.open(proxy.url(valkey.url)) as connection:
        with proxy.hold("ECHO") as hold:
            lost = [connection.call("ECHO", n) for n in range(10)]
            await hold.until_reached()
            proxy.cut()
            results = await asyncio.gather(*lost, return_exceptions=True)
        assert all(isinstance(result, ConnectionLost) for result in results)
        # Issued without a socket: waits for the next one.
        assert await connection.call("ECHO", "after") == "after"


async def test_t02_a_half_open_peer_is_detected_by_the_oldest_commands_deadline(
    valkey: LocalValkey, proxy: Proxy
) -> None:
    async with open_with_short_timeouts(proxy.url(valkey.url)) as connection:
        proxy.silence()
        calls = [connection.call("ECHO", n) for n in range(3)]
        for result in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(result, ConnectionLost)
            assert "no reply within 0.3 s" in str(result)
        proxy.accept()
        await wait_connected(connection)


async def test_t02_a_half_closed_socket_is_replaced(valkey: LocalValkey, proxy: Proxy) -> None:
    async with Connection.open(proxy.url(valkey.url)) as connection:
        proxy.half_close()
        await wait_until(lambda: proxy.accepted >= 2, "a second connection")
        await wait_connected(connection)


async def test_t02_a_peer_that_never_reads_costs_bounded_memory_and_fails(
    valkey: LocalValkey, proxy: Proxy
) -> None:
    config = Config.from_url(
        proxy.url(valkey.url),
        dial_timeout_s=0.5,
        failover_timeout_s=0.5,
        read_timeout_s=30,
        write_timeout_s=0.3,
    )
    async with Connection.open(config, connect_timeout_s=DEADLINE_S) as connection:
        proxy.stop_reading()
        block = b"x" * 1_000_000
        calls = [connection.call("ECHO", block) for _ in range(30)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(result) for result in results} <= {ConnectionLost, NotSent, Unavailable}
        assert any("read nothing for 0.3 s" in str(result) for result in results)
        proxy.resume_reading()
        await wait_connected(connection)


async def test_t02_without_a_server_commands_wait_then_raise_unavailable(
    valkey: LocalValkey, proxy: Proxy
) -> None:
    async with open_with_short_timeouts(proxy.url(valkey.url)) as connection:
        proxy.refuse()
        await wait_until(lambda: not connection.connected, "the lost connection to be detected")
        with pytest.raises(Unavailable, match=r"no connection to .* for 0\.5 s") as caught:
            await connection.ping()
        assert not caught.value.may_have_run
        proxy.accept()
        await wait_connected(connection)


async def test_t02_a_command_cancelled_while_waiting_is_never_sent(
    valkey: LocalValkey, proxy: Proxy, plain: Redis, fresh: Fresh
) -> None:
    key = fresh("key")
    async with Connection.open(proxy.url(valkey.url)) as connection:
        proxy.refuse()
        await wait_until(lambda: not connection.connected, "the lost connection to be detected")
        call = asyncio.ensure_future(connection.call("SET", key, "x", "EX", 60))
        call.cancel()
        proxy.accept()
        await wait_connected(connection)
    assert plain.get(key) is None


async def test_t02_a_blocked_event_loop_does_not_fail_the_socket(
    valkey: LocalValkey, proxy: Proxy
) -> None:
    """uvloop runs timers before reads: blocking the loop past the deadline must not fail a socket
    whose reply has already arrived."""
    async with open_with_short_timeouts(proxy.url(valkey.url)) as short:
        call = short.call("ECHO", "hello")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        # Block the loop until the reply has passed the proxy, and past the deadline.
        wait_until_sync(lambda: b"hello" in proxy.received, "the reply")
        time.sleep(0.5)  # noqa: ASYNC251
        assert await call == "hello"
        assert short.connected


async def test_t02_an_unexpected_reply_fails_the_socket(valkey: LocalValkey, proxy: Proxy) -> None:
    async with Connection.open(proxy.url(valkey.url)) as connection:
        proxy.inject(b"+OK\r\n")
        await wait_until(lambda: proxy.accepted >= 2, "a second connection")
        await wait_connected(connection)


async def test_t02_a_protocol_error_fails_the_socket(valkey: LocalValkey, proxy: Proxy) -> None:
    async with Connection.open(proxy.url(valkey.url)) as connection:
        with proxy.hold("ECHO") as hold:
            call = connection.call("ECHO", "x")
            await hold.until_reached()
            proxy.inject(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            with pytest.raises(ConnectionLost):
                await call
        await wait_connected(connection)


async def test_t02_reconnects_after_a_server_restart(own_valkey: LocalValkey, fresh: Fresh) -> None:
    key = fresh("key")
    async with Connection.open(own_valkey.url) as connection:
        await connection.call("SET", key, "kept")
        own_valkey.stop()
        await wait_until(lambda: not connection.connected, "the lost connection to be detected")
        own_valkey.start()
        await wait_connected(connection)
        assert await connection.call("GET", key) == "kept"


async def test_t02_reconnects_after_a_server_kill(own_valkey: LocalValkey) -> None:
    async with Connection.open(own_valkey.url) as connection:
        for _ in range(3):
            own_valkey.kill()
            own_valkey.start()
            await wait_connected(connection)


async def test_t02_reconnects_when_the_server_is_no_longer_the_primary(
    own_valkey: LocalValkey, valkey: LocalValkey, fresh: Fresh
) -> None:
    """READONLY: the socket is closed and the address resolved again."""
    with (
        Proxy(own_valkey.port) as proxy,
        Redis.from_url(own_valkey.admin_url.replace("valkey:", "redis:")) as admin,
    ):
        own_valkey_url = proxy.url(own_valkey.url)
        async with Connection.open(own_valkey_url) as connection:
            admin.execute_command("REPLICAOF", "127.0.0.1", "1")
            with pytest.raises(ServerError) as caught:
                await connection.call("SET", fresh("key"), "x", "EX", 60)
            assert caught.value.code in ("READONLY", "MASTERDOWN")
            await wait_until(lambda: proxy.accepted >= 2, "the reconnect")
            admin.execute_command("REPLICAOF", "NO", "ONE")

            async def written() -> bool:
                try:
                    return await connection.call("SET", fresh("key"), "x", "EX", 60) == "OK"
                except (ServerError, ConnectionLost, Unavailable):
                    return False

            await wait_until(written, "writes to pass again")


async def test_t02_an_out_of_memory_reply_fails_one_command_only(
    own_valkey: LocalValkey, fresh: Fresh
) -> None:
    with Redis.from_url(own_valkey.admin_url.replace("valkey:", "redis:")) as admin:
        async with Connection.open(own_valkey.url) as connection:
            admin.config_set("maxmemory", "1")
            with pytest.raises(ServerError) as caught:
                await connection.call("SET", fresh("key"), "x")
            assert caught.value.code == "OOM"
            assert await connection.ping() == "PONG"


async def test_t02_the_read_timeout_starts_after_the_block_time(
    valkey: LocalValkey, fresh: Fresh
) -> None:
    async with open_with_short_timeouts(valkey.url) as connection, AsyncExitStack() as stack:
        own = await own_socket(connection, stack)
        # Blocking for longer than the read timeout is no error.
        assert await own.call("BLPOP", fresh("list"), 0.6, block_s=DEADLINE_S) is None


async def test_t02_a_blocking_read_fails_on_a_dead_peer(
    valkey: LocalValkey, proxy: Proxy, fresh: Fresh
) -> None:
    async with open_with_short_timeouts(proxy.url(valkey.url)) as connection:
        async with AsyncExitStack() as stack:
            own = await own_socket(connection, stack)
            proxy.silence()
            with pytest.raises(ConnectionLost):
                await own.call("BLPOP", fresh("list"), 0.1, block_s=0.1)
        proxy.accept()


async def test_t02_a_cancelled_blocking_read_closes_its_socket(
    connection: Connection, plain: Redis, fresh: Fresh
) -> None:
    name = fresh("list")
    task = asyncio.create_task(connection.block("BLPOP", name, 0, block_s=float("inf")))

    def blocked() -> list[str]:
        return [c["name"] for c in plain.client_list() if c["cmd"] == "blpop"]

    await wait_until(blocked, "the server to block the client")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until(lambda: not blocked(), "the socket to be closed")
    plain.rpush(name, "for the next reader")
    assert await connection.block("BLPOP", name, 1, block_s=1) == [name, "for the next reader"]


async def test_t02_blocking_sockets_are_limited_by_pool_size(valkey: LocalValkey) -> None:
    async with open_with_short_timeouts(valkey.url, pool_size=2) as connection:
        async with AsyncExitStack() as stack:
            for _ in range(2):
                await own_socket(connection, stack)
            with pytest.raises(Unavailable, match="all 2 sockets"):
                async with connection.socket():
                    pass
        async with AsyncExitStack() as stack:
            own = await own_socket(connection, stack)
            assert await own.call("PING", block_s=DEADLINE_S) == "PONG"


async def test_t02_passwords_are_not_in_logs_or_errors(
    own_valkey: LocalValkey, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    config = Config.from_url(own_valkey.url, dial_timeout_s=0.3, failover_timeout_s=0.3)
    async with Connection.open(config, connect_timeout_s=DEADLINE_S) as connection:
        own_valkey.stop()
        await wait_until(lambda: not connection.connected, "the lost connection to be detected")
        with pytest.raises(Unavailable) as caught:
            await connection.ping()
    assert own_valkey.password not in caplog.text
    assert own_valkey.password not in repr(caught.value)
    assert own_valkey.password not in repr(connection.config)


def test_t02_limits_match_the_docs() -> None:
    assert resp_socket.MAX_COMMANDS == 20_000
    assert resp_socket.MAX_BYTES == 16 * 1024 * 1024
