"""T-9: the health checker's values agree with the server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jobwire.local import LocalValkey
from jobwire.valkey import (
    Config,
    Connection,
    ConnectionLost,
    HealthChecker,
    Producer,
    Unavailable,
)
from tests.support import Plain, Proxy, clause, wait_until
from tests.support.servers import plain_client
from tests.support.wait import DEADLINE_S
from tests.valkey.conftest import GROUP

pytestmark = pytest.mark.keeps("stream-*")


@clause("T-9")
async def test_t09_a_ping_is_measured(connection: Connection) -> None:
    assert (await HealthChecker(connection).ping()).latency_s > 0


@clause("T-9")
async def test_t09_a_failed_ping_raises(valkey: LocalValkey, proxy: Proxy) -> None:
    config = Config.from_url(proxy.url(valkey.url), dial_timeout_s=0.2, failover_timeout_s=0.2)
    async with Connection.open(config, connect_timeout_s=DEADLINE_S) as connection:
        checker = HealthChecker(connection)
        proxy.cut_reply("PING")
        with pytest.raises(ConnectionLost):
            await checker.ping()
        proxy.refuse()
        await wait_until(lambda: not connection.connected, "the connection to be gone")
        with pytest.raises(Unavailable):
            await checker.ping()


@clause("T-9")
async def test_t09_a_group_exists_or_not(connection: Connection, plain: Plain, stream: str) -> None:
    checker = HealthChecker(connection)
    assert not await checker.group_exists(stream, GROUP), "no stream, no group"
    plain.xadd(stream, {"n": 1})
    assert not await checker.group_exists(stream, GROUP)
    plain.xgroup_create(stream, GROUP, "0")
    assert await checker.group_exists(stream, GROUP)
    assert not await checker.group_exists(stream, "others")


@clause("T-9")
async def test_t09_the_summary_agrees_with_the_server(
    connection: Connection,
    plain: Plain,
    server_setting: Callable[[str, str], None],
) -> None:
    server_setting("maxmemory", "64mb")
    health = await HealthChecker(connection).summary()
    info = plain.info()
    assert health.latency_s > 0
    assert (health.server, health.version) == ("valkey", info["valkey_version"])
    assert (health.role, health.replicas) == ("master", 0)
    assert 0 < health.memory_used < 64 * 1024 * 1024
    assert health.memory_limit == 64 * 1024 * 1024
    assert (health.eviction, health.persistence) == ("noeviction", "aof")
    assert health.lag is None, "no group was named"


@clause("T-9")
async def test_t09_lag_is_counted_also_where_entries_were_deleted(
    connection: Connection, plain: Plain, stream: str
) -> None:
    """The server's own figure is wrong or missing after an unread entry was deleted."""
    checker = HealthChecker(connection)
    assert (await checker.summary(stream, GROUP)).lag is None
    ids = [await Producer(connection).publish(stream, {"n": n}) for n in range(5)]
    plain.xgroup_create(stream, GROUP, "0")
    assert (await checker.summary(stream, GROUP)).lag == 5
    assert (await checker.summary(stream, "others")).lag is None
    plain.call("XREADGROUP", "GROUP", GROUP, "c", "COUNT", 2, "STREAMS", stream, ">")
    plain.xdel(stream, ids[3])
    assert (await checker.summary(stream, GROUP)).lag == 2


@clause("T-9")
async def test_t09_redis_is_recognized(redis7: LocalValkey) -> None:
    async with Connection.open(redis7.url) as connection:
        health = await HealthChecker(connection).summary()
    assert (health.server, health.version[:2] in ("7.", "8.")) == ("redis", True)


@clause("T-9")
async def test_t09_replicas_and_persistence_of_both_ends(tmp_path: Path) -> None:
    with LocalValkey(tmp_path / "a", admin=True) as primary:
        replicate = [f"replicaof 127.0.0.1 {primary.port}", "masteruser admin"]
        password = primary.admin_url.split(":")[2].split("@")[0]
        lines = [*replicate, f"masterauth {password}", "appendonly no", "save 900 1"]
        with LocalValkey(tmp_path / "b", extra=lines) as replica:
            async with (
                Connection.open(primary.url) as first,
                Connection.open(replica.url) as second,
            ):

                async def counted() -> bool:
                    return (await HealthChecker(first).summary()).replicas == 1

                await wait_until(counted, "the replica to be counted")
                health = await HealthChecker(second).summary()
                assert (health.role, health.persistence) == ("slave", "rdb")


@clause("T-9")
async def test_t09_a_value_that_is_not_disclosed_is_none(tmp_path: Path) -> None:
    with LocalValkey(tmp_path, admin=True, extra=["appendonly no"]) as server:
        async with Connection.open(server.url) as connection:
            checker = HealthChecker(connection)
            assert (await checker.summary()).persistence == "none"
            with plain_client(server) as plain:
                plain.call("ACL", "SETUSER", "jobwire", "-config|get")
            assert (await checker.summary()).persistence is None
