"""T-6 with faults: every entry is handled despite restarts, flushes and disconnects."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jobwire.local import LocalValkey
from jobwire.valkey import Config, Connection, Consumer, Producer
from tests.support import Plain, Proxy, clause, wait_until
from tests.support.servers import plain_client
from tests.support.wait import DEADLINE_S
from tests.valkey.conftest import GROUP, Recorder, pending

pytestmark = pytest.mark.keeps("stream-*")


def build(connection: Connection, stream: str, handler: Recorder) -> Consumer:
    return Consumer(
        connection, stream=stream, group=GROUP, consumer="c1", handler=handler, block_s=0.5
    )


async def until_acknowledged(plain: Plain, stream: str) -> None:
    await wait_until(lambda: pending(plain, stream) == {}, "all to be acknowledged")


@clause("T-6")
async def test_t06_consuming_continues_after_a_server_kill(
    own_valkey: LocalValkey, stream: str
) -> None:
    handler = Recorder()
    async with (
        Connection.open(own_valkey.url) as connection,
        build(connection, stream, handler),
    ):
        await Producer(connection).publish(stream, {"n": 1})
        await handler.until_done(1)
        await asyncio.to_thread(own_valkey.kill)
        await wait_until(lambda: not connection.connected, "the loss to be detected")
        await asyncio.to_thread(own_valkey.start)
        with plain_client(own_valkey) as plain:
            plain.xadd(stream, {"n": 2})
            await handler.until_done(2)
            await until_acknowledged(plain, stream)


@clause("T-6")
async def test_t06_consuming_continues_after_a_flush(
    connection: Connection, plain: Plain, stream: str
) -> None:
    handler = Recorder()
    async with build(connection, stream, handler):
        for round_ in range(3):
            plain.flushall()
            await Producer(connection).publish(stream, {"n": round_})
            await handler.until_done(round_)
        await until_acknowledged(plain, stream)


@clause("T-6")
async def test_t06_a_flush_during_a_handler_is_survived(
    connection: Connection, plain: Plain, stream: str
) -> None:
    go = asyncio.Event()
    handler = Recorder(lambda message: go.wait() if message.fields["n"] == "1" else None)
    async with build(connection, stream, handler):
        await Producer(connection).publish(stream, {"n": 1})
        await wait_until(lambda: handler.got, "the handler to begin")
        plain.flushall()
        go.set()
        await Producer(connection).publish(stream, {"n": 2})
        await handler.until_done(1, 2)
        await until_acknowledged(plain, stream)


@clause("T-6")
async def test_t06_no_entry_is_lost_over_many_disconnects(
    valkey: LocalValkey, proxy: Proxy, plain: Plain, stream: str
) -> None:
    handler = Recorder(lambda _: asyncio.sleep(0.001))
    async with (
        Connection.open(proxy.url(valkey.url)) as connection,
        build(connection, stream, handler),
    ):
        for number in range(100):
            plain.xadd(stream, {"n": number})
            if number % 10 == 5:
                proxy.cut()
            await asyncio.sleep(0)
        await handler.until_done(*range(100))
        await until_acknowledged(plain, stream)


@clause("T-6")
async def test_t06_entries_of_a_lost_read_reply_are_recovered(
    valkey: LocalValkey, proxy: Proxy, plain: Plain, stream: str
) -> None:
    """The server delivered them and the reply was lost: pending under this name, not seen."""
    handler = Recorder()
    async with (
        Connection.open(proxy.url(valkey.url)) as connection,
        build(connection, stream, handler),
    ):
        await proxy.until_seen("XREADGROUP")
        # The current read may return empty; then the next one is cut.
        proxy.cut_reply("XREADGROUP")
        await proxy.until_seen("XREADGROUP", len(proxy.seen("XREADGROUP")) + 1)
        plain.xadd(stream, {"n": 1})
        await handler.until_done(1)
        await until_acknowledged(plain, stream)
    assert handler.numbers == ["1"]
    assert proxy.accepted > 2, "the connection was cut"


@clause("T-6")
async def test_t06_acknowledge_is_retried_and_the_entry_handled_once(
    valkey: LocalValkey, proxy: Proxy, plain: Plain, stream: str
) -> None:
    handler = Recorder()
    async with (
        Connection.open(proxy.url(valkey.url)) as connection,
        build(connection, stream, handler),
    ):
        with proxy.hold("XACK") as hold:
            plain.xadd(stream, {"n": 1})
            await hold.until_reached()
            proxy.cut()
        await until_acknowledged(plain, stream)
        proxy.cut_reply("XACK")
        plain.xadd(stream, {"n": 2})
        await handler.until_done(2)
        await until_acknowledged(plain, stream)
    assert handler.numbers == ["1", "2"]


@clause("T-6")
async def test_t06_a_dead_peer_is_detected(
    valkey: LocalValkey, proxy: Proxy, plain: Plain, stream: str
) -> None:
    handler = Recorder()
    config = Config.from_url(proxy.url(valkey.url), read_timeout_s=0.3)
    opening = Connection.open(config, connect_timeout_s=DEADLINE_S)
    async with opening as connection, build(connection, stream, handler):
        proxy.silence()
        plain.xadd(stream, {"n": 1})
        seen = proxy.accepted
        await wait_until(lambda: proxy.accepted > seen, "it to try another connection")
        proxy.cut()
        proxy.accept()
        await handler.until_done(1)
        await until_acknowledged(plain, stream)


@clause("T-6")
@pytest.mark.parametrize("busy", [False, True])
async def test_t06_a_consumer_follows_a_failover(tmp_path: Path, stream: str, busy: bool) -> None:
    """The old primary still answers, but accepts no writes; the address leads to the new one.

    It closes blocked sockets, but not that of a consumer whose handler is running.
    """
    go = asyncio.Event()
    handler = Recorder(lambda _: go.wait() if busy else None)
    at_once = ["repl-diskless-sync-delay 0"]
    with (
        LocalValkey(tmp_path / "a", admin=True, extra=at_once) as old,
        LocalValkey(tmp_path / "b", admin=True, extra=at_once) as new,
        plain_client(old) as old_plain,
        plain_client(new) as new_plain,
        Proxy(old.port) as proxy,
    ):
        # Both servers accept the same password, and each other's for replication.
        new_plain.call("ACL", "SETUSER", "jobwire", f">{old.password}")
        for client, primary in ((old_plain, new), (new_plain, old)):
            password = primary.admin_url.split(":")[2].split("@")[0]
            client.call("CONFIG", "SET", "masteruser", "admin", "masterauth", password)
        new_plain.call("REPLICAOF", "127.0.0.1", old.port)
        async with (
            Connection.open(proxy.url(old.url)) as connection,
            build(connection, stream, handler),
        ):
            await Producer(connection).publish(stream, {"n": 1})
            await wait_until(lambda: handler.got, "the first entry")
            await wait_until(lambda: new_plain.xlen(stream) == 1, "the replica to follow")
            proxy.upstream = new.port
            new_plain.call("REPLICAOF", "NO", "ONE")
            old_plain.call("REPLICAOF", "127.0.0.1", new.port)
            go.set()
            new_plain.xadd(stream, {"n": 2})
            await handler.until_done(1, 2)
            await until_acknowledged(new_plain, stream)


@clause("T-6")
async def test_t06_stop_returns_without_a_server(
    valkey: LocalValkey, proxy: Proxy, stream: str
) -> None:
    config = Config.from_url(proxy.url(valkey.url), dial_timeout_s=0.2, failover_timeout_s=0.2)
    async with Connection.open(config, connect_timeout_s=DEADLINE_S) as connection:
        consumer = build(connection, stream, Recorder())
        await consumer.start()
        proxy.refuse()
        await wait_until(lambda: not connection.connected, "the connection to be gone")
        async with asyncio.timeout(30):
            await consumer.stop()
