"""Sentinel: every kind of socket finds the primary, and follows it in a failover."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from jobwire.local import LocalValkey, free_port
from jobwire.local.ports import port_is_free
from jobwire.valkey import (
    AuthFailed,
    Config,
    Connection,
    ConnectionLost,
    Reply,
    ServerError,
    Unavailable,
    Unsupported,
    ValkeyError,
)
from jobwire.valkey.blocking_socket import BlockingSocket
from jobwire.valkey.subscription import Subscription
from jobwire.valkey.tracking import TrackedKey, TrackingReader
from tests.support import Fresh, Proxy, clause, wait_until
from tests.support.patience import PATIENCE
from tests.support.sentinel import NAME, Replicated, Trio, sentinel_url, start_sentinel
from tests.support.servers import plain_client

pytestmark = [clause("G-13"), pytest.mark.xdist_group("sentinel")]


def patient(trio: Trio) -> Config:
    """No reply is ever late: only an announcement of the sentinels ends a wait."""
    return replace(Config.from_url(trio.url), read_timeout_s=600, failover_timeout_s=60)


async def port_of(connection: Connection) -> int:
    reply = await connection.call("CONFIG", "GET", "port")
    assert isinstance(reply, dict)
    return int(str(reply["port"]))


def _accepts_writes(primary: LocalValkey) -> bool:
    with plain_client(primary) as plain:
        found = cast("dict[str, object]", plain.info("replication"))
    return found.get("min_slaves_good_slaves") != 0


@clause("T-10")
@pytest.mark.parametrize("fault", ["killed", "paused"])
async def test_g13_every_socket_follows_the_primary(trio: Trio, fresh: Fresh, fault: str) -> None:
    """A hanging primary never closes its sockets: the sentinels' announcement does."""
    key, channel, former = fresh("key"), fresh("channel"), trio.primary
    seen: list[Reply] = []
    reader = TrackingReader[TrackedKey](
        lambda tracked: ("GET", tracked.key), lambda _, reply: seen.append(reply)
    )
    async with (
        AsyncExitStack() as cleanup,
        Connection.open(patient(trio)) as connection,
        connection.subscribe(channel) as messages,
        reader.running(patient(trio), "tests-tracking"),
    ):
        blocked = asyncio.create_task(connection.block("BLPOP", key, 0, block_s=float("inf")))
        hearing = asyncio.ensure_future(anext(messages))
        tracked = TrackedKey(key + "-tracked")
        reader.add(tracked)
        reader.mark(tracked)
        await wait_until(lambda: seen == [None], "the first read")
        await _until_blocked(former)
        thread = BlockingSocket(Config.from_url(trio.url), "tests-thread", timeout_s=3)
        cleanup.callback(thread.close)
        await wait_until(lambda: _answers(thread), "the thread's socket to be connected")

        if fault == "killed":
            former.kill()
        else:
            former.pause()
        in_flight = asyncio.ensure_future(connection.call("SET", key, "x"))
        await asyncio.to_thread(trio.wait_failover, former)

        with pytest.raises((ConnectionLost, Unavailable)):
            await blocked
        if fault == "paused":
            with pytest.raises(ConnectionLost, match="the primary is now"):
                await in_flight
        else:  # waited for the next primary, unless the kill was not noticed yet
            await asyncio.gather(in_flight, return_exceptions=True)
        assert await hearing is None, "messages may have been missed"
        heard: list[tuple[str, str] | None] = []
        listening = asyncio.create_task(_collect(messages, heard))
        cleanup.callback(listening.cancel)

        async def reaches_all() -> bool:
            # On a busy machine there may be one more failover meanwhile.
            primary = trio.primary
            if not _accepts_writes(primary):
                return False
            with plain_client(primary) as plain:
                plain.publish(channel, "after")
                plain.set(tracked.key, "after")
            return await port_of(connection) == primary.port and (channel, "after") in heard

        await wait_until(reaches_all, "a replica of the new primary, and a message there")
        await wait_until(lambda: seen[-1] == "after", "the change at the new primary")
        await wait_until(lambda: _answers(thread), "the thread's socket to follow")


async def _collect(messages: Subscription, heard: list[tuple[str, str] | None]) -> None:
    while True:
        heard.append(await anext(messages))


async def _until_blocked(server: LocalValkey) -> None:
    with plain_client(server) as plain:
        await wait_until(
            lambda: [each for each in plain.client_list() if each["cmd"] == "blpop"], "the block"
        )


async def _answers(thread: BlockingSocket) -> bool:
    try:
        return await asyncio.to_thread(thread.call, "PING") == "PONG"
    except (ConnectionLost, Unavailable):
        return False


async def test_g13_commands_wait_for_the_next_primary(trio: Trio, fresh: Fresh) -> None:
    """Those that were not sent when the primary died: none of them fails."""
    key, former = fresh("key"), trio.primary
    async with Connection.open(patient(trio)) as connection:
        former.kill()
        await wait_until(lambda: not connection.connected, "the loss of the connection")
        calls = [connection.call("RPUSH", key, number) for number in range(20)]
        assert await asyncio.gather(*calls) == list(range(1, 21)), "in their order"
        assert await port_of(connection) == trio.primary.port != former.port


async def test_g13_the_newest_answer_counts(trio: Trio, tmp_path: Path) -> None:
    """A sentinel that was cut off still names a former primary, which is a replica now."""
    port = free_port()
    with Replicated(tmp_path / "former", ["replicaof 127.0.0.1 1"]) as former:
        stale = start_sentinel(tmp_path / "stale", port, former, epoch=0)
        try:
            await wait_until(lambda: not port_is_free(port), "the sentinel")
            with pytest.raises(Unavailable, match=f"{former.address} is not the primary '{NAME}'"):
                await Connection.open(sentinel_url([port]))
            async with Connection.open(sentinel_url([port, trio.ports[0]])) as connection:
                assert await port_of(connection) == trio.primary.port
        finally:
            stale.kill()


async def test_g13_any_sentinel_is_enough(trio: Trio) -> None:
    ports = [free_port(), trio.ports[0], free_port()]
    async with Connection.open(sentinel_url(ports)) as connection:
        assert await port_of(connection) == trio.primary.port


async def test_g13_a_program_starts_while_the_primary_has_no_replica(
    trio: Trio, fresh: Fresh
) -> None:
    async def write() -> object:
        async with Connection.open(trio.url, name="tests-early") as connection:
            return await connection.call("SET", fresh("key"), "x", "EX", 60)

    with plain_client(trio.primary) as plain:
        kept = str(plain.config_get("min-replicas-to-write")["min-replicas-to-write"])
        plain.config_set("min-replicas-to-write", 3)
        writing = asyncio.create_task(write())
        try:
            await wait_until(
                lambda: (
                    writing.done()
                    or any(client["name"] == "tests-early" for client in plain.client_list())
                ),
                "the connection",
            )
        finally:
            plain.config_set("min-replicas-to-write", kept)
        assert await writing == "OK"


async def test_g13_wrong_sentinels_are_named(trio: Trio) -> None:
    async def error(url: str) -> ValkeyError:
        with pytest.raises(ValkeyError) as caught:
            await Connection.open(url)
        assert "of-the" not in str(caught.value), "no password"
        return caught.value

    refused = await error(sentinel_url(trio.ports, "sentinel_password=wrong"))
    assert isinstance(refused, AuthFailed)
    nobody = await error(sentinel_url([free_port()]))
    assert isinstance(nobody, Unavailable)
    assert "no sentinel of 'main' answers" in str(nobody)
    unknown = await error(trio.url.replace(f"/{NAME}/", "/other/"))
    assert "has no 'other'" in str(unknown)
    server = await error(
        sentinel_url(
            [trio.primary.port], "sentinel_username=jobwire&sentinel_password=of-the-programs"
        )
    )
    assert isinstance(server, Unsupported)
    assert "is not a sentinel" in str(server)
    sentinel = await error(f"valkey://:of-the-sentinels@127.0.0.1:{trio.ports[0]}")
    assert isinstance(sentinel, Unsupported)
    assert "use valkey+sentinel://" in str(sentinel)


async def test_g13_a_thread_dials_again_when_its_server_has_no_replica(
    own_valkey: LocalValkey, fresh: Fresh
) -> None:
    """A primary that was paused and replaced refuses writes for seconds before it is a replica:
    leases must not be renewed there meanwhile."""
    thread = BlockingSocket(
        Config.from_url(own_valkey.url), "tests-thread", timeout_s=PATIENCE.total_seconds()
    )
    first = await asyncio.to_thread(thread.call, "CLIENT", "ID")
    with plain_client(own_valkey) as plain:
        plain.config_set("min-replicas-to-write", 1)
        with pytest.raises(ServerError, match="NOREPLICAS"):
            await asyncio.to_thread(thread.call, "SET", fresh("key"), "x")
    assert await asyncio.to_thread(thread.call, "CLIENT", "ID") != first
    thread.close()


async def test_g13_a_thread_dials_again_when_its_server_is_a_replica(
    own_valkey: LocalValkey,
) -> None:
    """Behind one name, as with a managed service: READONLY, then the name is resolved again."""
    with Proxy(own_valkey.port) as proxy, plain_client(own_valkey) as plain:
        thread = BlockingSocket(
            Config.from_url(proxy.url(own_valkey.url)),
            "tests-thread",
            timeout_s=PATIENCE.total_seconds(),
        )
        thread.call("PING")
        plain.replicaof("127.0.0.1", "1")
        with pytest.raises(ServerError, match="READONLY"):
            thread.call("SET", "key", "x")
        plain.replicaof("NO", "ONE")
        assert thread.call("SET", "key", "x") == "OK"
        assert proxy.accepted == 2
        thread.close()
