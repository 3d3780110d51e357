"""The test base itself: its fixtures work together."""

from __future__ import annotations

import pytest
from redis import Redis

from jobwire.local import LocalValkey
from jobwire.valkey import Connection, ConnectionLost
from tests.support import Fresh, Proxy, wait_until


async def test_our_connection_and_a_plain_client_see_the_same_server(
    connection: Connection, plain: Redis, fresh: Fresh
) -> None:
    key = fresh("key")
    await connection.call("SET", key, "hello", "EX", 60)
    assert plain.get(key) == "hello"


async def test_a_cut_connection_is_detected_and_reconnected(
    valkey: LocalValkey, proxy: Proxy, fresh: Fresh
) -> None:
    key = fresh()
    async with Connection.open(proxy.url(valkey.url)) as connection:
        with proxy.hold("SET") as hold:
            waiting = connection.call("SET", key, "1", "EX", 60)
            await hold.until_reached()
            proxy.cut()
            with pytest.raises(ConnectionLost):
                await waiting

        async def answered() -> bool:
            return await connection.call("PING") == "PONG"

        await wait_until(answered, "the connection to be replaced")


async def test_redis_7_answers_too(redis7: LocalValkey) -> None:
    async with Connection.open(redis7.url) as connection:
        info = await connection.call("INFO", "server")
        assert "redis_version:7." in str(info) or "redis_version:8." in str(info)
