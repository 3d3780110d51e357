"""T-6 in fair weather: entries are handled and acknowledged, or left when their handler fails."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from jobwire.local import LocalValkey
from jobwire.valkey import (
    AlreadyStarted,
    Config,
    ConfigError,
    Connection,
    Consumer,
    ConsumerClosed,
    Handler,
    NotStarted,
    Producer,
    ServerError,
    StreamMessage,
    Unavailable,
)
from tests.support import Plain, Proxy, clause, wait_until
from tests.support.waiting import DEADLINE_S
from tests.toolkit.conftest import GROUP, Recorder, entries, idle_ms, left_pending, pending

pytestmark = pytest.mark.keeps("stream-*")


def build(
    connection: Connection, stream: str, handler: Handler, consumer: str = "c1", **more: float
) -> Consumer:
    return Consumer(
        connection,
        stream=stream,
        group=GROUP,
        consumer=consumer,
        handler=handler,
        **more,  # pyright: ignore[reportArgumentType] - the tests name them rightly
    )


async def publish(connection: Connection, stream: str, *numbers: int) -> None:
    for number in numbers:
        await Producer(connection).publish(stream, {"n": number})


@clause("T-6")
async def test_t06_entries_are_handled_in_order_and_acknowledged(
    connection: Connection, plain: Plain, stream: str
) -> None:
    handler = Recorder()
    await publish(connection, stream, *range(15))
    async with build(connection, stream, handler):
        await publish(connection, stream, *range(15, 30))
        await handler.until_done(*range(30))
        await wait_until(lambda: pending(plain, stream) == {}, "all to be acknowledged")
    assert handler.got == entries(plain, stream), "whole entries, in order, once each"


@clause("T-6")
async def test_t06_a_failing_handler_costs_its_entry_the_acknowledgement_and_nothing_else(
    connection: Connection, plain: Plain, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail_the_second(message: StreamMessage) -> None:
        if message.fields["n"] == "2":
            raise ValueError("cannot do 2")

    handler = Recorder(fail_the_second)
    async with build(connection, stream, handler):
        await publish(connection, stream, 1, 2, 3)
        await handler.until_done(1, 3)
        failed = next(entry.id for entry in handler.got if entry.fields["n"] == "2")
        await wait_until(
            lambda: pending(plain, stream) == {failed: ("c1", 1)}, "only the failed one to wait"
        )
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert failed in record.getMessage()
    assert record.exc_info
    assert "cannot do 2" in str(record.exc_info[1])


@clause("T-6")
async def test_t06_start_makes_group_and_stream(
    connection: Connection, plain: Plain, stream: str
) -> None:
    consumer = build(connection, stream, Recorder())
    assert not consumer.ready
    await consumer.start()
    assert consumer.ready
    assert [group["name"] for group in plain.xinfo_groups(stream)] == [GROUP]
    await consumer.stop()
    assert not consumer.ready


@clause("T-6")
async def test_t06_each_step_of_its_life_comes_once(connection: Connection, stream: str) -> None:
    consumer = build(connection, stream, Recorder())
    with pytest.raises(NotStarted):
        await consumer.stop()
    await consumer.start()
    with pytest.raises(AlreadyStarted):
        await consumer.start()
    await consumer.stop()
    await consumer.stop()
    with pytest.raises(ConsumerClosed):
        await consumer.start()


@clause("T-6")
@pytest.mark.parametrize("field", ["stream", "group", "consumer"])
async def test_t06_an_empty_name_is_refused(connection: Connection, field: str) -> None:
    names = {"stream": "s", "group": "g", "consumer": "c", field: ""}
    with pytest.raises(ConfigError, match=f"^{field}: is empty$"):
        Consumer(
            connection,
            stream=names["stream"],
            group=names["group"],
            consumer=names["consumer"],
            handler=Recorder(),
        )


@clause("T-6")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("count", 0),
        ("concurrency", 0),
        ("max_deliveries", 0),
        ("block_s", 0),
        ("ready_timeout_s", -1),
        ("idle_timeout_s", float("nan")),
    ],
)
async def test_t06_a_number_that_cannot_be_is_refused(
    connection: Connection, stream: str, field: str, value: float
) -> None:
    with pytest.raises(ConfigError, match=f"^{field}: must be"):
        build(connection, stream, Recorder(), "c1", **{field: value})


@clause("T-6", "T-4")
async def test_t06_a_handler_that_cannot_be_called_is_refused(
    connection: Connection, stream: str
) -> None:
    with pytest.raises(ConfigError, match=r"^handler: must be callable, is NoneType$"):
        build(connection, stream, None)  # pyright: ignore[reportArgumentType] - the very mistake


@clause("T-6")
async def test_t06_not_ready_in_time_leaves_nothing_running(
    valkey: LocalValkey, proxy: Proxy, stream: str
) -> None:
    config = Config.from_url(proxy.url(valkey.url), dial_timeout_s=0.3)
    async with Connection.open(config, patience_s=DEADLINE_S) as connection:
        proxy.refuse()
        await wait_until(lambda: not connection.connected, "the connection to be gone")
        before = asyncio.all_tasks()
        handler = Recorder()
        consumer = build(connection, stream, handler, ready_timeout_s=0.6)
        with pytest.raises(Unavailable, match=r"was not ready within 0.6 s: no connection to"):
            await consumer.start()
        await wait_until(lambda: asyncio.all_tasks() <= before, "every task to be gone")
        proxy.accept()

        async def ready() -> bool:
            with contextlib.suppress(Unavailable):  # a busy machine needs its time
                await consumer.start()
                return True
            return False

        await wait_until(ready, "the consumer to be ready")
        await publish(connection, stream, 1)
        await handler.until_done(1)
        await consumer.stop()


@clause("T-6")
async def test_t06_a_start_that_is_cancelled_leaves_nothing_running(
    valkey: LocalValkey, proxy: Proxy, stream: str
) -> None:
    async with Connection.open(proxy.url(valkey.url)) as connection:
        with proxy.hold("XGROUP") as hold:
            starting = asyncio.create_task(build(connection, stream, Recorder()).start())
            await hold.until_reached()
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting


@clause("T-6")
async def test_t06_what_can_never_work_is_said_at_once(
    connection: Connection, plain: Plain, stream: str
) -> None:
    plain.set(stream, "not a stream", ex=60)
    with pytest.raises(ServerError) as refused:
        await build(connection, stream, Recorder()).start()
    assert refused.value.code == "WRONGTYPE"


@clause("T-6")
async def test_t06_stop_lets_the_handler_in_hand_end(
    connection: Connection, plain: Plain, stream: str
) -> None:
    go = asyncio.Event()
    handler = Recorder(lambda _: go.wait())
    consumer = build(connection, stream, handler)
    await publish(connection, stream, 1, 2, 3)
    await consumer.start()
    await wait_until(lambda: handler.got, "the handler to begin")
    stopping = asyncio.create_task(consumer.stop())
    await asyncio.sleep(0)
    go.set()
    await stopping
    assert handler.done == ["1"], "it ended, and no other began"
    assert [holder for holder, _ in pending(plain, stream).values()] == ["c1", "c1"]


@clause("T-6")
async def test_t06_what_was_not_begun_is_given_back_for_others(
    connection: Connection, plain: Plain, stream: str
) -> None:
    """Otherwise a stop would delay the entries that it had read ahead by the idle timeout."""
    go = asyncio.Event()
    handler = Recorder(lambda _: go.wait())
    await publish(connection, stream, 1, 2, 3)
    consumer = build(connection, stream, handler)
    await consumer.start()
    await wait_until(lambda: handler.got, "the handler to begin")
    assert len(pending(plain, stream)) == 3, "it reads ahead"
    stopping = asyncio.create_task(consumer.stop())
    await asyncio.sleep(0)
    go.set()
    await stopping
    rows = plain.ask("XPENDING", stream, GROUP, "IDLE", 3_600_000, "-", "+", 10)
    assert isinstance(rows, list)
    assert len(rows) == 2, "they look idle for long, so any reclaimer takes them"
    assert [count for _, count in pending(plain, stream).values()] == [0, 0], "and none counted"


@clause("T-6")
async def test_t06_stop_does_not_wait_for_the_block_time(
    connection: Connection, plain: Plain, stream: str
) -> None:
    def blocked() -> bool:
        return any(
            each["cmd"] == "xreadgroup" and "b" in each["flags"] for each in plain.client_list()
        )

    consumer = build(connection, stream, Recorder(), block_s=600)
    await consumer.start()
    await wait_until(blocked, "the read to block")
    async with asyncio.timeout(30):
        await consumer.stop()


@clause("T-6")
async def test_t06_stop_may_be_given_up_and_then_ends_the_handlers(
    connection: Connection, plain: Plain, stream: str
) -> None:
    handler = Recorder(lambda _: asyncio.Event().wait())
    consumer = build(connection, stream, handler)
    await consumer.start()
    await publish(connection, stream, 1)
    await wait_until(lambda: handler.got, "the handler to begin")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await consumer.stop()
    assert handler.done == []
    assert len(pending(plain, stream)) == 1


@clause("T-6")
async def test_t06_it_first_finishes_what_is_pending_under_its_name(
    connection: Connection, plain: Plain, stream: str
) -> None:
    left_pending(plain, stream, "c1", 1, 2)
    others = left_pending(plain, stream, "c2", 3)
    await publish(connection, stream, 4)
    handler = Recorder()
    async with build(connection, stream, handler):
        await handler.until_done(1, 2, 4)
    assert handler.numbers == ["1", "2", "4"], "its own first, the new one then, no other's"
    assert pending(plain, stream) == {others[0]: ("c2", 1)}


@clause("T-6")
async def test_t06_a_pending_entry_that_was_deleted_is_dropped(
    connection: Connection, plain: Plain, stream: str
) -> None:
    gone, kept = left_pending(plain, stream, "c1", 1, 2)
    plain.xdel(stream, gone)
    handler = Recorder()
    async with build(connection, stream, handler):
        await handler.until_done(2)
        await wait_until(lambda: pending(plain, stream) == {}, "both to be off the list")
    assert [entry.id for entry in handler.got] == [kept]


@clause("T-6")
async def test_t06_an_entry_that_kills_its_consumer_does_not_do_so_for_ever(
    connection: Connection, plain: Plain, stream: str
) -> None:
    """Restarted after each crash, it would otherwise begin with the same entry every time."""
    poison, fine = left_pending(plain, stream, "c1", 1, 2)
    plain.ask("XCLAIM", stream, GROUP, "c1", 0, poison, "RETRYCOUNT", 5, "JUSTID")
    handler = Recorder()
    async with build(connection, stream, handler):
        await handler.until_done(2)
        await wait_until(lambda: pending(plain, stream) == {}, "both to be off the list")
    assert [entry.id for entry in handler.got] == [fine]
    (dead,) = entries(plain, f"{stream}:dead")
    assert (dead.fields["entry_id"], dead.fields["deliveries"]) == (poison, "5")


@clause("T-6")
async def test_t06_entries_in_hand_are_renewed_and_no_delivery_counted(
    connection: Connection, plain: Plain, stream: str
) -> None:
    go = asyncio.Event()
    handler = Recorder(lambda _: go.wait())
    async with build(connection, stream, handler, idle_timeout_s=0.6):
        await publish(connection, stream, 1)
        await wait_until(lambda: handler.got, "the handler to begin")
        (id_,) = pending(plain, stream)
        for _ in range(2):
            await wait_until(lambda: idle_ms(plain, stream, id_) > 50, "the entry to idle")
            await wait_until(lambda: idle_ms(plain, stream, id_) < 50, "a renewal")
        assert pending(plain, stream) == {id_: ("c1", 1)}
        go.set()


@clause("T-6")
async def test_t06_renewing_does_not_steal_an_entry_back(
    connection: Connection, plain: Plain, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    go = asyncio.Event()
    handler = Recorder(lambda _: go.wait())
    async with build(connection, stream, handler, idle_timeout_s=0.3):
        await publish(connection, stream, 1)
        await wait_until(lambda: handler.got, "the handler to begin")
        (id_,) = pending(plain, stream)
        plain.ask("XCLAIM", stream, GROUP, "somebody", 0, id_, "JUSTID")
        await wait_until(lambda: "went to another" in caplog.text, "the loss to be noticed")
        assert pending(plain, stream) == {id_: ("somebody", 1)}
        go.set()


@clause("T-6")
@pytest.mark.parametrize("obedient", [True, False])
async def test_t06_the_handler_of_an_entry_that_went_to_another_is_cancelled(
    connection: Connection, plain: Plain, stream: str, obedient: bool
) -> None:
    """And however it ends, the other's entry stays the other's; the next ones are handled."""
    told: list[str] = []

    async def work(entry: StreamMessage) -> None:
        if entry.fields["n"] != "1":
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append(entry.id)
            if obedient:
                raise

    handler = Recorder(work)
    async with build(connection, stream, handler, idle_timeout_s=0.3):
        await publish(connection, stream, 1)
        await wait_until(lambda: handler.got, "the handler to begin")
        (id_,) = pending(plain, stream)
        plain.ask("XCLAIM", stream, GROUP, "somebody", 0, id_, "JUSTID")
        await publish(connection, stream, 2)
        await handler.until_done(2)
        await wait_until(lambda: set(pending(plain, stream)) == {id_}, "the next one's end")
    assert told == [id_]
    assert pending(plain, stream) == {id_: ("somebody", 1)}


@clause("T-6")
async def test_t06_no_more_run_at_once_than_allowed(
    connection: Connection, plain: Plain, stream: str
) -> None:
    running, most = 0, 0
    go = asyncio.Event()

    async def count(_: StreamMessage) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1

    handler = Recorder(count)
    await publish(connection, stream, *range(10))
    async with build(connection, stream, handler, concurrency=3):
        await wait_until(lambda: running == 3, "three to run")
        go.set()
        await handler.until_done(*range(10))
        await wait_until(lambda: pending(plain, stream) == {}, "all to be acknowledged")
    assert most == 3


@clause("T-6")
async def test_t06_a_slow_entry_does_not_hold_up_the_other_slots(
    connection: Connection, stream: str
) -> None:
    go = asyncio.Event()
    handler = Recorder(lambda message: go.wait() if message.fields["n"] == "0" else None)
    async with build(connection, stream, handler, concurrency=2, count=3):
        await publish(connection, stream, *range(10))
        await handler.until_done(*range(1, 10))
        assert "0" not in handler.done
        go.set()


@clause("T-6")
async def test_t06_count_and_block_time_go_to_the_server(
    valkey: LocalValkey, proxy: Proxy, stream: str
) -> None:
    async with Connection.open(proxy.url(valkey.url)) as connection:
        async with build(connection, stream, Recorder(), count=7, block_s=0.25):
            await proxy.until_seen("XREADGROUP", 2)
        assert proxy.seen("XREADGROUP")[0].words == (
            *("XREADGROUP", "GROUP", GROUP, "c1", "COUNT", "7", "BLOCK", "250"),
            *("STREAMS", stream, ">"),
        )


@clause("T-6")
async def test_t06_two_consumers_share_the_work(
    connection: Connection, plain: Plain, stream: str
) -> None:
    one, two = Recorder(lambda _: asyncio.sleep(0)), Recorder(lambda _: asyncio.sleep(0))
    async with (
        build(connection, stream, one, "c1", count=1),
        build(connection, stream, two, "c2", count=1),
    ):
        await publish(connection, stream, *range(50))
        await wait_until(lambda: len(one.done) + len(two.done) >= 50, "all to be handled")
        await wait_until(lambda: pending(plain, stream) == {}, "all to be acknowledged")
    assert sorted([*one.done, *two.done], key=int) == [str(n) for n in range(50)]
    assert one.done
    assert two.done


async def test_a_plain_function_may_handle(
    connection: Connection, plain: Plain, stream: str
) -> None:
    got: list[str] = []
    async with build(connection, stream, lambda message: got.append(message.fields["n"])):
        await publish(connection, stream, 1)
        await wait_until(lambda: got == ["1"], "the function to be called")
        await wait_until(lambda: pending(plain, stream) == {}, "it to be acknowledged")


@clause("T-6")
async def test_t06_many_lives_leave_no_socket_behind(
    valkey: LocalValkey, plain: Plain, stream: str
) -> None:
    def sockets() -> int:
        return sum(each["name"].startswith("many-lives") for each in plain.client_list())

    async with Connection.open(valkey.url, name="many-lives") as connection:
        for _ in range(15):
            async with build(connection, stream, Recorder()):
                pass
        assert sockets() <= 2, "the shared one, and one for reading that is used again"
    await wait_until(lambda: sockets() == 0, "every socket to be closed")
