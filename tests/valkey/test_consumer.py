"""T-6: entries are handled and acknowledged, or left pending when their handler fails."""

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
from tests.support.wait import DEADLINE_S
from tests.valkey.conftest import GROUP, Recorder, entries, idle_ms, left_pending, pending

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
        **more,  # pyright: ignore[reportArgumentType] - names are checked by the constructor
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
    assert handler.got == entries(plain, stream), "complete entries, in order, once each"


@clause("T-6")
async def test_t06_a_failing_handler_leaves_only_its_entry_pending(
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
async def test_t06_start_creates_group_and_stream(
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
async def test_t06_start_and_stop_are_allowed_once(connection: Connection, stream: str) -> None:
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
async def test_t06_an_empty_name_is_rejected(connection: Connection, field: str) -> None:
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
async def test_t06_an_invalid_number_is_rejected(
    connection: Connection, stream: str, field: str, value: float
) -> None:
    with pytest.raises(ConfigError, match=f"^{field}: must be"):
        build(connection, stream, Recorder(), "c1", **{field: value})


@clause("T-6", "T-4")
async def test_t06_a_handler_that_is_not_callable_is_rejected(
    connection: Connection, stream: str
) -> None:
    with pytest.raises(ConfigError, match=r"^handler: must be callable, is NoneType$"):
        build(connection, stream, None)  # pyright: ignore[reportArgumentType] - on purpose


@clause("T-6")
async def test_t06_a_start_timeout_leaves_nothing_running(
    valkey: LocalValkey, proxy: Proxy, stream: str
) -> None:
    config = Config.from_url(proxy.url(valkey.url), dial_timeout_s=0.3, failover_timeout_s=0.3)
    async with Connection.open(config, connect_timeout_s=DEADLINE_S) as connection:
        proxy.refuse()
        await wait_until(lambda: not connection.connected, "the connection to be gone")
        before = asyncio.all_tasks()
        handler = Recorder()
        consumer = build(connection, stream, handler, ready_timeout_s=0.6)

        async def names_the_cause() -> bool:
            with pytest.raises(Unavailable, match=r"was not ready within 0.6 s") as refused:
                await consumer.start()
            # Not if both limits have passed while this process stood still.
            return ": no connection to" in str(refused.value)

        await wait_until(names_the_cause, "the error with its cause")
        await wait_until(lambda: asyncio.all_tasks() <= before, "every task to be gone")
        proxy.accept()

        async def ready() -> bool:
            with contextlib.suppress(Unavailable):  # a loaded machine needs more attempts
                await consumer.start()
                return True
            return False

        await wait_until(ready, "the consumer to be ready")
        await publish(connection, stream, 1)
        await handler.until_done(1)
        await consumer.stop()


@clause("T-6")
async def test_t06_a_cancelled_start_leaves_nothing_running(
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
async def test_t06_a_permanent_error_is_raised_at_once(
    connection: Connection, plain: Plain, stream: str
) -> None:
    plain.set(stream, "not a stream", ex=60)
    with pytest.raises(ServerError) as refused:
        await build(connection, stream, Recorder()).start()
    assert refused.value.code == "WRONGTYPE"


@clause("T-6")
async def test_t06_stop_waits_for_the_running_handler(
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
    assert handler.done == ["1"], "it finished, and no other was started"
    assert [holder for holder, _ in pending(plain, stream).values()] == ["c1", "c1"]


@clause("T-6")
async def test_t06_stop_releases_entries_that_were_not_started(
    connection: Connection, plain: Plain, stream: str
) -> None:
    """Otherwise a stop would delay prefetched entries by the idle timeout."""
    go = asyncio.Event()
    handler = Recorder(lambda _: go.wait())
    await publish(connection, stream, 1, 2, 3)
    consumer = build(connection, stream, handler)
    await consumer.start()
    await wait_until(lambda: handler.got, "the handler to begin")
    assert len(pending(plain, stream)) == 3, "it prefetches"
    stopping = asyncio.create_task(consumer.stop())
    await asyncio.sleep(0)
    go.set()
    await stopping
    rows = plain.call("XPENDING", stream, GROUP, "IDLE", 3_600_000, "-", "+", 10)
    assert isinstance(rows, list)
    assert len(rows) == 2, "their idle time is high, so any reclaimer claims them"
    assert [count for _, count in pending(plain, stream).values()] == [0, 0], (
        "no delivery is counted"
    )


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
async def test_t06_a_cancelled_stop_cancels_the_handlers(
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
async def test_t06_entries_pending_under_its_name_are_handled_first(
    connection: Connection, plain: Plain, stream: str
) -> None:
    left_pending(plain, stream, "c1", 1, 2)
    others = left_pending(plain, stream, "c2", 3)
    await publish(connection, stream, 4)
    handler = Recorder()
    async with build(connection, stream, handler):
        await handler.until_done(1, 2, 4)
    assert handler.numbers == ["1", "2", "4"], (
        "its own first, then the new one, no other consumer's"
    )
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
async def test_t06_an_exhausted_own_entry_is_dead_lettered(
    connection: Connection, plain: Plain, stream: str
) -> None:
    """A consumer that crashes on an entry must not start with it after each restart forever."""
    exhausted, fine = left_pending(plain, stream, "c1", 1, 2)
    plain.call("XCLAIM", stream, GROUP, "c1", 0, exhausted, "RETRYCOUNT", 5, "JUSTID")
    handler = Recorder()
    async with build(connection, stream, handler):
        await handler.until_done(2)
        await wait_until(lambda: pending(plain, stream) == {}, "both to be off the list")
    assert [entry.id for entry in handler.got] == [fine]
    (dead,) = entries(plain, f"{stream}:dead")
    assert (dead.fields["entry_id"], dead.fields["deliveries"]) == (exhausted, "5")


@clause("T-6")
async def test_t06_entries_in_flight_are_renewed_without_counting_a_delivery(
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
async def test_t06_renewal_does_not_take_back_a_claimed_entry(
    connection: Connection, plain: Plain, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    go = asyncio.Event()
    handler = Recorder(lambda _: go.wait())
    async with build(connection, stream, handler, idle_timeout_s=0.3):
        await publish(connection, stream, 1)
        await wait_until(lambda: handler.got, "the handler to begin")
        (id_,) = pending(plain, stream)
        plain.call("XCLAIM", stream, GROUP, "other", 0, id_, "JUSTID")
        await wait_until(
            lambda: "lost to another consumer" in caplog.text, "the loss to be detected"
        )
        assert pending(plain, stream) == {id_: ("other", 1)}
        go.set()


@clause("T-6")
@pytest.mark.parametrize("reraise", [True, False])
async def test_t06_the_handler_of_a_lost_entry_is_cancelled(
    connection: Connection, plain: Plain, stream: str, reraise: bool
) -> None:
    """It never acknowledges the entry, even if it ignores the cancellation; later entries are
    handled."""
    cancelled: list[str] = []

    async def work(entry: StreamMessage) -> None:
        if entry.fields["n"] != "1":
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(entry.id)
            if reraise:
                raise

    handler = Recorder(work)
    async with build(connection, stream, handler, idle_timeout_s=0.3):
        await publish(connection, stream, 1)
        await wait_until(lambda: handler.got, "the handler to begin")
        (id_,) = pending(plain, stream)
        plain.call("XCLAIM", stream, GROUP, "other", 0, id_, "JUSTID")
        await publish(connection, stream, 2)
        await handler.until_done(2)
        await wait_until(lambda: set(pending(plain, stream)) == {id_}, "the next one's end")
    assert cancelled == [id_]
    assert pending(plain, stream) == {id_: ("other", 1)}


@clause("T-6")
async def test_t06_concurrency_is_limited(
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
async def test_t06_a_slow_entry_does_not_block_other_slots(
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
async def test_t06_count_and_block_time_are_sent_to_the_server(
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


async def test_a_plain_function_can_be_the_handler(
    connection: Connection, plain: Plain, stream: str
) -> None:
    got: list[str] = []
    async with build(connection, stream, lambda message: got.append(message.fields["n"])):
        await publish(connection, stream, 1)
        await wait_until(lambda: got == ["1"], "the function to be called")
        await wait_until(lambda: pending(plain, stream) == {}, "it to be acknowledged")


@clause("T-6")
async def test_t06_repeated_start_and_stop_leaks_no_socket(
    valkey: LocalValkey, plain: Plain, stream: str
) -> None:
    def sockets() -> int:
        return sum(each["name"].startswith("restarts") for each in plain.client_list())

    async with Connection.open(valkey.url, name="restarts") as connection:
        for _ in range(15):
            async with build(connection, stream, Recorder()):
                pass
        assert sockets() <= 2, "the shared one, and one for reading that is reused"
    await wait_until(lambda: sockets() == 0, "every socket to be closed")
