"""T-5: published entries are in the stream, and failures raise in the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from jobwire.local import LocalValkey
from jobwire.valkey import Arg, Connection, ConnectionLost, Producer, ServerError, StreamMessage
from tests.support import Plain, Proxy, clause
from tests.valkey.conftest import entries

pytestmark = pytest.mark.keeps("stream-*")


@clause("T-5")
async def test_t05_publish_adds_the_entry_and_returns_its_id(
    connection: Connection, plain: Plain, stream: str
) -> None:
    id_ = await Producer(connection).publish(stream, {"a": "1", "b": 2, "c": b"\xff", "d": "é"})
    assert entries(plain, stream) == [
        StreamMessage(id_, {"a": "1", "b": "2", "c": "\udcff", "d": "é"})
    ]


@clause("T-5")
async def test_t05_publish_with_trim_keeps_exactly_the_newest(
    connection: Connection, plain: Plain, stream: str
) -> None:
    producer = Producer(connection)
    ids = [await producer.publish_with_trim(stream, 5, {"n": n}) for n in range(20)]
    assert [entry.id for entry in entries(plain, stream)] == ids[-5:]


@clause("T-5")
async def test_t05_approximate_trim_is_an_option(
    valkey: LocalValkey, proxy: Proxy, stream: str
) -> None:
    async with Connection.open(proxy.url(valkey.url)) as connection:
        producer = Producer(connection)
        await producer.publish_with_trim(stream, 5, {"n": 1})
        await producer.publish_with_trim(stream, 5, {"n": 1}, approximate=True)
    trims = [command.words[2:5] for command in proxy.seen("XADD")]
    assert trims == [("MAXLEN", "=", "5"), ("MAXLEN", "~", "5")]


@clause("T-5")
async def test_t05_a_cancelled_publish_raises_and_affects_no_other_call(
    valkey: LocalValkey, proxy: Proxy, stream: str
) -> None:
    async with Connection.open(proxy.url(valkey.url)) as connection:
        with proxy.hold("XADD") as hold:
            publishing = asyncio.create_task(Producer(connection).publish(stream, {"n": 1}))
            await hold.until_reached()
            publishing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await publishing
        assert await connection.ping() == "PONG", "other callers are not affected"


@clause("T-5")
async def test_t05_failures_reach_the_caller(
    valkey: LocalValkey, proxy: Proxy, plain: Plain, stream: str
) -> None:
    plain.set(stream, "not a stream", ex=60)
    async with Connection.open(proxy.url(valkey.url)) as connection:
        producer = Producer(connection)
        with pytest.raises(ServerError) as refused:
            await producer.publish(stream, {"n": 1})
        assert refused.value.code == "WRONGTYPE"
        plain.delete(stream)
        proxy.cut_reply("XADD")
        with pytest.raises(ConnectionLost) as lost:
            await producer.publish(stream, {"n": 1})
        assert lost.value.may_have_run
        assert plain.xlen(stream) == 1, "it ran, and was not sent twice"


async def test_a_fake_client_can_be_used() -> None:
    """Users can test their code without a server."""

    class FakeClient:
        def __init__(self) -> None:
            self.entries: list[tuple[str, Mapping[str, Arg]]] = []

        async def xadd(self, stream: str, fields: Mapping[str, Arg]) -> str:
            self.entries.append((stream, fields))
            return "1-1"

    fake = FakeClient()
    producer = Producer(fake)  # pyright: ignore[reportArgumentType] - only what is used is faked
    assert await producer.publish("s", {"a": 1}) == "1-1"
    assert fake.entries == [("s", {"a": 1})]
