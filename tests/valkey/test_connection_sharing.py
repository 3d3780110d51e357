"""Many callers share one socket: each gets its own reply."""

import asyncio
import random

import pytest
from redis import Redis

from jobwire.local import LocalValkey
from jobwire.valkey import Config, Connection, ConnectionLost, NotSent, resp_socket
from jobwire.valkey import connection as connection_module
from jobwire.valkey import outbox as outbox_module
from tests.support import Fresh, Proxy, clause, wait_until

pytestmark = clause("T-2")


def with_long_timeouts(url: str) -> Config:
    """Timeouts that a loaded machine does not reach."""
    return Config.from_url(url, dial_timeout_s=60, read_timeout_s=60, write_timeout_s=60)


async def test_t02_commands_of_one_loop_turn_leave_in_order_in_one_write(
    valkey: LocalValkey, fresh: Fresh
) -> None:
    with Proxy(valkey.port) as proxy:
        async with Connection.open(proxy.url(valkey.url)) as connection:
            proxy.forget_seen()
            replies = await asyncio.gather(*(connection.call("ECHO", n) for n in range(100)))
            assert replies == [str(n) for n in range(100)]
            assert [command.words[1] for command in proxy.seen("ECHO")] == replies


async def test_t02_random_cancellations_never_shift_a_reply(connection: Connection) -> None:
    """A cancelled caller's reply still arrives; it must not go to the next caller."""
    rng = random.Random(4)
    cancelled = 0

    async def caller(number: int) -> None:
        assert await connection.call("ECHO", number) == str(number)

    number = 0
    while cancelled < 10_000:
        tasks = [asyncio.create_task(caller(number + n)) for n in range(500)]
        number += 500
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        for task in tasks:
            if rng.random() < 0.5:
                cancelled += task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert result is None or isinstance(result, asyncio.CancelledError), result
    assert await connection.call("ECHO", "end") == "end"


@pytest.mark.parametrize("value", [None, True, "\ud800", object()])
async def test_t02_an_argument_that_cannot_be_packed_fails_its_call_only(
    connection: Connection, value: object
) -> None:
    before = connection.call("ECHO", "before")
    with pytest.raises((TypeError, UnicodeEncodeError)):
        connection.call("SET", "key", value)  # pyright: ignore[reportArgumentType]  # on purpose
    assert await before == "before"
    assert await connection.call("ECHO", "after") == "after"


@pytest.mark.parametrize(
    "command",
    [
        ("BLPOP", "list", 0),
        ("brpop", "list", 0),
        ("XREAD", "BLOCK", 0, "STREAMS", "stream", "$"),
        (b"XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "BLOCK", 5, "STREAMS", "s", ">"),
        ("SUBSCRIBE", "channel"),
        ("Multi",),
        ("MONITOR",),
        ("WAIT", 1, 0),
        (),
    ],
)
async def test_t02_blocking_and_stateful_commands_are_refused(
    connection: Connection, command: tuple[str | bytes | int, ...]
) -> None:
    with pytest.raises(ValueError, match=r"shared socket|needs a name"):
        connection.call(*command)
    assert await connection.ping() == "PONG"


async def test_t02_calls_from_another_event_loop_are_refused(connection: Connection) -> None:
    caught: list[RuntimeError] = []

    async def call() -> None:
        await connection.ping()

    def elsewhere() -> None:
        try:
            asyncio.run(call())
        except RuntimeError as error:
            caught.append(error)

    await asyncio.to_thread(elsewhere)
    assert "event loop" in str(caught[0])
    assert await connection.ping() == "PONG"


async def test_t02_commands_beyond_the_in_flight_limit_wait(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resp_socket, "MAX_COMMANDS", 10)
    replies = await asyncio.gather(*(connection.call("ECHO", n) for n in range(1000)))
    assert replies == [str(n) for n in range(1000)]


async def test_t02_bytes_in_flight_are_limited(
    valkey: LocalValkey, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a slow server, the bytes written and not answered stay near the limit."""
    for module in (resp_socket, connection_module):
        monkeypatch.setattr(module, "MAX_BYTES", 30_000)
    block = "x" * 10_000
    async with Connection.open(with_long_timeouts(proxy.url(valkey.url))) as connection:
        with proxy.hold("ECHO") as hold:
            calls = [connection.call("ECHO", block) for _ in range(40)]
            await hold.until_reached()
            late = connection.call("PING")
            await asyncio.sleep(0)
        assert await asyncio.gather(*calls) == [block] * 40
        assert await late == "PONG"

        proxy.forget_seen()
        proxy.silence()
        unanswered = [connection.call("ECHO", block) for _ in range(40)]
        await wait_until(lambda: len(proxy.seen("ECHO")) >= 3, "the first of them to arrive")
        await asyncio.sleep(0.1)
        assert len(proxy.seen("ECHO")) < 6, "the others wait for replies"
        await connection.close()
        ended = await asyncio.gather(*unanswered, return_exceptions=True)
    assert {type(each) for each in ended} == {ConnectionLost, NotSent}


async def test_t02_a_full_send_queue_raises_not_sent(
    valkey: LocalValkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "MAX_COMMANDS", 100)
    async with Connection.open(valkey.url) as connection:
        calls = [connection.call("ECHO", n) for n in range(100)]
        with pytest.raises(NotSent, match="commands=100"):
            connection.call("ECHO", 100)
        assert await asyncio.gather(*calls) == [str(n) for n in range(100)]


async def test_t02_sockets_are_named_and_close_closes_them_all(
    valkey: LocalValkey, plain: Redis, fresh: Fresh
) -> None:
    name = fresh("name")

    def names() -> list[str]:
        return [client["name"] for client in plain.client_list() if name in client["name"]]

    connection = await Connection.open(valkey.url, name=name)
    assert names() == [name]
    async with connection.socket() as own:
        await own.call("PING")
        assert sorted(names()) == [name, f"{name}-own"]
    async with connection.subscribe("channel"):
        assert f"{name}-sub" in names()
    await connection.close()
    await connection.close()
    await wait_until(lambda: not names(), "the server to see the sockets closed")
    with pytest.raises(NotSent, match="closed"):
        connection.call("PING")


async def test_t02_close_fails_waiting_commands(valkey: LocalValkey) -> None:
    connection = await Connection.open(Config.from_url(valkey.url))
    unsent = connection.call("PING")
    await connection.close()
    with pytest.raises(NotSent):
        await unsent


async def test_t02_push_messages_reach_on_push_and_shift_no_reply(
    valkey: LocalValkey, plain: Redis, fresh: Fresh
) -> None:
    """Client tracking: the gateway follows event streams with it."""
    pushes: list[object] = []
    key = fresh("key")
    async with Connection.open(
        valkey.url, setup=[("CLIENT", "TRACKING", "ON")], on_push=pushes.append
    ) as connection:
        assert await connection.call("GET", key) is None
        plain.set(key, "new", ex=60)
        await wait_until(lambda: pushes, "the invalidation")
        assert pushes == [["invalidate", [key]]]
        assert await connection.call("GET", key) == "new"
