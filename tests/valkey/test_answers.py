"""I-33: the answers of a handler, `DeadLetter` and `NotNow`."""

from __future__ import annotations

import asyncio
import json

import pytest

from jobwire.valkey import (
    Answer,
    ConfigError,
    Connection,
    Consumer,
    DeadLetter,
    Handler,
    NotNow,
    Producer,
    Reclaimer,
    StreamMessage,
)
from tests.support import Plain, clause, wait_until
from tests.valkey.conftest import GROUP, entries, left_pending, pending

pytestmark = pytest.mark.keeps("stream-*")


def consumer(connection: Connection, stream: str, handler: Handler, **more: float) -> Consumer:
    return Consumer(
        connection,
        stream=stream,
        group=GROUP,
        consumer="c1",
        handler=handler,
        **more,  # pyright: ignore[reportArgumentType] - names are checked by the constructor
    )


async def dead_letters(plain: Plain, stream: str) -> list[dict[str, str]]:
    """The dead letters, once there is one."""
    await wait_until(lambda: plain.exists(f"{stream}:dead"), "a dead letter")
    return [entry.fields for entry in entries(plain, f"{stream}:dead")]


@clause("I-33")
async def test_i33_an_answer_moves_the_entry_to_the_dead_letters(
    connection: Connection, plain: Plain, stream: str
) -> None:
    async def give_up(message: StreamMessage) -> Answer:
        return DeadLetter(f"unknown image {message.fields['n']} \ud800")

    async with consumer(connection, stream, give_up):
        id_ = await Producer(connection).publish(stream, {"n": 7})
        (letter,) = await dead_letters(plain, stream)
    assert letter == {
        "entry_id": id_,
        "reason": "unknown image 7 ?",
        "deliveries": "1",
        "fields": json.dumps({"n": "7"}),
    }
    assert pending(plain, stream) == {}


@clause("I-33")
async def test_i33_not_now_counts_no_delivery_however_often(
    connection: Connection, plain: Plain, stream: str
) -> None:
    calls: list[int] = []

    async def wait_for_database(message: StreamMessage) -> Answer:
        calls.append(pending(plain, stream)[message.id][1])
        return NotNow("the database is away", 0.01) if len(calls) < 10 else None

    limits = {"max_deliveries": 2, "idle_timeout_s": 60.0}
    async with (
        consumer(connection, stream, wait_for_database, **limits),
        Reclaimer(
            connection,
            stream=stream,
            group=GROUP,
            consumer="r1",
            handler=wait_for_database,
            idle_timeout_s=60.0,
            scan_interval_s=0.02,
            max_deliveries=2,
        ),
    ):
        await Producer(connection).publish(stream, {"n": 1})
        await wait_until(lambda: len(calls) == 10, "the tenth call")
        await wait_until(lambda: not pending(plain, stream), "the acknowledgement")
    # A call counts while it runs, so that one which ends the process is counted.
    assert set(calls) == {1}
    assert not plain.exists(f"{stream}:dead")


@clause("I-33")
async def test_i33_a_postponed_entry_is_handed_over_at_stop(
    connection: Connection, plain: Plain, stream: str
) -> None:
    asked, handled = asyncio.Event(), asyncio.Event()

    def not_now(_: StreamMessage) -> Answer:
        asked.set()
        return NotNow(retry_after_s=3600)

    def handle(_: StreamMessage) -> None:
        handled.set()

    first = consumer(connection, stream, not_now)
    await first.start()
    id_ = await Producer(connection).publish(stream, {"n": 1})
    await asked.wait()
    await wait_until(lambda: pending(plain, stream) == {id_: ("c1", 0)}, "the entry not counted")
    await first.stop()
    assert pending(plain, stream) == {id_: ("c1", 0)}
    async with Reclaimer(
        connection,
        stream=stream,
        group=GROUP,
        consumer="r1",
        handler=handle,
        scan_interval_s=0.02,
    ):
        await handled.wait()


@clause("I-33", "T-7")
async def test_i33_the_answers_apply_to_reclaimed_entries(
    connection: Connection, plain: Plain, stream: str
) -> None:
    left_pending(plain, stream, "gone", 1, 2)
    postponed: set[str] = set()

    def answer(message: StreamMessage) -> Answer:
        if message.id not in postponed:
            postponed.add(message.id)
            return NotNow(retry_after_s=0.01)
        return DeadLetter("seen twice")

    async with Reclaimer(
        connection,
        stream=stream,
        group=GROUP,
        consumer="r1",
        handler=answer,
        idle_timeout_s=0.05,
        scan_interval_s=0.02,
    ):
        await wait_until(lambda: not pending(plain, stream), "both entries")
    letters = await dead_letters(plain, stream)
    assert [(each["reason"], each["deliveries"]) for each in letters] == [("seen twice", "2")] * 2


@clause("I-33")
@pytest.mark.parametrize("delay_s", [0.0, -1.0, float("nan"), float("inf")])
def test_i33_an_invalid_delay_is_rejected(delay_s: float) -> None:
    with pytest.raises(ConfigError, match=r"^retry_after_s: must be"):
        NotNow(retry_after_s=delay_s)
