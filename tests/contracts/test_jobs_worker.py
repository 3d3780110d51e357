"""J-30 … J-38, J-40: a worker's part of the contract, on the engine's side of the seam."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence

import pytest

from jobwire.job.errors import GroundError
from jobwire.job.messages import (
    Canceled,
    Done,
    Failed,
    GivenBack,
    Held,
    JobError,
    JobId,
    KeepAnswer,
    Order,
    Report,
    ReportAnswer,
    SettleAnswer,
    Submitted,
    TryAgain,
)
from jobwire.local import LocalValkey
from jobwire.valkey import Connection
from jobwire.wires.streams.engine import StreamsEngine
from jobwire.wires.streams.scripts import SCRIPTS
from tests.raw import Raw, Recording
from tests.streams import StreamsLab
from tests.support import Proxy, clause, wait_until
from tests.support.resp import Command
from tests.support.servers import plain_client

QUEUE = "jobs:stream"
TRANSIENT = JobError("handler_error", "the handler failed", retryable=True)
FINAL = JobError("no_such_city", "there is no city of that name")


async def submit(lab: StreamsLab, payload: str = "{}", **order: object) -> JobId:
    wanted = {"task": "echo", "payload_json": payload, **order}
    answer = await lab.queue.submit(Order(**wanted))  # pyright: ignore[reportArgumentType] - by name
    assert isinstance(answer, Submitted)
    return answer.job_id


async def start(lab: StreamsLab, **order: object) -> tuple[StreamsEngine, Held]:
    worker = await lab.worker()
    await submit(lab, **order)  # pyright: ignore[reportArgumentType] - by name
    (held,) = await worker.take(1)
    return worker, held


def runs(name: str) -> object:
    """A condition for the proxy: this script is run."""

    def fits(command: Command) -> bool:
        return command.name == "EVALSHA" and command.words[1] == SCRIPTS[name].sha

    return fits


async def take_from(worker: StreamsEngine, what: str) -> Sequence[Held]:
    return await wait_until(lambda: worker.take(5), what)


# ── J-30 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-30")
async def test_j30_what_came_before_the_first_worker_is_taken(lab: StreamsLab, raw: Raw) -> None:
    job_id = await submit(lab)
    assert raw.exists(QUEUE) == 1
    worker = await lab.worker()
    held = await worker.take(5)
    assert [one.job.id for one in held] == [job_id]
    await worker.settle([(held[0], Done("1"))], 0)


@clause("J-30")
async def test_j30_take_reads_and_starts_in_one_script(lab: StreamsLab, raw: Raw) -> None:
    worker = await lab.worker()
    await worker.take(1)  # the first one also looks for silent workers
    for _ in range(5):
        await submit(lab)
    with Recording(raw) as seen:
        held = await worker.take(3)
    assert seen.scripts == 1
    assert len(held) == 3
    assert set(raw.pending(QUEUE).values()) == {worker.consumer}
    assert len(raw.pending(QUEUE)) == 3, "no more is read than can be started"
    await worker.settle([(one, Done("1")) for one in held], 0)


@clause("J-30")
async def test_j30_what_a_wait_brings_is_started_first(lab: StreamsLab) -> None:
    worker = await lab.worker()
    waiting = asyncio.ensure_future(worker.wait(30))
    job_ids = [await submit(lab, f'{{"n":{n}}}') for n in range(3)]
    assert await waiting
    held = await worker.take(2)
    assert [(one.job.id, one.job.payload) for one in held] == [
        (job_ids[0], {"n": 0}),
        (job_ids[1], {"n": 1}),
    ]
    await worker.settle([(one, Done("1")) for one in held], 0)


@clause("J-30")
@pytest.mark.parametrize("blow", ["FLUSHALL", "DEL jobs:stream", "XGROUP DESTROY"])
async def test_j30_an_emptied_server_is_survived(lab: StreamsLab, raw: Raw, blow: str) -> None:
    worker = await lab.worker()
    waiting = asyncio.ensure_future(worker.wait(30))
    await wait_until(lambda: raw.plain.info("clients")["blocked_clients"] == 1, "the blocked read")
    words = blow.split() if blow != "XGROUP DESTROY" else [*blow.split(), QUEUE, "workers"]
    raw.ask(*words)
    assert not await waiting
    job_id = await submit(lab)
    assert await worker.wait(30)
    held = await worker.take(5)
    assert [one.job.id for one in held] == [job_id]
    raw.ask(*words)
    assert await worker.take(5) == [] or blow == "XGROUP DESTROY"


@clause("J-30")
async def test_j30_a_restarted_server_is_survived(own_valkey: LocalValkey) -> None:
    async with Connection.open(own_valkey.url) as connection, StreamsLab(connection) as lab:
        worker, held = await start(lab)
        waiting = asyncio.ensure_future(worker.wait(30))
        await asyncio.sleep(0.05)
        own_valkey.kill()
        own_valkey.start()
        with pytest.raises(GroundError):
            await waiting
        # The same token still holds the job, wherever the answer to its start went.
        keeper = worker.keeper()

        async def kept() -> bool:
            try:
                return await asyncio.to_thread(keeper.keep, [held]) == [KeepAnswer.KEPT]
            except GroundError:
                return False

        await wait_until(kept, "the keeper to reconnect")
        keeper.close()
        assert (await worker.settle([(held, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]
        job_id = await submit(lab)
        (after,) = await take_from(worker, "the job after the restart")
        assert after.job.id == job_id
        await worker.settle([(after, Done("1"))], 0)


@clause("J-30")
async def test_j30_a_start_whose_answer_was_lost_is_adopted(
    valkey: LocalValkey, proxy: Proxy, raw: Raw
) -> None:
    async with Connection.open(proxy.url(valkey.url)) as connection, StreamsLab(connection) as lab:
        worker = await lab.worker()
        await worker.take(1)
        job_id = await submit(lab, '{"a":1}')
        proxy.cut_reply(runs("take"))  # pyright: ignore[reportArgumentType] - a condition
        with pytest.raises(GroundError):
            await worker.take(1)
        assert raw.field(f"job:{job_id}", "status") == "running", "it was started all the same"
        (adopted,) = await worker.adopt(frozenset())
        assert (adopted.job.id, adopted.job.payload) == (job_id, {"a": 1})
        assert adopted.token == raw.field(f"job:{job_id}", "owner")
        assert adopted.job.deliveries == 1, "started once"
        assert [e["type"] for _, e in raw.entries(f"job:{job_id}:events")] == ["queued", "running"]
        await worker.settle([(adopted, Done("1"))], 0)


@clause("J-30")
async def test_j30_an_entry_that_was_read_into_a_broken_connection_is_adopted(
    valkey: LocalValkey, proxy: Proxy, raw: Raw
) -> None:
    async with Connection.open(proxy.url(valkey.url)) as connection, StreamsLab(connection) as lab:
        worker = await lab.worker()
        job_id = await submit(lab, '{"a":1}')
        proxy.cut_reply("XREADGROUP")
        with pytest.raises(GroundError):
            await worker.wait(30)
        assert raw.field(f"job:{job_id}", "status") == "queued"
        assert set(raw.pending(QUEUE).values()) == {worker.consumer}
        (adopted,) = await worker.adopt(frozenset())
        assert (adopted.job.id, adopted.job.deliveries) == (job_id, 1)
        assert raw.field(f"job:{job_id}", "status") == "running"
        await worker.settle([(adopted, Done("1"))], 0)


@clause("J-30", "J-9")
async def test_j30_a_settle_whose_answer_was_lost_is_asked_again(
    valkey: LocalValkey, proxy: Proxy, raw: Raw
) -> None:
    async with Connection.open(proxy.url(valkey.url)) as connection, StreamsLab(connection) as lab:
        worker, held = await start(lab)
        await submit(lab)
        proxy.cut_reply(runs("settle"))  # pyright: ignore[reportArgumentType] - a condition
        with pytest.raises(GroundError):
            await worker.settle([(held, Done('"once"'))], 5)
        again = await worker.settle([(held, Done('"once"'))], 0)
        assert again.answers == [SettleAnswer.SETTLED]
        events = [e["type"] for _, e in raw.entries(f"job:{held.job.id}:events")]
        assert events == ["queued", "running", "done"]
        (following,) = [*await worker.adopt(frozenset()), *await worker.take(1)]
        await worker.settle([(following, Done("1"))], 0)


@clause("J-30")
async def test_j30_a_second_entry_of_a_live_job_is_dropped(lab: StreamsLab, raw: Raw) -> None:
    worker, held = await start(lab)
    raw.add(QUEUE, {"job_id": held.job.id, "task": "echo", "payload": "{}"})
    assert await worker.take(5) == []
    assert [entry for entry, _ in raw.entries(QUEUE)] == [held.wire], "only the one that counts"
    assert list(raw.pending(QUEUE)) == [held.wire]
    assert (await worker.settle([(held, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]


# ── J-31 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-31")
async def test_j31_the_steps_are_on_the_wire_in_their_order(lab: StreamsLab, raw: Raw) -> None:
    worker = await lab.worker()
    job_id = await submit(lab)
    ((entry, _),) = raw.entries(QUEUE)
    job, events = f"job:{job_id}", f"job:{job_id}:events"
    with Recording(raw) as seen:
        (held,) = await worker.take(1)
        await worker.settle([(held, Done('"x"'))], 0)
    steps = [
        words
        for words in seen.on(job, events, QUEUE)
        if words.startswith(("HSET", "XADD", "XACK", "XDEL"))
    ]
    starts = [
        f"HSET {job} updated_ts",
        f"XADD {events} * type running",
        f"HSET {job} updated_ts",
        f"XADD {events} * type done",
        f"XACK {QUEUE} workers {entry}",
        f"XDEL {QUEUE} {entry}",
    ]
    assert len(steps) == len(starts)
    for step, wanted in zip(steps, starts, strict=True):
        assert step.startswith(wanted)
    assert "status running" in steps[0]
    assert "status done" in steps[2]
    assert 'result "x"' in steps[2].replace("\\", "")
    assert raw.length(QUEUE) == 0, "so that its length is the backlog"


# ── J-32 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-32")
async def test_j32_a_lease_is_kept_while_the_loop_stands_still(lab: StreamsLab, raw: Raw) -> None:
    """The keeper needs no event loop: here it keeps a lease while ours is blocked."""
    worker, held = await start(lab)
    keeper = worker.keeper()
    assert keeper.period_s == keeper.lease_s / 3
    over = threading.Event()
    answers: list[KeepAnswer] = []

    def keep() -> None:
        while not over.wait(keeper.period_s):
            answers.extend(keeper.keep([held]))

    thread = threading.Thread(target=keep)
    thread.start()
    threading.Event().wait(3 * lab.lease_s)  # a handler that blocks the loop
    assert await lab.duty("reclaim") == 0
    assert await (await lab.worker()).take(1) == []
    over.set()
    await asyncio.to_thread(thread.join)
    keeper.close()
    assert set(answers) == {KeepAnswer.KEPT}
    assert (await worker.settle([(held, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]


@clause("J-32")
async def test_j32_keeping_does_not_steal_an_entry_back(lab: StreamsLab, raw: Raw) -> None:
    worker, held = await start(lab)
    raw.ask("XCLAIM", QUEUE, "workers", "stranger", 0, str(held.wire))
    keeper = worker.keeper()
    assert keeper.keep([held]) == [KeepAnswer.LOST]
    keeper.close()
    assert raw.pending(QUEUE) == {held.wire: "stranger"}


@clause("J-32")
async def test_j32_keep_tells_of_cancel_and_end(lab: StreamsLab) -> None:
    worker = await lab.worker()
    job_ids = [await submit(lab) for _ in range(3)]
    held = await worker.take(3)
    await lab.queue.cancel(job_ids[0])
    await worker.settle([(held[1], Done("1"))], 0)
    keeper = worker.keeper()
    assert keeper.keep(held) == [KeepAnswer.CANCEL, KeepAnswer.ENDED, KeepAnswer.KEPT]
    keeper.close()
    await worker.settle([(held[0], Canceled()), (held[2], Done("1"))], 0)


@clause("J-32")
async def test_j32_the_keeper_survives_a_broken_connection(
    valkey: LocalValkey, proxy: Proxy
) -> None:
    async with Connection.open(proxy.url(valkey.url)) as connection, StreamsLab(connection) as lab:
        worker, held = await start(lab)
        keeper = worker.keeper()
        assert keeper.keep([held]) == [KeepAnswer.KEPT]
        proxy.cut()
        with pytest.raises(GroundError):
            keeper.keep([held])
        assert keeper.keep([held]) == [KeepAnswer.KEPT]
        keeper.close()

        async def settled() -> bool:
            try:
                answers = (await worker.settle([(held, Done("1"))], 0)).answers
            except GroundError:
                return False
            return answers == [SettleAnswer.SETTLED]

        await wait_until(settled, "the settle to be answered")


# ── J-33 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-33")
async def test_j33_a_stranger_who_took_the_entry_over_shuts_every_door(
    lab: StreamsLab, raw: Raw
) -> None:
    """Status and owner still say that the job is ours; only the pending entry tells."""
    worker, held = await start(lab)
    raw.ask("XCLAIM", QUEUE, "workers", "stranger", 0, str(held.wire))
    key = f"job:{held.job.id}"
    before = raw.fields(key), raw.entries(f"{key}:events"), raw.entries(QUEUE)
    assert (before[0]["status"], before[0]["owner"]) == ("running", held.token)

    assert await worker.report([(held, Report("log", "1"))]) == [ReportAnswer.LOST]
    for outcome in (Done("1"), Failed(FINAL), Canceled(), TryAgain(0, TRANSIENT), GivenBack()):
        settled = await worker.settle([(held, outcome)], 0)
        assert settled.answers == [SettleAnswer.LOST]
    assert (raw.fields(key), raw.entries(f"{key}:events"), raw.entries(QUEUE)) == before
    assert raw.pending(QUEUE) == {held.wire: "stranger"}


@clause("J-33")
async def test_j33_what_a_stranger_has_ended_is_not_taken_for_our_own_doing(
    lab: StreamsLab, raw: Raw
) -> None:
    """It took the entry over and finished, and wrote of course nothing into `owner`."""
    worker, held = await start(lab)
    key = f"job:{held.job.id}"
    raw.ask("XCLAIM", QUEUE, "workers", "stranger", 0, str(held.wire))
    raw.ask("HSET", key, "status", "done", "result", '"theirs"')
    raw.add(f"{key}:events", {"type": "done", "ts": "1", "step": "x", "data": "{}"})
    raw.ask("XACK", QUEUE, "workers", str(held.wire))
    for outcome in (Done("1"), Failed(FINAL), TryAgain(0, TRANSIENT), GivenBack()):
        settled = await worker.settle([(held, outcome)], 0)
        assert settled.answers == [SettleAnswer.ALREADY]
    assert raw.field(key, "result") == '"theirs"'


@clause("J-33")
async def test_j33_another_delivery_to_the_same_worker_is_another_token(lab: StreamsLab) -> None:
    worker, first = await start(lab)
    await worker.settle([(first, GivenBack())], 0)
    (second,) = await worker.take(1)
    assert first.token != second.token
    assert await worker.report([(first, Report("log", "1"))]) == [ReportAnswer.LOST]
    for outcome in (Done("1"), Failed(FINAL), TryAgain(0, TRANSIENT)):
        assert (await worker.settle([(first, outcome)], 0)).answers == [SettleAnswer.LOST]
    assert (await worker.settle([(second, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]


@clause("J-33")
async def test_j33_an_entry_that_comes_back_to_its_first_worker_is_another_delivery(
    connection: Connection, raw: Raw
) -> None:
    """Lost to another worker, which dies in turn: same job, same entry, same name on the door."""
    async with StreamsLab(connection, lease_s=20.0) as lab:
        first, second = await lab.worker(), await lab.worker()
        await submit(lab)
        (zombie,) = await first.take(1)
        deliveries = [zombie]
        for loser, winner in ((first, second), (second, first)):
            await lab.silence(loser)
            winner.look_for_silent_workers()
            (held,) = await winner.take(1)
            deliveries.append(held)
        living = deliveries[-1]
        assert len({held.wire for held in deliveries}) == 1
        assert raw.pending(QUEUE) == {living.wire: first.consumer}
        assert await first.report([(zombie, Report("log", "1"))]) == [ReportAnswer.LOST]
        keeper = first.keeper()
        assert keeper.keep([zombie, living]) == [KeepAnswer.LOST, KeepAnswer.KEPT]
        keeper.close()
        for outcome in (Done("1"), Failed(FINAL), Canceled(), TryAgain(0, TRANSIENT), GivenBack()):
            settled = await first.settle([(zombie, outcome)], 0)
            assert settled.answers == [SettleAnswer.LOST]
        assert (await first.settle([(living, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]


@clause("J-33")
async def test_j33_tokens_are_random(lab: StreamsLab) -> None:
    worker = await lab.worker()
    tokens: list[str] = []
    for _ in range(20):
        await submit(lab)
        (held,) = await worker.take(1)
        tokens.append(held.token)
        await worker.settle([(held, Done("1"))], 0)
    heads = [token.partition("-")[0] for token in tokens]
    assert len(set(heads)) == 20
    assert {len(head) for head in heads} == {32}


# ── J-35 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-35")
async def test_j35_a_retry_waits_in_delayed_until_due_by_the_servers_clock(
    lab: StreamsLab, raw: Raw
) -> None:
    worker, held = await start(lab)
    before = raw.now_ms()
    await worker.settle([(held, TryAgain(0.3, TRANSIENT))], 0)
    after = raw.now_ms()
    score = raw.plain.zscore("jobs:delayed", held.job.id)
    assert score is not None
    assert before + 300 <= float(score) <= after + 300
    assert raw.length(QUEUE) == 0
    assert await lab.duty("promote") == 0

    await wait_until(lambda: lab.duty("promote"), "the job to be due")
    assert raw.now_ms() >= float(score)
    assert raw.members("jobs:delayed") == []
    (again,) = await worker.take(1)
    assert (again.job.attempt, again.job.deliveries) == (2, 2)
    await worker.settle([(again, Done("1"))], 0)


@clause("J-35")
async def test_j35_promote_moves_a_bounded_number_at_a_time(lab: StreamsLab, raw: Raw) -> None:
    orders = [Order("echo", "{}", delay_s=0.001) for _ in range(150)]
    await lab.queue.submit_many(orders)
    await asyncio.sleep(0.01)
    (promote,) = [duty for duty in lab.sweeper.duties() if duty.name == "promote"]
    assert await promote.run() == (100, True)
    assert await promote.run() == (50, False)
    assert raw.length(QUEUE) == 150


# ── J-37 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-37")
async def test_j37_an_unknown_task_goes_to_a_worker_that_has_it(lab: StreamsLab, raw: Raw) -> None:
    other, able = await lab.worker("paint"), await lab.worker("sing")
    job_id = await submit(lab, task="sing")
    before = {**raw.fields(f"job:{job_id}")}
    assert await other.take(5) == []
    after = raw.fields(f"job:{job_id}")
    assert after.pop("unknown_ts")
    before.pop("entry_id")
    assert after == before, "nothing counted"
    assert [e["type"] for _, e in raw.entries(f"job:{job_id}:events")] == ["queued"], "no event"
    assert raw.members("jobs:delayed") == [job_id]
    assert raw.pending(QUEUE) == {}

    await wait_until(lambda: lab.duty("promote"), "the job to come back")
    (held,) = await able.take(5)
    assert (held.job.id, held.job.attempt, held.job.deliveries) == (job_id, 1, 1)
    await able.settle([(held, Done("1"))], 0)


@clause("J-37")
async def test_j37_each_time_it_is_put_back_for_twice_as_long(lab: StreamsLab, raw: Raw) -> None:
    worker = await lab.worker("paint")
    job_id = await submit(lab, task="sing")

    async def put_back_after(waited_ms: int) -> tuple[float, float]:
        """For how long it is put back (at least, at most) if it first was so long ago."""
        before_ms = raw.now_ms()
        if waited_ms:
            raw.ask("HSET", f"job:{job_id}", "unknown_ts", before_ms - waited_ms)
            raw.ask("HSET", f"job:{job_id}", "updated_ts", before_ms - 2 * waited_ms)
        assert await worker.take(5) == []
        due = raw.plain.zscore("jobs:delayed", job_id)
        assert due is not None
        raw.ask("ZADD", "jobs:delayed", 0, job_id)
        after_ms = raw.now_ms()
        await lab.duty("promote")
        return float(due) - after_ms, float(due) - before_ms

    for waited_ms, delay_ms in ((0, 250), (100, 250), (2000, 2000), (20_000, 5000)):
        least_ms, most_ms = await put_back_after(waited_ms)
        # What it has waited grows while the machine is slow, and the delay with it.
        assert least_ms <= delay_ms + (most_ms - least_ms)
        assert most_ms >= delay_ms
    await lab.queue.cancel(job_id)


@clause("J-37")
async def test_j37_when_nobody_has_the_task_the_job_ends(connection: Connection, raw: Raw) -> None:
    async with StreamsLab(connection, unknown_task_grace_s=0.0) as lab:
        worker = await lab.worker("paint")
        job_id = await submit(lab, task="sing")
        assert await worker.take(5) == []
        await wait_until(lambda: lab.duty("promote"), "the job to come back")
        assert await worker.take(5) == []
        found = raw.fields(f"job:{job_id}")
        assert found["status"] == "error"
        assert json.loads(found["error"]) == {
            "code": "unknown_task",
            "message": "no worker has this task",
            "retryable": False,
            "attempt": 1,
        }
        assert raw.last(f"job:{job_id}:events")["type"] == "error"
        assert await lab.at_rest()


@clause("J-37")
@pytest.mark.parametrize("who", ["a live worker of ours", "a stranger"])
async def test_j37_while_somebody_may_have_the_task_the_job_waits(
    connection: Connection, raw: Raw, who: str
) -> None:
    async with StreamsLab(connection, unknown_task_grace_s=0.0) as lab:
        worker = await lab.worker("paint")
        if who == "a stranger":
            raw.ask("XGROUP", "CREATECONSUMER", QUEUE, "workers", "stranger-1")
        else:
            # A consumer comes into being when it first reads.
            await (await lab.worker("sing")).take(1)
        job_id = await submit(lab, task="sing")
        for _ in range(3):
            assert await worker.take(5) == []
            raw.ask("ZADD", "jobs:delayed", 0, job_id)
            await lab.duty("promote")
        assert raw.field(f"job:{job_id}", "status") == "queued"
        await lab.queue.cancel(job_id)


# ── J-38 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-38")
@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ('{"a":[1,2]}', {"a": [1, 2]}),
        ("[1,2]", {"_raw": "[1,2]"}),
        ("no json", {"_raw": "no json"}),
        ("", {"_raw": ""}),
        ('{"a":NaN}', {"_raw": '{"a":NaN}'}),
        ("[" * 5000, {"_raw": "[" * 5000}),
        (b'{"a":"\xff"}', {"_raw": '{"a":"\ufffd"}'}),
    ],
)
async def test_j38_the_entrys_payload_is_used_whatever_it_says(
    lab: StreamsLab, raw: Raw, text: str | bytes, seen: object
) -> None:
    worker = await lab.worker()
    job_id = await submit(lab, '{"from":"the hash"}')
    raw.delete(QUEUE)
    entry = raw.ask("XADD", QUEUE, "*", "job_id", job_id, "task", "echo", "payload", text)
    raw.ask("HSET", f"job:{job_id}", "entry_id", str(entry))
    (held,) = await take_from(worker, "the job")
    assert held.job.payload == seen
    assert (await worker.settle([(held, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]


@clause("J-38")
async def test_j38_what_a_blocking_read_brings_is_read_the_same_way(
    lab: StreamsLab, raw: Raw
) -> None:
    worker = await lab.worker()
    waiting = asyncio.ensure_future(worker.wait(30))
    await asyncio.sleep(0.05)
    raw.write("job:\xff", {"status": "queued", "ttl_s": "600"})
    raw.ask("XADD", QUEUE, "*", "job_id", "\xff", "task", "echo", "payload", b"\xff")
    assert await waiting
    (held,) = await worker.take(1)
    assert held.job.payload == {"_raw": "\ufffd"}
    await worker.report([(held, Report("log", "1"))])
    assert (await worker.settle([(held, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]


@clause("J-38")
async def test_j38_a_job_id_that_is_no_text_is_served_all_the_same(
    lab: StreamsLab, raw: Raw
) -> None:
    worker = await lab.worker()
    raw.ask("HSET", b"job:\xff\xfe", "status", "queued", "ttl_s", "600")
    raw.ask("EXPIRE", b"job:\xff\xfe", 600)
    raw.ask("XADD", QUEUE, "*", "job_id", b"\xff\xfe", "task", "echo", "payload", "{}")
    (held,) = await worker.take(1)
    keeper = worker.keeper()
    assert keeper.keep([held]) == [KeepAnswer.KEPT]
    keeper.close()
    assert await worker.report([(held, Report("log", "1"))]) == [ReportAnswer.WRITTEN]
    assert (await worker.settle([(held, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]
    assert raw.ask("HGET", b"job:\xff\xfe", "status") == "done"
    # The leak check reads keys as text.
    raw.ask("DEL", b"job:\xff\xfe", b"job:\xff\xfe:events")


@clause("J-38")
async def test_j38_entries_with_nothing_to_run_are_acked_and_deleted(
    lab: StreamsLab, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    worker, held = await start(lab)
    await worker.settle([(held, Done("1"))], 0)
    ended = raw.fields(f"job:{held.job.id}")
    raw.add(QUEUE, {"job_id": held.job.id, "task": "echo", "payload": "{}"})
    raw.add(QUEUE, {"job_id": "gone", "task": "echo", "payload": "{}"})
    raw.add(QUEUE, {"something": "else"})
    with caplog.at_level("INFO", "jobwire.streams"):
        assert await worker.take(5) == []
    assert raw.length(QUEUE) == 0
    assert raw.pending(QUEUE) == {}
    assert raw.fields(f"job:{held.job.id}") == ended
    assert raw.exists("job:gone") == 0
    told = [line for line in caplog.messages if "was dropped" in line]
    assert [line.rpartition(": ")[2] for line in told] == ["ended", "gone", "garbage"]


# ── J-40, the engine's part ──────────────────────────────────────────────────────────────────────


@clause("J-40")
async def test_j40_a_release_puts_the_new_entry_in_line_before_the_old_one_goes(
    lab: StreamsLab, raw: Raw
) -> None:
    worker, held = await start(lab)
    with Recording(raw) as seen:
        await worker.settle([(held, GivenBack())], 0)
    steps = [
        words.split(" ")[0]
        for words in seen.on(QUEUE)
        if words.startswith(("XADD", "XACK", "XDEL"))
    ]
    assert steps == ["XADD", "XACK", "XDEL"]
    found = raw.fields(f"job:{held.job.id}")
    assert (found["status"], found["deliveries"]) == ("queued", "0")
    assert "attempt" not in found
    assert found["entry_id"] == raw.entries(QUEUE)[0][0]
    assert raw.last(f"job:{held.job.id}:events")["type"] == "queued"


@clause("J-40")
async def test_j40_a_blocked_read_is_ended_and_what_it_brought_is_given_back(
    valkey: LocalValkey, proxy: Proxy, raw: Raw
) -> None:
    async with Connection.open(proxy.url(valkey.url)) as connection, StreamsLab(connection) as lab:
        worker = await lab.worker()
        waiting = asyncio.ensure_future(worker.wait(30))
        await proxy.until_seen("XREADGROUP")
        await worker.wake()
        assert not await waiting

        job_id = await submit(lab, '{"a":1}')
        assert await worker.wait(30), "brought, and not taken"
        assert raw.field(f"job:{job_id}", "status") == "queued"
        await worker.leave()
        found = raw.fields(f"job:{job_id}")
        assert found["status"] == "queued"
        assert "deliveries" not in found
        assert raw.pending(QUEUE) == {}
        ((entry, fields),) = raw.entries(QUEUE)
        assert fields == {"job_id": job_id, "task": "echo", "payload": '{"a":1}'}
        assert found["entry_id"] == entry
        assert worker.consumer not in raw.consumers(QUEUE)
        assert raw.exists(f"jobs:worker:{worker.consumer}") == 0


async def test_the_oldest_server_knows_every_command(redis7: LocalValkey) -> None:
    """A whole life and every duty, on Redis 7.0 as Debian ships it."""
    with plain_client(redis7) as plain:
        raw = Raw(plain)
        try:
            async with Connection.open(redis7.url) as connection, StreamsLab(connection) as lab:
                worker = await lab.worker()
                orders = [Order("echo", "{}", idempotency_key=str(n)) for n in range(5)]
                await lab.queue.submit_many(orders)
                await submit(lab, delay_s=0.001, tenant="acme")
                assert await worker.wait(30)
                held = await worker.take(5)
                keeper = worker.keeper()
                assert keeper.keep(held) == [KeepAnswer.KEPT] * 5
                keeper.close()
                await worker.report([(held[0], Report("progress", "1", number=1))])
                outcomes = (Done("1"), Failed(FINAL), Canceled(), GivenBack())
                retried = TryAgain(0.001, TRANSIENT)
                batch = list(zip(held, (*outcomes, retried), strict=True))
                settled = await worker.settle(batch, 0)
                assert settled.answers == [SettleAnswer.SETTLED] * 5
                rest: list[Held] = []

                async def all_back() -> bool:
                    await lab.sweep()
                    rest.extend(await worker.take(9))
                    return len(rest) == 3

                await wait_until(all_back, "the released, the retried and the delayed one")
                await lab.queue.cancel(rest[0].job.id)
                await worker.adopt({one.token for one in rest})
                silent = await lab.worker()

                async def taken_over() -> Sequence[Held]:
                    await lab.sweep()
                    return await silent.take(9)

                again = await wait_until(taken_over, "the takeover")
                await silent.settle([(one, Done("1")) for one in again], 0)
                await wait_until(lab.at_rest)
        finally:
            raw.ask("FLUSHALL")
