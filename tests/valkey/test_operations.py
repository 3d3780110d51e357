"""The typed commands, on a real server."""

import pytest
from redis import Redis

from jobwire.valkey import (
    Client,
    Connection,
    GroupExists,
    GroupNotFound,
    PendingInfo,
    ServerError,
    StreamMessage,
    StreamNotFound,
)
from tests.support import Fresh, clause

pytestmark = clause("T-2", "T-4")


async def test_t02_a_connection_implements_the_client_protocol(connection: Connection) -> None:
    client: Client = connection
    assert await client.ping() == "PONG"


async def test_t02_streams(connection: Connection, fresh: Fresh) -> None:
    stream = fresh("stream")
    first = await connection.xadd(stream, {"a": 1, "b": "x"})
    await connection.expire(stream, 60)
    await connection.xgroup_create(stream, "group")
    assert await connection.xreadgroup("group", "one", stream) == [
        StreamMessage(first, {"a": "1", "b": "x"})
    ]
    assert await connection.xreadgroup("group", "one", stream) == []
    assert await connection.xpending(stream, "group") == PendingInfo(1, {"one": 1})
    assert await connection.xclaim(stream, "group", "two", 0, first) == [
        StreamMessage(first, {"a": "1", "b": "x"})
    ]
    assert await connection.xpending(stream, "group") == PendingInfo(1, {"two": 1})
    assert await connection.xack(stream, "group", first) == 1
    assert await connection.xack(stream, "group", first) == 0
    assert await connection.xack(stream, "group") == 0
    assert await connection.xclaim(stream, "group", "two", 0) == []
    assert await connection.xpending(stream, "group") == PendingInfo(0, {})


async def test_t02_trimming(connection: Connection, plain: Redis, fresh: Fresh) -> None:
    stream = fresh("stream")
    for number in range(5):
        await connection.xadd_maxlen(stream, 3, {"n": number})
    plain.expire(stream, 60)
    assert plain.xlen(stream) == 3
    assert await connection.xtrim(stream, 1) == 2
    assert plain.xlen(stream) == 1


async def test_t02_a_blocking_read_returns_a_new_entry(
    connection: Connection, fresh: Fresh
) -> None:
    stream = fresh("stream")
    await connection.xgroup_create_mkstream(stream, "group")
    await connection.expire(stream, 60)
    assert await connection.xreadgroup("group", "one", stream, block_s=0.001) == []
    entry = await connection.xadd(stream, {"a": 1})
    got = await connection.xreadgroup("group", "one", stream, block_s=30)
    assert got == [StreamMessage(entry, {"a": "1"})]


async def test_t02_a_pending_entry_that_was_deleted_has_no_fields(
    connection: Connection, plain: Redis, fresh: Fresh
) -> None:
    stream = fresh("stream")
    entry = await connection.xadd(stream, {"a": 1})
    plain.expire(stream, 60)
    await connection.xgroup_create(stream, "group")
    await connection.xreadgroup("group", "one", stream)
    plain.xdel(stream, entry)
    assert await connection.xreadgroup("group", "one", stream, start="0") == [
        StreamMessage(entry, {})
    ]


async def test_t04_groups(connection: Connection, fresh: Fresh) -> None:
    stream = fresh("stream")
    assert not await connection.group_exists(stream, "group")
    with pytest.raises(StreamNotFound, match=stream):
        await connection.xgroup_create(stream, "group")
    with pytest.raises(GroupNotFound):
        await connection.xreadgroup("group", "one", stream)
    await connection.xgroup_create_mkstream(stream, "group")
    await connection.expire(stream, 60)
    assert await connection.group_exists(stream, "group")
    assert not await connection.group_exists(stream, "other")
    with pytest.raises(GroupExists) as caught:
        await connection.xgroup_create_mkstream(stream, "group")
    assert caught.value.code == "BUSYGROUP"


async def test_t02_hashes_and_keys(connection: Connection, plain: Redis, fresh: Fresh) -> None:
    key = fresh("hash")
    assert await connection.hgetall(key) == {}
    assert not await connection.expire(key, 60)
    assert await connection.hset(key, {"a": 1, "b": b"x"}) == 2
    assert await connection.hset(key, {"a": 2}) == 0
    assert await connection.hgetall(key) == {"a": "2", "b": "x"}
    assert await connection.expire(key, 600.75)
    assert 500_000 < plain.pttl(key) <= 600_750
    assert await connection.delete(key) == 1
    assert await connection.delete(key) == 0
    assert await connection.delete() == 0


async def test_t04_a_server_error_has_its_code(connection: Connection, fresh: Fresh) -> None:
    key = fresh("hash")
    await connection.hset(key, {"a": 1})
    await connection.expire(key, 60)
    with pytest.raises(ServerError) as caught:
        await connection.xadd(key, {"a": 1})
    assert caught.value.code == "WRONGTYPE"
    assert not caught.value.may_have_run


async def test_t02_bytes_that_are_not_utf8_survive_the_round_trip(
    connection: Connection, fresh: Fresh
) -> None:
    key = fresh("hash")
    await connection.hset(key, {"raw": b"\xff\xfe", "text": "grüße 🙂"})
    await connection.expire(key, 60)
    got = await connection.hgetall(key)
    assert got["raw"].encode("utf-8", "surrogateescape") == b"\xff\xfe"
    assert got["text"] == "grüße 🙂"
