"""T-7: idle entries are reclaimed once, or dead-lettered with a reason."""

from __future__ import annotations

import asyncio
import json

import pytest

from jobwire.local import LocalValkey
from jobwire.valkey import (
    AlreadyStarted,
    ConfigError,
    Connection,
    Consumer,
    ConsumerClosed,
    Handler,
    NotStarted,
    Producer,
    Reclaimer,
    StreamMessage,
)
from tests.support import Plain, Program, Proxy, clause, wait_until
from tests.valkey.conftest import GROUP, Recorder, entries, left_pending, pending

pytestmark = pytest.mark.keeps("stream-*")

LONG = 3600.0


def build(connection: Connection, stream: str, handler: Handler, **more: float) -> Reclaimer:
    settings = {"idle_timeout_s": 0.05, "scan_interval_s": 0.05, **more}
    return Reclaimer(
        connection,
        stream=stream,
        group=GROUP,
        consumer="r1",
        handler=handler,
        **settings,  # pyright: ignore[reportArgumentType] - names are checked by the constructor
    )


def fail(message: StreamMessage) -> None:
    raise ValueError(f"cannot do {message.fields['n']}")


@clause("T-7")
async def test_t07_start_and_stop_are_allowed_once(connection: Connection, stream: str) -> None:
    reclaimer = build(connection, stream, Recorder())
    with pytest.raises(NotStarted):
        await reclaimer.stop()
    await reclaimer.start()
    assert reclaimer.ready
    with pytest.raises(AlreadyStarted):
        await reclaimer.start()
    await reclaimer.stop()
    assert not reclaimer.ready
    with pytest.raises(ConsumerClosed):
        await reclaimer.start()


@clause("T-7")
@pytest.mark.parametrize(
    "field",
    ["idle_timeout_s", "scan_interval_s", "max_deliveries", "count", "concurrency"],
)
async def test_t07_an_invalid_number_is_rejected(
    connection: Connection, stream: str, field: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{field}: must be"):
        build(connection, stream, Recorder(), **{field: 0})


@clause("T-7")
async def test_t07_scans_repeat_until_stop(valkey: LocalValkey, proxy: Proxy, stream: str) -> None:
    async with Connection.open(proxy.url(valkey.url)) as connection:
        async with build(connection, stream, Recorder()):
            await proxy.until_seen("XPENDING", 3)
        proxy.forget_seen()
        await connection.ping()
        assert proxy.names == ["PING"], "no scan after stop"


@clause("T-7")
async def test_t07_idle_entries_are_handled_and_acknowledged(
    connection: Connection, plain: Plain, stream: str
) -> None:
    left_pending(plain, stream, "dead1", 1, 2)
    left_pending(plain, stream, "dead2", 3)
    handler = Recorder()
    async with build(connection, stream, handler):
        await handler.until_done(1, 2, 3)
        await wait_until(lambda: pending(plain, stream) == {}, "all to be acknowledged")
    assert handler.got == entries(plain, stream)


@clause("T-7")
async def test_t07_entries_of_a_killed_process_are_reclaimed(
    connection: Connection, valkey: LocalValkey, plain: Plain, stream: str
) -> None:
    source = """
import asyncio, sys
from jobwire.valkey import Connection, Consumer

async def handle(message):
    print("started", message.fields["n"], flush=True)
    await asyncio.Event().wait()

async def main():
    async with Connection.open(sys.argv[1]) as connection:
        names = dict(stream=sys.argv[2], group=sys.argv[3], consumer="killed")
        async with Consumer(connection, handler=handle, idle_timeout_s=1, **names):
            await asyncio.Event().wait()

asyncio.run(main())
"""
    await Producer(connection).publish(stream, {"n": 1})
    with Program.script(source, valkey.url, stream, GROUP) as killed:
        await asyncio.to_thread(killed.wait_for_line, "started 1")
        handler = Recorder()
        async with build(connection, stream, handler, idle_timeout_s=1):
            killed.kill()
            await handler.until_done(1)
            await wait_until(lambda: pending(plain, stream) == {}, "it to be acknowledged")


@clause("T-6", "T-7")
async def test_t06_a_renewed_entry_is_not_reclaimed(
    valkey: LocalValkey, proxy: Proxy, plain: Plain, stream: str
) -> None:
    go = asyncio.Event()
    consumer_handler, reclaimer_handler = Recorder(lambda _: go.wait()), Recorder()
    # Renewed often, so that only a stop of several seconds lets it become idle.
    idle_timeout_s = 6.0
    async with (
        Connection.open(proxy.url(valkey.url)) as connection,
        Consumer(
            connection,
            stream=stream,
            group=GROUP,
            consumer="c1",
            handler=consumer_handler,
            idle_timeout_s=0.6,
        ),
        build(
            connection,
            stream,
            reclaimer_handler,
            idle_timeout_s=idle_timeout_s,
            scan_interval_s=idle_timeout_s / 20,
        ),
    ):
        await Producer(connection).publish(stream, {"n": 1})
        await wait_until(lambda: consumer_handler.got, "the handler to begin")
        proxy.forget_seen()
        await proxy.until_seen("XPENDING", 25)
        assert reclaimer_handler.got == []
        assert [holder for holder, _ in pending(plain, stream).values()] == ["c1"]
        go.set()
        await consumer_handler.until_done(1)
        await wait_until(lambda: pending(plain, stream) == {}, "it to be acknowledged")


@clause("T-7")
async def test_t07_entries_below_the_idle_timeout_are_not_reclaimed(
    valkey: LocalValkey, proxy: Proxy, plain: Plain, stream: str
) -> None:
    (id_,) = left_pending(plain, stream, "busy", 1)
    async with Connection.open(proxy.url(valkey.url)) as connection:
        handler = Recorder()
        async with build(connection, stream, handler, idle_timeout_s=LONG):
            await proxy.until_seen("XPENDING", 3)
    assert pending(plain, stream) == {id_: ("busy", 1)}


@clause("T-7")
async def test_t07_an_exhausted_entry_is_dead_lettered_with_its_reason(
    connection: Connection, plain: Plain, stream: str
) -> None:
    (id_,) = left_pending(plain, stream, "c1", 7)
    handler = Recorder(fail)
    async with build(connection, stream, handler, max_deliveries=3):
        await wait_until(lambda: plain.exists(f"{stream}:dead"), "the dead letter")
        await Producer(connection).publish(stream, {"n": 8})
        assert pending(plain, stream) == {}, "it is acknowledged"
    assert handler.numbers == ["7", "7"], "delivered once by its consumer, twice by the reclaimer"
    (dead,) = entries(plain, f"{stream}:dead")
    assert dead.fields == {
        "entry_id": id_,
        "reason": "delivered 3 times and never acknowledged; "
        "its handler failed: ValueError: cannot do 7",
        "deliveries": "3",
        "fields": '{"n": "7"}',
    }
    assert list(dead.fields) == ["entry_id", "reason", "deliveries", "fields"]


@clause("T-7")
async def test_t07_an_entry_without_a_recorded_failure_is_dead_lettered(
    connection: Connection, plain: Plain, stream: str
) -> None:
    (id_,) = left_pending(plain, stream, "c1", 1)
    plain.call("XCLAIM", stream, GROUP, "c1", 0, id_, "RETRYCOUNT", 5, "JUSTID")
    handler = Recorder()
    async with build(connection, stream, handler):
        await wait_until(lambda: plain.exists(f"{stream}:dead"), "the dead letter")
    (dead,) = entries(plain, f"{stream}:dead")
    assert dead.fields["reason"] == (
        "delivered 5 times and never acknowledged; its consumers stopped"
    )
    assert handler.got == []


@clause("T-7")
async def test_t07_a_dead_letter_keeps_every_byte(
    connection: Connection, plain: Plain, stream: str
) -> None:
    fields = {"text": 'é "quoted"\n', "bytes": b"\xff\x00\xfe", "": "empty name"}
    await Producer(connection).publish(stream, fields)
    plain.xgroup_create(stream, GROUP, "0")
    plain.call("XREADGROUP", "GROUP", GROUP, "c1", "STREAMS", stream, ">")
    async with build(connection, stream, Recorder(), max_deliveries=1):
        await wait_until(lambda: plain.exists(f"{stream}:dead"), "the dead letter")
    (dead,) = entries(plain, f"{stream}:dead")
    kept = json.loads(dead.fields["fields"])
    assert {name: value.encode("utf-8", "surrogateescape") for name, value in kept.items()} == {
        "text": 'é "quoted"\n'.encode(),
        "bytes": b"\xff\x00\xfe",
        "": b"empty name",
    }


@clause("T-7")
async def test_t07_an_error_text_that_cannot_be_encoded_is_dead_lettered(
    connection: Connection, plain: Plain, stream: str
) -> None:
    def fail_with_surrogates(_: StreamMessage) -> None:
        raise ValueError("\udc00" + "x" * 5000)

    left_pending(plain, stream, "c1", 1)
    async with build(connection, stream, Recorder(fail_with_surrogates), max_deliveries=2):
        await wait_until(lambda: plain.exists(f"{stream}:dead"), "the dead letter")
    (dead,) = entries(plain, f"{stream}:dead")
    assert "ValueError: ?xxx" in dead.fields["reason"]
    assert len(dead.fields["reason"]) < 1200


@clause("T-7")
async def test_t07_the_dead_letter_stream_is_bounded(
    connection: Connection, plain: Plain, stream: str
) -> None:
    plain.eval(
        "for n = 1, 12000 do redis.call('XADD', KEYS[1], '*', 'n', n) end", 1, f"{stream}:dead"
    )
    left_pending(plain, stream, "c1", 1)
    async with build(connection, stream, Recorder(), max_deliveries=1):
        await wait_until(lambda: plain.xlen(f"{stream}:dead") != 12000, "the dead letter")
    assert 10_000 <= plain.xlen(f"{stream}:dead") < 11_000


@clause("T-7")
async def test_t07_a_deleted_entry_is_not_dead_lettered(
    connection: Connection, plain: Plain, stream: str
) -> None:
    gone, alive = left_pending(plain, stream, "c1", 1, 2)
    plain.call("XCLAIM", stream, GROUP, "c1", 0, gone, "RETRYCOUNT", 9, "JUSTID")
    plain.xdel(stream, gone)
    handler = Recorder()
    async with build(connection, stream, handler):
        await wait_until(lambda: pending(plain, stream) == {}, "both to be off the list")
    assert [entry.id for entry in handler.got] == [alive]
    assert not plain.exists(f"{stream}:dead")


@clause("T-7")
async def test_t07_an_entry_claimed_meanwhile_is_neither_dead_lettered_nor_claimed(
    valkey: LocalValkey, proxy: Proxy, plain: Plain, stream: str
) -> None:
    """Another consumer claims the entries between the listing and the claim."""
    exhausted, idle = left_pending(plain, stream, "c1", 1, 2)
    for id_, count in ((exhausted, 5), (idle, 1)):
        as_idle = ("IDLE", 2 * int(LONG) * 1000, "RETRYCOUNT", count, "JUSTID")
        plain.call("XCLAIM", stream, GROUP, "c1", 0, id_, *as_idle)
    handler = Recorder()
    async with Connection.open(proxy.url(valkey.url)) as connection:
        with proxy.hold("XRANGE") as hold:  # sent between listing and claim
            async with build(connection, stream, handler, idle_timeout_s=LONG):
                await hold.until_reached()
                plain.call("XCLAIM", stream, GROUP, "other", 0, exhausted, idle, "JUSTID")
                hold.release()
                await proxy.until_seen("EVALSHA", 3)
    assert {holder for holder, _ in pending(plain, stream).values()} == {"other"}
    assert handler.got == []
    assert not plain.exists(f"{stream}:dead")


@clause("T-7")
async def test_t07_several_reclaimers_share_the_work(
    valkey: LocalValkey, plain: Plain, stream: str
) -> None:
    left_pending(plain, stream, "dead", *range(60))
    handlers = [Recorder(lambda _: asyncio.sleep(0)) for _ in range(3)]
    async with (
        Connection.open(valkey.url) as one,
        Connection.open(valkey.url) as two,
        Connection.open(valkey.url) as three,
        asyncio.timeout(60),
    ):
        reclaimers = [
            Reclaimer(
                connection,
                stream=stream,
                group=GROUP,
                consumer=f"r{number}",
                handler=handler,
                # Long enough that no claimed entry becomes idle again.
                idle_timeout_s=30,
                scan_interval_s=0.05,
                count=4,
            )
            for number, (connection, handler) in enumerate(
                zip((one, two, three), handlers, strict=True)
            )
        ]
        for id_ in pending(plain, stream):
            plain.call("XCLAIM", stream, GROUP, "dead", 0, id_, "IDLE", 60_000, "JUSTID")
        for reclaimer in reclaimers:
            await reclaimer.start()
        await wait_until(lambda: pending(plain, stream) == {}, "all to be acknowledged")
        for reclaimer in reclaimers:
            await reclaimer.stop()
    handled = [number for handler in handlers for number in handler.numbers]
    assert sorted(handled, key=int) == [str(number) for number in range(60)], "once each"


@clause("T-7")
async def test_t07_idle_consumers_without_pending_entries_are_removed(
    connection: Connection, plain: Plain, stream: str
) -> None:
    left_pending(plain, stream, "owner", 1)
    plain.call("XGROUP", "CREATECONSUMER", stream, GROUP, "idle")

    def names() -> set[str]:
        return {each["name"] for each in plain.xinfo_consumers(stream, GROUP)}

    assert names() == {"owner", "idle"}
    async with build(connection, stream, Recorder(), idle_timeout_s=LONG, forget_after_s=0.2):
        await wait_until(lambda: names() == {"owner"}, "the idle consumer to be removed")
    assert len(pending(plain, stream)) == 1, "pending entries keep their owner"


@clause("T-7")
async def test_t07_no_consumer_is_removed_within_a_day(
    valkey: LocalValkey, proxy: Proxy, plain: Plain, stream: str
) -> None:
    plain.xgroup_create(stream, GROUP, "0", mkstream=True)
    plain.call("XGROUP", "CREATECONSUMER", stream, GROUP, "yesterday")
    async with Connection.open(proxy.url(valkey.url)) as connection:
        async with build(connection, stream, Recorder()):
            await proxy.until_seen("XPENDING", 3)
        calls = [each.words for each in proxy.seen("EVALSHA")]
    assert calls[0][-3:] == (GROUP, "86400000", "100")
    assert [each["name"] for each in plain.xinfo_consumers(stream, GROUP)] == ["yesterday"]


@clause("T-7")
async def test_t07_scans_continue_after_a_missing_group_and_disconnects(
    valkey: LocalValkey, proxy: Proxy, plain: Plain, stream: str
) -> None:
    handler = Recorder()
    async with (
        Connection.open(proxy.url(valkey.url)) as connection,
        build(connection, stream, handler),
    ):
        await proxy.until_seen("XPENDING", 2)
        left_pending(plain, stream, "dead", 1)
        await handler.until_done(1)
        proxy.cut()
        left_pending(plain, stream, "dead", 2)
        await handler.until_done(2)
        plain.flushall()
        left_pending(plain, stream, "dead", 3)
        await handler.until_done(3)
        await wait_until(lambda: pending(plain, stream) == {}, "all to be acknowledged")


@clause("T-7")
async def test_t07_its_own_long_handler_is_renewed(
    connection: Connection, plain: Plain, stream: str
) -> None:
    """Two scans of one reclaimer must not handle the same entry twice."""
    left_pending(plain, stream, "dead", 1)
    go = asyncio.Event()
    handler = Recorder(lambda _: go.wait())
    async with build(
        connection, stream, handler, idle_timeout_s=1.5, scan_interval_s=0.1, concurrency=2
    ):
        await wait_until(lambda: handler.got, "the handler to begin")
        # A second entry that becomes idle later shows that the first one's timeout has passed.
        left_pending(plain, stream, "dead", 2)
        await wait_until(lambda: "2" in handler.numbers, "the second entry to become idle")
        assert handler.numbers == ["1", "2"]
        go.set()


@clause("T-7")
async def test_t07_an_entry_that_it_handles_itself_is_not_claimed_again(
    valkey: LocalValkey, proxy: Proxy, plain: Plain, stream: str
) -> None:
    """Also if nothing was renewed while the process stood still."""

    def let_pass(consumer: str) -> None:
        plain.call(
            "XCLAIM", stream, GROUP, consumer, 0, id_, "IDLE", 2 * int(LONG) * 1000, "JUSTID"
        )

    (id_,) = left_pending(plain, stream, "dead", 1)
    let_pass("dead")
    go = asyncio.Event()
    handler = Recorder(lambda _: go.wait())
    async with (
        Connection.open(proxy.url(valkey.url)) as connection,
        build(connection, stream, handler, idle_timeout_s=LONG, concurrency=2),
    ):
        await wait_until(lambda: handler.got, "the handler to begin")
        let_pass("r1:reclaimer")
        await proxy.until_seen("XPENDING", len(proxy.seen("XPENDING")) + 2)
        held = pending(plain, stream)
        go.set()
        assert handler.numbers == ["1"]
        assert held == {id_: ("r1:reclaimer", 2)}
        await wait_until(lambda: pending(plain, stream) == {}, "it to be acknowledged")


@clause("T-7")
async def test_t07_stop_waits_for_the_handler_and_releases_the_rest(
    connection: Connection, plain: Plain, stream: str
) -> None:
    left_pending(plain, stream, "dead", 1, 2, 3)
    go = asyncio.Event()
    handler = Recorder(lambda _: go.wait())
    reclaimer = build(connection, stream, handler, idle_timeout_s=1)
    await reclaimer.start()
    await wait_until(lambda: handler.got, "the handler to begin")
    stopping = asyncio.create_task(reclaimer.stop())
    await asyncio.sleep(0)
    go.set()
    await stopping
    assert handler.done == ["1"]
    assert list(pending(plain, stream).values()) == [("r1:reclaimer", 1), ("r1:reclaimer", 1)]
