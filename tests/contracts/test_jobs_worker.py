"""J-35, J-37, J-38, J-40: retries, unknown tasks, odd entries, releases; the engine's part."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest

from jobwire.job.engine import MaintenanceResult
from jobwire.job.messages import (
    Canceled,
    Done,
    Failed,
    JobError,
    JobRequest,
    LeasedJob,
    Released,
    RenewAnswer,
    Report,
    ReportAnswer,
    RetryLater,
    SettleAnswer,
)
from jobwire.local import LocalValkey
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.queue import StreamsQueue
from jobwire.valkey import Connection
from tests.support import Proxy, clause, wait_until
from tests.support.raw import Raw, Recording
from tests.support.servers import plain_client
from tests.support.streams import StreamsLab

QUEUE = "jobs:stream"
TRANSIENT = JobError("handler_error", "the handler failed", retryable=True)
FINAL = JobError("no_such_city", "there is no city of that name")


async def take_from(worker: StreamsEngine, what: str) -> Sequence[LeasedJob]:
    return await wait_until(lambda: worker.take(5), what)


# ── J-35 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-35")
async def test_j35_a_retry_waits_in_delayed_until_due_by_the_servers_clock(
    lab: StreamsLab, raw: Raw
) -> None:
    worker, leased = await lab.start()
    before = raw.now_ms()
    await worker.settle([(leased, RetryLater(60, TRANSIENT))], 0)
    after = raw.now_ms()
    score = raw.plain.zscore("jobs:delayed", leased.job.id)
    assert score is not None
    assert before + 60_000 <= float(score) <= after + 60_000
    assert raw.length(QUEUE) == 0
    assert await lab.maintain("promote") == 0

    raw.call("ZADD", "jobs:delayed", raw.now_ms(), leased.job.id)
    assert await lab.maintain("promote") == 1
    assert raw.members("jobs:delayed") == []
    (again,) = await worker.take(1)
    assert (again.job.attempt, again.job.deliveries) == (2, 2)
    await worker.settle([(again, Done("1"))], 0)


@clause("J-35")
async def test_j35_promote_moves_a_bounded_number_at_a_time(lab: StreamsLab, raw: Raw) -> None:
    requests = [JobRequest("echo", "{}", delay_s=0.001) for _ in range(150)]
    await lab.queue.submit_many(requests)
    now_ms = raw.now_ms()
    await wait_until(lambda: raw.now_ms() > now_ms + 1, "all of them to be due")
    (promote,) = [task for task in lab.sweeper.maintenance() if task.name == "promote"]
    assert await promote.run() == MaintenanceResult(100, more=True, next_s=0)
    assert await promote.run() == MaintenanceResult(50, next_s=0)
    assert await promote.run() == MaintenanceResult(0)
    assert raw.length(QUEUE) == 150


@clause("L-11")
async def test_l11_promote_answers_when_the_next_job_is_due(lab: StreamsLab) -> None:
    (promote,) = [task for task in lab.sweeper.maintenance() if task.name == "promote"]
    assert await promote.run() == MaintenanceResult(0)
    await lab.queue.submit_many([JobRequest("echo", "{}", delay_s=at) for at in (3000, 1000)])
    result = await promote.run()
    assert result is not None
    assert result.next_s is not None
    assert 900 < result.next_s <= 1000


@clause("L-11")
async def test_l11_a_retry_and_a_delayed_submission_are_noticed_by_their_process(
    lab: StreamsLab, connection: Connection
) -> None:
    worker, leased = await lab.start()
    (promote,) = [task for task in worker.maintenance() if task.name == "promote"]
    assert promote.soon is not None
    assert not promote.soon.is_set()
    await worker.settle([(leased, RetryLater(30, TRANSIENT))], 0)
    assert promote.soon.is_set()

    noticed: list[bool] = []
    queue = StreamsQueue(connection, lab.settings, None, lambda: noticed.append(True))
    await queue.submit(JobRequest("echo", "{}"))
    assert not noticed
    await queue.submit(JobRequest("echo", "{}", delay_s=30))
    assert noticed


# ── J-37 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-37")
async def test_j37_an_unknown_task_goes_to_a_worker_that_has_it(lab: StreamsLab, raw: Raw) -> None:
    other, able = await lab.worker("paint"), await lab.worker("sing")
    job_id = await lab.submit(task="sing")
    before = {**raw.fields(f"job:{job_id}")}
    assert await other.take(5) == []
    after = raw.fields(f"job:{job_id}")
    assert after.pop("unknown_ts")
    before.pop("entry_id")
    assert after == before, "nothing counted"
    assert [e["type"] for _, e in raw.entries(f"job:{job_id}:events")] == ["queued"], "no event"
    assert raw.members("jobs:delayed") == [job_id]
    assert raw.pending(QUEUE) == {}

    await wait_until(lambda: lab.maintain("promote"), "the job to be queued again")
    (leased,) = await able.take(5)
    assert (leased.job.id, leased.job.attempt, leased.job.deliveries) == (job_id, 1, 1)
    await able.settle([(leased, Done("1"))], 0)


@clause("J-37")
async def test_j37_a_worker_that_returned_a_job_gives_up_its_place_in_the_group(
    lab: StreamsLab, raw: Raw
) -> None:
    """The server serves the client that has blocked longest. A worker that kept its blocking read
    would receive the job repeatedly, before a worker that has the task."""
    worker = await lab.worker("paint")
    await lab.submit(task="sing")
    async with asyncio.timeout(30):
        while not raw.members("jobs:delayed"):
            await worker.wait(600)
        await worker.take(5)
        assert not await worker.wait(600), "nothing arrived, and the read ends nevertheless"


@clause("J-37")
async def test_j37_the_delay_of_a_returned_job_doubles(lab: StreamsLab, raw: Raw) -> None:
    worker = await lab.worker("paint")
    job_id = await lab.submit(task="sing")

    async def put_back_after(waited_ms: int) -> tuple[float, float]:
        """The delay (at least, at most) of a job that was first returned this long ago."""
        before_ms = raw.now_ms()
        if waited_ms:
            raw.call("HSET", f"job:{job_id}", "unknown_ts", before_ms - waited_ms)
            raw.call("HSET", f"job:{job_id}", "updated_ts", before_ms - 2 * waited_ms)
        assert await worker.take(5) == []
        due = raw.plain.zscore("jobs:delayed", job_id)
        assert due is not None
        raw.call("ZADD", "jobs:delayed", 0, job_id)
        after_ms = raw.now_ms()
        await lab.maintain("promote")
        return float(due) - after_ms, float(due) - before_ms

    for waited_ms, delay_ms in ((0, 250), (100, 250), (2000, 2000), (20_000, 5000)):
        least_ms, most_ms = await put_back_after(waited_ms)
        # On a slow machine the waited time grows, and the delay with it.
        assert least_ms <= delay_ms + (most_ms - least_ms)
        assert most_ms >= delay_ms
    await lab.queue.cancel(job_id)


@clause("J-37")
async def test_j37_without_any_worker_for_the_task_the_job_fails(
    connection: Connection, raw: Raw
) -> None:
    async with StreamsLab(connection, end_unknown_tasks=True, unknown_task_grace_s=0.0) as lab:
        worker = await lab.worker("paint")
        job_id = await lab.submit(task="sing")
        assert await worker.take(5) == []
        await wait_until(lambda: lab.maintain("promote"), "the job to be queued again")
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
async def test_j37_by_default_a_job_waits_for_a_worker_that_has_its_task(
    connection: Connection, raw: Raw
) -> None:
    async with StreamsLab(connection, unknown_task_grace_s=0.0) as lab:
        other = await lab.worker("paint")
        job_id = await lab.submit(task="sing")
        for _ in range(2):
            assert await other.take(5) == []
            await wait_until(lambda: lab.maintain("promote"), "the job to be queued again")
        assert raw.field(f"job:{job_id}", "status") == "queued"
        (leased,) = await (await lab.worker("sing")).take(5)
        assert leased.job.id == job_id


@clause("J-37")
@pytest.mark.parametrize("who", ["a live worker of ours", "a foreign worker"])
async def test_j37_while_a_worker_may_have_the_task_the_job_waits(
    connection: Connection, raw: Raw, who: str
) -> None:
    async with StreamsLab(connection, end_unknown_tasks=True, unknown_task_grace_s=0.0) as lab:
        worker = await lab.worker("paint")
        if who == "a foreign worker":
            raw.call("XGROUP", "CREATECONSUMER", QUEUE, "workers", "foreign-1")
        else:
            # A consumer is created by its first read.
            await (await lab.worker("sing")).take(1)
        job_id = await lab.submit(task="sing")
        for _ in range(3):
            assert await worker.take(5) == []
            raw.call("ZADD", "jobs:delayed", 0, job_id)
            await lab.maintain("promote")
        assert raw.field(f"job:{job_id}", "status") == "queued"
        await lab.queue.cancel(job_id)


@clause("J-37")
async def test_j37_an_idle_foreign_consumer_does_not_keep_a_job_waiting(
    connection: Connection, raw: Raw
) -> None:
    """A consumer's name outlives its worker; only an active one may have the task."""
    unknown = {"end_unknown_tasks": True, "unknown_task_grace_s": 0.0}
    async with (
        StreamsLab(connection, **unknown) as lab,
        StreamsLab(connection, **unknown, lease_s=0.1, foreign_idle_s=0.1) as impatient,
    ):
        worker = await lab.worker("paint")
        job_id = await lab.submit(task="sing")

        async def put_back(worker: StreamsEngine) -> str | None:
            raw.call("ZADD", "jobs:delayed", 0, job_id)
            await lab.maintain("promote")
            assert await worker.take(5) == []
            return raw.field(f"job:{job_id}", "status")

        raw.call("XREADGROUP", "GROUP", "workers", "foreign-1", "STREAMS", QUEUE, "0")
        assert await worker.take(5) == []
        assert await put_back(worker) == "queued", "it was active a moment ago"
        other = await impatient.worker("paint")

        async def ended() -> bool:
            return await put_back(other) == "error"

        await wait_until(ended, "the foreign worker to count as idle")
        assert json.loads(raw.field(f"job:{job_id}", "error") or "")["code"] == "unknown_task"


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
async def test_j38_the_entrys_payload_is_used_verbatim(
    lab: StreamsLab, raw: Raw, text: str | bytes, seen: object
) -> None:
    worker = await lab.worker()
    job_id = await lab.submit('{"from":"the hash"}')
    raw.delete(QUEUE)
    entry = raw.call("XADD", QUEUE, "*", "job_id", job_id, "task", "echo", "payload", text)
    raw.call("HSET", f"job:{job_id}", "entry_id", str(entry))
    (leased,) = await take_from(worker, "the job")
    assert leased.job.payload == seen
    assert (await worker.settle([(leased, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]


@clause("J-38")
async def test_j38_a_blocking_read_parses_entries_in_the_same_way(
    lab: StreamsLab, raw: Raw
) -> None:
    worker = await lab.worker()
    waiting = asyncio.ensure_future(worker.wait(30))
    await wait_until(raw.blocked, "the worker to wait")
    raw.write("job:\xff", {"status": "queued", "ttl_s": "600"})
    raw.call("XADD", QUEUE, "*", "job_id", "\xff", "task", "echo", "payload", b"\xff")
    assert await waiting
    (leased,) = await worker.take(1)
    assert leased.job.payload == {"_raw": "\ufffd"}
    await worker.report([(leased, Report("log", "1"))])
    assert (await worker.settle([(leased, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]


@clause("J-38")
async def test_j38_a_job_id_that_is_not_utf8_is_served(lab: StreamsLab, raw: Raw) -> None:
    worker = await lab.worker()
    raw.call("HSET", b"job:\xff\xfe", "status", "queued", "ttl_s", "600")
    raw.call("EXPIRE", b"job:\xff\xfe", 600)
    raw.call("XADD", QUEUE, "*", "job_id", b"\xff\xfe", "task", "echo", "payload", "{}")
    (leased,) = await worker.take(1)
    renewer = worker.lease_renewer()
    assert renewer.renew([leased]) == [RenewAnswer.RENEWED]
    renewer.close()
    assert await worker.report([(leased, Report("log", "1"))]) == [ReportAnswer.WRITTEN]
    assert (await worker.settle([(leased, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]
    assert raw.call("HGET", b"job:\xff\xfe", "status") == "done"
    # The leak check reads keys as text.
    raw.call("DEL", b"job:\xff\xfe", b"job:\xff\xfe:events")


@clause("J-38")
async def test_j38_entries_with_nothing_to_run_are_acked_and_deleted(
    lab: StreamsLab, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    worker, leased = await lab.start()
    await worker.settle([(leased, Done("1"))], 0)
    ended = raw.fields(f"job:{leased.job.id}")
    raw.add(QUEUE, {"job_id": leased.job.id, "task": "echo", "payload": "{}"})
    raw.add(QUEUE, {"job_id": "gone", "task": "echo", "payload": "{}"})
    raw.add(QUEUE, {"something": "else"})
    with caplog.at_level("INFO", "jobwire.streams"):
        assert await worker.take(5) == []
    assert raw.length(QUEUE) == 0
    assert raw.pending(QUEUE) == {}
    assert raw.fields(f"job:{leased.job.id}") == ended
    assert raw.exists("job:gone") == 0
    dropped = [line for line in caplog.messages if "entry dropped" in line]
    assert [line.rpartition("reason=")[2] for line in dropped] == ["ended", "gone", "malformed"]


# ── J-40, the engine's part ──────────────────────────────────────────────────────────────────────


@clause("J-40")
async def test_j40_a_release_adds_the_new_entry_before_it_deletes_the_old_one(
    lab: StreamsLab, raw: Raw
) -> None:
    worker, leased = await lab.start()
    with Recording(raw) as seen:
        await worker.settle([(leased, Released())], 0)
    steps = [
        command.split(" ")[0]
        for command in seen.on(QUEUE)
        if command.startswith(("XADD", "XACK", "XDEL"))
    ]
    assert steps == ["XADD", "XACK", "XDEL"]
    found = raw.fields(f"job:{leased.job.id}")
    assert (found["status"], found["deliveries"]) == ("queued", "0")
    assert "attempt" not in found
    assert found["entry_id"] == raw.entries(QUEUE)[0][0]
    assert raw.last(f"job:{leased.job.id}:events")["type"] == "queued"


@clause("J-40")
@pytest.mark.parametrize("started", [True, False])
async def test_j40_a_blocked_read_is_ended_and_its_entries_are_released(
    valkey: LocalValkey, proxy: Proxy, raw: Raw, started: bool
) -> None:
    async with Connection.open(proxy.url(valkey.url)) as connection, StreamsLab(connection) as lab:
        worker = await lab.worker()
        waiting = asyncio.ensure_future(worker.wait(30))
        await proxy.until_seen("XREADGROUP")
        await worker.wake()
        assert not await waiting

        job_id = await lab.submit('{"a":1}')
        if not started:
            raw.call("SCRIPT", "FLUSH")  # the wait fetches it and cannot start it
        assert await worker.wait(30), "fetched, and not taken"
        assert raw.field(f"job:{job_id}", "status") == ("running" if started else "queued")
        await worker.deregister()
        found = raw.fields(f"job:{job_id}")
        assert found["status"] == "queued"
        assert found.get("deliveries", "0") == "0"
        assert raw.pending(QUEUE) == {}
        ((entry, fields),) = raw.entries(QUEUE)
        assert fields == {"job_id": job_id, "task": "echo", "payload": '{"a":1}'}
        assert found["entry_id"] == entry
        assert worker.consumer not in raw.consumers(QUEUE)
        assert raw.exists(f"jobs:worker:{worker.consumer}") == 0


async def test_the_oldest_supported_server_has_every_command(redis7: LocalValkey) -> None:
    """A whole lifecycle and every maintenance task, on Redis 7.0 as Debian ships it."""
    with plain_client(redis7) as plain:
        raw = Raw(plain)
        try:
            async with Connection.open(redis7.url) as connection, StreamsLab(connection) as lab:
                worker = await lab.worker()
                requests = [JobRequest("echo", "{}", idempotency_key=str(n)) for n in range(5)]
                await lab.queue.submit_many(requests)
                await lab.submit(delay_s=0.001, tenant="acme")
                assert await worker.wait(30)
                leased = await worker.take(5)
                renewer = worker.lease_renewer()
                assert renewer.renew(leased) == [RenewAnswer.RENEWED] * 5
                renewer.close()
                await worker.report([(leased[0], Report("progress", "1", number=1))])
                outcomes = (Done("1"), Failed(FINAL), Canceled(), Released())
                retried = RetryLater(0.001, TRANSIENT)
                batch = list(zip(leased, (*outcomes, retried), strict=True))
                settled = await worker.settle(batch, 0)
                assert settled.answers == [SettleAnswer.SETTLED] * 5
                rest: list[LeasedJob] = []

                async def all_back() -> bool:
                    await lab.sweep()
                    rest.extend(await worker.take(9))
                    return len(rest) == 3

                await wait_until(all_back, "the released, the retried and the delayed one")
                await lab.queue.cancel(rest[0].job.id)
                await worker.recover_orphans({one.token for one in rest})
                await lab.silence(worker)
                silent = await lab.worker()

                async def taken_over() -> Sequence[LeasedJob]:
                    await lab.sweep()
                    return await silent.take(9)

                again = await wait_until(taken_over, "the reclaim")
                await silent.settle([(one, Done("1")) for one in again], 0)
                await wait_until(lab.at_rest)
        finally:
            raw.call("FLUSHALL")
