"""Published messages; None where some may have been missed."""

import asyncio

import pytest
from redis import Redis

from jobwire.local import LocalValkey
from jobwire.valkey import Config, Connection, subscription
from tests.support import Fresh, Proxy, clause, wait_until
from tests.support.wait import DEADLINE_S

pytestmark = clause("T-2")


async def _next(messages: subscription.Subscription) -> tuple[str, str] | None:
    return await anext(messages)


async def test_t02_published_messages_and_a_gap_after_reconnect(
    valkey: LocalValkey, proxy: Proxy, plain: Redis, fresh: Fresh
) -> None:
    channel = fresh("channel")
    async with (
        Connection.open(proxy.url(valkey.url)) as connection,
        connection.subscribe(channel) as messages,
    ):
        plain.publish(channel, "one")
        assert await anext(messages) == (channel, "one")
        proxy.cut()
        assert await anext(messages) is None, "some may have been missed"
        plain.publish(channel, "two")
        assert await anext(messages) == (channel, "two")


async def test_t02_a_slow_reader_gets_a_gap(
    connection: Connection, plain: Redis, fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "MAX_UNREAD", 3)
    channel = fresh("channel")
    async with connection.subscribe(channel) as messages:
        got: tuple[str, str] | None = (channel, "3")
        while got is not None:
            # Some of them may be read before the last one arrives: then there is no gap.
            while got == (channel, "3"):
                for number in range(4):
                    plain.publish(channel, str(number))
                got = await anext(messages)
            if got is not None:
                got = await anext(messages)
        assert await anext(messages) == (channel, "3"), "the newest message follows the gap"


async def test_t02_a_ping_detects_a_dead_peer(
    valkey: LocalValkey, proxy: Proxy, plain: Redis, fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No command waits for a reply here: without a ping a dead peer is never noticed."""
    monkeypatch.setattr(subscription, "PING_EVERY_S", 0.1)
    channel = fresh("channel")
    config = Config.from_url(proxy.url(valkey.url), read_timeout_s=1)
    async with (
        Connection.open(config, connect_timeout_s=DEADLINE_S) as connection,
        connection.subscribe(channel) as messages,
    ):
        before = proxy.accepted
        proxy.silence()
        gap = asyncio.create_task(_next(messages))
        await wait_until(lambda: proxy.accepted > before + 1, "the sockets to be replaced")
        proxy.accept()
        assert await gap is None
        # With such a short limit a busy machine may lose it again.
        heard: tuple[str, str] | None = None
        while heard is None:
            plain.publish(channel, "after")
            heard = await anext(messages)
        assert heard == (channel, "after")


async def test_t02_a_subscription_that_is_cancelled_while_it_opens_leaves_no_socket(
    valkey: LocalValkey, proxy: Proxy, fresh: Fresh
) -> None:
    """Regression: a worker that stopped right after its start left one open."""
    async with Connection.open(proxy.url(valkey.url)) as connection:
        before = proxy.connections
        with proxy.hold(lambda command: command.name == "SUBSCRIBE") as hold:
            opening = asyncio.create_task(connection.subscribe(fresh("channel")).__aenter__())
            await hold.until_reached()
            assert proxy.connections == before + 1
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
        await wait_until(lambda: proxy.connections == before, "the socket to be closed")
