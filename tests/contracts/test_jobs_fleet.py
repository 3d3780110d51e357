"""J-34, J-39, J-41, J-42: maintenance of jobs whose worker died or is foreign."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from functools import partial

import pytest

from jobwire.job.engine import MaintenanceTask
from jobwire.job.messages import (
    Done,
    JobError,
    JobRequest,
    RetryLater,
    SettleAnswer,
    Submitted,
)
from jobwire.job.states import State
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.registry import WorkerRegistry
from jobwire.valkey import Arg, Connection, Reply
from tests.support import clause, wait_until
from tests.support.raw import Raw, foreign_job
from tests.support.streams import LEASE_S, StreamsLab

QUEUE = "jobs:stream"
TRANSIENT = JobError("handler_error", "the handler failed", retryable=True)
LONG_MS = 10**9
"""Longer than any idle limit."""


def let_pass(raw: Raw, entry: object, idle_ms: float) -> None:
    """Set the entry's idle time, as if its worker had not renewed it for so long."""
    holder = raw.pending(QUEUE)[str(entry)]
    raw.call("XCLAIM", QUEUE, "workers", holder, 0, str(entry), "IDLE", round(idle_ms), "JUSTID")


def kinds(raw: Raw, job_id: str) -> list[str]:
    return [event["type"] for _, event in raw.entries(f"job:{job_id}:events")]


# ── J-34 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-34")
async def test_j34_a_worker_with_a_free_slot_claims_the_entry(
    connection: Connection, raw: Raw
) -> None:
    async with StreamsLab(connection, lease_s=1000.0) as lab:
        _, leased = await lab.start()
        behind = await lab.submit()
        other = await lab.worker()
        let_pass(raw, leased.wire, 1_010_000)
        taken = await other.take(1)
        assert [one.job.id for one in taken] == [leased.job.id], "before queued jobs"
        assert taken[0].wire == leased.wire, "the same entry, claimed"
        assert raw.pending(QUEUE) == {leased.wire: other.consumer}
        assert (taken[0].job.attempt, taken[0].job.deliveries) == (1, 2)
        assert kinds(raw, leased.job.id) == ["queued", "running", "running"]
        (following,) = (await other.settle([(taken[0], Done("1"))], 1)).leased
        assert following.job.id == behind
        await other.settle([(following, Done("1"))], 0)


@clause("J-34")
async def test_j34_a_valid_lease_is_not_reclaimed(connection: Connection, raw: Raw) -> None:
    async with StreamsLab(connection, lease_s=1000.0) as lab:
        worker, leased = await lab.start()
        let_pass(raw, leased.wire, 940_000)
        assert await (await lab.worker()).take(1) == []
        let_pass(raw, leased.wire, 1_940_000)
        assert await lab.maintain("reclaim") == 0
        assert (await worker.settle([(leased, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]


@clause("J-34")
async def test_j34_a_worker_does_not_reclaim_its_own_jobs(connection: Connection, raw: Raw) -> None:
    """Its own late job may still be running; its settle ends it."""
    async with StreamsLab(connection, lease_s=20.0) as lab:
        worker, leased = await lab.start()
        let_pass(raw, leased.wire, LONG_MS)
        worker.reclaim_soon()
        assert await worker.take(1) == []
        (reclaim,) = [task for task in worker.maintenance() if task.name == "reclaim"]
        result = await reclaim.run()
        assert result is not None
        assert result.done == 0
        assert (await worker.settle([(leased, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]


@clause("J-34", "J-41")
async def test_j34_after_another_lease_any_process_requeues_the_job(
    connection: Connection, raw: Raw
) -> None:
    """No jobwire worker is left: a maintenance task of the gateway requeues the job, so that any
    worker can read it."""
    async with StreamsLab(connection, lease_s=1000.0) as lab:
        worker, leased = await lab.start()
        let_pass(raw, leased.wire, 2_010_000)
        assert await lab.maintain("reclaim") == 1
        found = raw.fields(f"job:{leased.job.id}")
        assert (found["status"], found["deliveries"]) == ("queued", "1")
        assert "owner" not in found
        assert kinds(raw, leased.job.id) == ["queued", "running", "queued"]
        assert raw.pending(QUEUE) == {}
        assert (await worker.settle([(leased, Done("1"))], 0)).answers == [SettleAnswer.LOST]
        assert raw.read(QUEUE, "foreign-1") == [found["entry_id"]]


@clause("J-34")
async def test_j34_foreign_workers_get_a_longer_idle_limit(
    connection: Connection, raw: Raw
) -> None:
    async with StreamsLab(connection, lease_s=100.0, foreign_idle_s=1000.0) as lab:
        other = await lab.worker()
        entry = foreign_job(raw, "theirs")
        assert raw.read(QUEUE, "foreign-1") == [entry]
        let_pass(raw, entry, 940_000)
        assert await other.take(1) == []
        let_pass(raw, entry, 1_010_000)
        (leased,) = await (await lab.worker()).take(1)
        assert leased.job.id == "theirs"
        await other.settle([(leased, Done("1"))], 0)


@clause("J-34")
async def test_j34_a_foreign_worker_has_at_least_the_jobs_timeout(
    connection: Connection, raw: Raw
) -> None:
    async with StreamsLab(connection, lease_s=10.0, foreign_idle_s=60.0) as lab:
        job_id = await lab.submit(timeout_s=1000)
        raw.call("XGROUP", "CREATE", QUEUE, "workers", "0")
        (entry,) = raw.read(QUEUE, "foreign-1")
        let_pass(raw, entry, 940_000)
        assert await (await lab.worker()).take(1) == []
        let_pass(raw, entry, 1_010_000)
        worker = await lab.worker()
        (leased,) = await worker.take(1)
        assert leased.job.id == job_id
        await worker.settle([(leased, Done("1"))], 0)


@clause("J-34")
async def test_j34_a_job_ends_at_its_delivery_limit(connection: Connection, raw: Raw) -> None:
    async with StreamsLab(connection, lease_s=20.0, max_deliveries=3) as lab:
        _, leased = await lab.start(max_attempts=9)
        for delivery in (2, 3):
            let_pass(raw, leased.wire, LONG_MS)
            (leased,) = await (await lab.worker()).take(1)
            assert (leased.job.attempt, leased.job.deliveries) == (1, delivery)
        let_pass(raw, leased.wire, LONG_MS)
        assert await (await lab.worker()).take(1) == []
        found = raw.fields(f"job:{leased.job.id}")
        assert found["status"] == "error"
        error = json.loads(found["error"])
        assert (error["code"], error["attempt"]) == ("delivery_limit", 1), "no attempt was spent"
        assert kinds(raw, leased.job.id)[-1] == "error"
        assert await lab.at_rest()


@clause("J-34")
async def test_j34_lost_workers_are_counted_for_sparse_foreign_jobs(
    connection: Connection, raw: Raw
) -> None:
    """Regression: a started job without four of the contract's fields has as many fields as a new
    job of ours. It was treated as new: its deliveries were not counted, and a job that kills its
    workers never ended."""
    whole = ("job_id", "task", "payload", "created_ts", "updated_ts", "ttl_s", "result", "error")
    async with StreamsLab(connection, lease_s=20.0) as lab:
        for left_out in range(len(whole)):
            job_id = f"sparse-{left_out}"
            foreign_job(raw, job_id)
            if left_out:
                raw.call("HDEL", f"job:{job_id}", *whole[:left_out])
            (leased,) = await (await lab.worker()).take(1)
            let_pass(raw, leased.wire, LONG_MS)
            worker = await lab.worker()
            (leased,) = await worker.take(1)
            assert (leased.job.id, leased.job.deliveries) == (job_id, 2), (
                f"without {left_out} fields"
            )
            await worker.settle([(leased, Done("1"))], 0)


@clause("J-34")
async def test_j34_answered_attempts_do_not_count_as_lost_workers(
    connection: Connection, raw: Raw
) -> None:
    async with StreamsLab(connection, lease_s=20.0, max_deliveries=2) as lab:
        worker, leased = await lab.start(max_attempts=99)
        for _ in range(5):
            await worker.settle([(leased, RetryLater(0, TRANSIENT))], 0)
            (leased,) = await worker.take(1)
        let_pass(raw, leased.wire, LONG_MS)
        other = await lab.worker()
        (leased,) = await other.take(1)
        assert (leased.job.attempt, leased.job.deliveries) == (6, 7)
        await other.settle([(leased, Done("1"))], 0)


@clause("J-34")
async def test_j34_a_wait_with_a_free_slot_returns_for_expired_leases(
    connection: Connection, raw: Raw
) -> None:
    async with StreamsLab(connection, lease_s=20.0) as lab:
        _, leased = await lab.start()
        other = await lab.worker()
        await other.take(1)
        waiting = asyncio.ensure_future(other.wait(60))
        await wait_until(
            lambda: raw.plain.info("clients")["blocked_clients"] == 1, "the blocked read"
        )
        let_pass(raw, leased.wire, 21_000)
        (reclaim,) = [task for task in other.maintenance() if task.name == "reclaim"]
        await reclaim.run()
        assert await waiting
        (taken,) = await other.take(1)
        assert taken.job.id == leased.job.id
        await other.settle([(taken, Done("1"))], 0)


@clause("J-34")
async def test_j34_a_long_pending_list_is_read_in_batches(connection: Connection, raw: Raw) -> None:
    """Entries that are not reclaimed do not hide the later ones."""
    async with StreamsLab(connection, lease_s=10.0, foreign_idle_s=10**6) as lab:
        raw.call("XGROUP", "CREATE", QUEUE, "workers", "0", "MKSTREAM")
        for n in range(150):
            foreign_job(raw, f"theirs-{n}")
        entries = raw.read(QUEUE, "foreign-1", count=150)
        _, leased = await lab.start()
        for entry in (*entries, leased.wire):
            let_pass(raw, entry, 50_000)
        other = await lab.worker()
        (taken,) = await wait_until(lambda: other.take(1), "our own dead worker's job")
        assert taken.job.id == leased.job.id
        await other.settle([(taken, Done("1"))], 0)


# ── J-39 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-39")
async def test_j39_foreign_acked_entries_are_removed_once_the_job_has_ended(
    lab: StreamsLab, raw: Raw
) -> None:
    entries = {name: foreign_job(raw, name) for name in ("ended", "gone", "open", "held", "new")}
    raw.call("XGROUP", "CREATE", QUEUE, "workers", "0")
    assert raw.read(QUEUE, "foreign-1", count=4) == list(entries.values())[:4]
    raw.call("XACK", QUEUE, "workers", *(entries[name] for name in ("ended", "gone", "open")))
    raw.call("HSET", "job:ended", "status", "done")
    raw.call("HSET", "job:held", "status", "done")  # the foreign worker acknowledges it next
    raw.delete("job:gone")
    assert await lab.maintain("janitor") == 2
    left = [fields["job_id"] for _, fields in raw.entries(QUEUE)]
    assert left == ["open", "held", "new"]
    assert raw.pending(QUEUE) == {entries["held"]: "foreign-1"}


@clause("J-39")
async def test_j39_jobs_of_foreign_gateways_are_indexed(lab: StreamsLab, raw: Raw) -> None:
    foreign_job(raw, "theirs", ttl_s=77)
    foreign_job(raw, "over", status="done")
    raw.add(QUEUE, {"job_id": "never", "task": "echo", "payload": "{}"})
    ours = await lab.submit()
    assert await lab.maintain("index_foreign") == 1
    assert sorted(raw.members("jobs:open")) == sorted(["theirs", ours])
    assert sorted(raw.members("jobs:index")) == sorted(["theirs", "over", ours])
    assert raw.plain.zscore("jobs:index", "theirs") == 1700000000000
    assert raw.field("job:theirs", "entry_id") == raw.entries(QUEUE)[0][0]
    assert raw.exists("job:never") == 0
    assert await lab.maintain("index_foreign") == 0, "once each"


@clause("J-39", "J-7")
async def test_j39_events_of_a_foreign_job_that_was_indexed_before_its_start_expire(
    lab: StreamsLab, raw: Raw
) -> None:
    """Its gateway writes no event. The job is started and ends a moment after it was created, when
    the keys of a job of ours have just got their lifetime."""
    worker = await lab.worker("echo")
    foreign_job(raw, "theirs", created_ts=str(raw.now_ms()))
    raw.delete("job:theirs:events")
    assert await lab.maintain("index_foreign") == 1
    (leased,) = await worker.take(1)
    await worker.settle([(leased, Done("1"))], 0)
    assert raw.field("job:theirs", "status") == "done"
    assert raw.ttl_s("job:theirs:events") > 0


@clause("J-39")
async def test_j39_stats_count_jobs_of_foreign_programs(lab: StreamsLab, raw: Raw) -> None:
    """Submitted by others, run by others, or both; each is counted once, however often stats are
    read."""
    raw.call("XGROUP", "CREATE", QUEUE, "workers", "0", "MKSTREAM")

    def run_by_others(job_id: str, status: str) -> None:
        raw.read(QUEUE, "foreign-1")
        raw.call("HSET", f"job:{job_id}", "status", status)
        raw.call("XACK", QUEUE, "workers", raw.entries(QUEUE)[-1][0])

    foreign_job(raw, "ended-before-we-looked")
    run_by_others("ended-before-we-looked", "done")
    await lab.maintain("index_foreign")
    foreign_job(raw, "theirs")
    await lab.maintain("index_foreign")
    run_by_others("theirs", "error")
    run_by_others(await lab.submit(), "done")
    await lab.maintain("reconcile")
    await lab.sweep()
    await lab.sweep()

    def counted(name: str) -> int:
        return sum(int(raw.field(key, name) or 0) for key in raw.find("jobs:stats:*"))

    assert (counted("submissions"), counted("done"), counted("error")) == (3, 2, 1)
    assert "ended-before-we-looked" in raw.members("jobs:index")
    assert raw.members("jobs:open") == []


@clause("J-39")
async def test_j39_a_foreign_job_that_was_started_first_is_indexed(
    lab: StreamsLab, raw: Raw
) -> None:
    worker = await lab.worker()
    foreign_job(raw, "theirs")
    (leased,) = await worker.take(1)
    assert raw.members("jobs:index") == ["theirs"]
    assert raw.members("jobs:open") == ["theirs"]
    await worker.settle([(leased, Done("1"))], 0)
    assert raw.members("jobs:open") == []


@clause("J-39")
async def test_j39_only_our_own_idle_and_empty_consumers_are_removed(
    lab: StreamsLab, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobwire.systems.jobs.maintenance._CONSUMER_IDLE_S", 0.0)
    living = await lab.worker()
    await living.take(1)
    for name in ("jobwire-empty", "jobwire-holding", "foreign-1"):
        raw.call("XGROUP", "CREATECONSUMER", QUEUE, "workers", name)
    entry = foreign_job(raw, "held")
    assert raw.read(QUEUE, "jobwire-holding") == [entry]
    await lab.maintain("janitor")
    assert raw.consumers(QUEUE) == sorted([living.consumer, "jobwire-holding", "foreign-1"])
    assert raw.pending(QUEUE) == {entry: "jobwire-holding"}, "nothing pending is dropped"


@clause("J-39")
async def test_j39_expired_jobs_are_removed_from_indexes(lab: StreamsLab, raw: Raw) -> None:
    ours = await lab.submit()
    gone = [await lab.submit(tenant=tenant) for tenant in ("", "acme", "acme", "zoo")]
    kept = await lab.submit(tenant="zoo")
    raw.delete(*(f"job:{job_id}" for job_id in gone))
    for _ in range(4):  # an index a turn
        await lab.maintain("janitor")
    assert raw.members("jobs:index") == [ours]
    assert raw.exists("jobs:index:acme") == 0
    assert raw.members("jobs:index:zoo") == [kept]
    assert raw.members("jobs:tenants") == ["zoo"]


@clause("J-34")
@pytest.mark.parametrize("by", ["a worker", "maintenance"])
async def test_j34_a_job_that_no_consumer_holds_is_reclaimed_at_once(
    lab: StreamsLab, raw: Raw, by: str
) -> None:
    """A foreign program has given it back with `XNACK` (Redis 8.8); others leave such a row by an
    empty name. Jobs that are held stay where they are."""
    worker, held = await lab.start()
    job_id = await lab.submit()
    raw.call("XREADGROUP", "GROUP", "workers", "", "COUNT", 1, "STREAMS", QUEUE, ">")
    assert "" in raw.pending(QUEUE).values()
    other = await lab.worker()
    if by == "a worker":
        other.reclaim_soon()
        (leased,) = await other.take(5)
        assert leased.job.id == job_id
    else:
        assert await lab.maintain("reclaim") == 1
        assert (await lab.snapshot(job_id)).state is State.WAITING
    assert {held.wire: worker.consumer}.items() <= raw.pending(QUEUE).items()


# ── J-41 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-41")
async def test_j41_a_maintenance_task_runs_once_per_period_in_the_fleet(
    lab: StreamsLab, raw: Raw
) -> None:
    one, other = StreamsEngine(lab.connection, lab.settings), lab.sweeper
    await lab.submit(ttl_s=1)  # its lifetime is always due

    def task(engine: StreamsEngine, name: str) -> MaintenanceTask:
        return next(task for task in engine.maintenance() if task.name == name)

    names = [task.name for task in other.maintenance()]
    assert names == [
        "promote",
        "extend_ttl",
        "index_foreign",
        "clock",
        "reclaim",
        "janitor",
        "reconcile",
        "forget_tasks",
    ]

    async def is_guarded(name: str) -> bool:
        period_ms = round(1000 * task(one, name).period_s)
        raw.call("SET", f"jobs:guard:{name}", "another-process", "PX", period_ms)
        result = await task(one, name).run()
        return result is not None and 0 < (result.guard_s or 0) < period_ms / 1000

    for name in names[1:]:
        guard = f"jobs:guard:{name}"
        # Repeated, since some periods are shorter than a busy machine may need for two commands.
        await wait_until(partial(is_guarded, name), f"{name} to be done in this period")
        raw.delete(guard)  # the period is over
        result = await task(one, name).run()
        assert result is not None
        assert result.guard_s == task(one, name).period_s
        left_ms = raw.call("PTTL", guard)
        assert isinstance(left_ms, int)
        assert left_ms == -2 or 0 <= left_ms <= 1000 * task(one, name).period_s
        raw.delete(guard)
        result = await task(other, name).run()
        assert result is not None
        assert result.guard_s == task(other, name).period_s, "there is no leader"
    for engine in (one, other):
        assert await task(engine, "promote").run() is not None


# ── J-42 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-42")
async def test_j42_a_healthy_fleet_has_nothing_to_reconcile(lab: StreamsLab, raw: Raw) -> None:
    worker = await lab.worker()
    job_ids = [await lab.submit() for _ in range(6)]
    await lab.submit(delay_s=600)
    leased = await worker.take(3)
    await worker.settle([(leased[0], Done("1")), (leased[1], RetryLater(600, TRANSIENT))], 0)
    assert await worker.wait(30)
    for job_id in job_ids:
        raw.call("HSET", f"job:{job_id}", "updated_ts", "1")  # for as long as there is
    assert await lab.maintain("reconcile") == 0
    await worker.settle([(leased[2], Done("1"))], 0)


@clause("J-42")
@pytest.mark.parametrize("blow", ["trimmed", "acked early", "trimmed while it ran", "regressed"])
async def test_j42_a_job_without_a_queue_entry_gets_a_new_one(
    lab: StreamsLab, raw: Raw, blow: str
) -> None:
    raw.call("XGROUP", "CREATE", QUEUE, "workers", "0", "MKSTREAM")
    job_id = await lab.submit()
    old = raw.field(f"job:{job_id}", "entry_id")
    match blow:
        case "trimmed":
            raw.call("XTRIM", QUEUE, "MAXLEN", 0)
        case "acked early":
            (entry,) = raw.read(QUEUE, "foreign-1")
            raw.call("XACK", QUEUE, "workers", entry)
        case "trimmed while it ran":
            worker = await lab.worker()
            (leased,) = await worker.take(1)
            raw.call("XTRIM", QUEUE, "MAXLEN", 0)
            renewer = worker.lease_renewer()
            await asyncio.to_thread(
                renewer.renew, [leased]
            )  # the server drops it from the list here
            renewer.close()
        case _:
            raw.call("HDEL", f"job:{job_id}", "entry_id")
            raw.delete(QUEUE)
            raw.call("XGROUP", "CREATE", QUEUE, "workers", "0", "MKSTREAM")
    assert await lab.maintain("reconcile") == 0, "not before its lease is over"
    raw.call("HSET", f"job:{job_id}", "updated_ts", "1")
    assert await lab.maintain("reconcile") == 1
    found = raw.fields(f"job:{job_id}")
    ((entry, fields),) = raw.entries(QUEUE)
    assert fields == {"job_id": job_id, "task": "echo", "payload": '{"a":1}'}
    assert (found["status"], found["entry_id"]) == ("queued", entry)
    # A stream that was made anew knows no older ids.
    assert entry != old or blow == "regressed"
    assert await lab.maintain("reconcile") == 0
    minutes = raw.find("jobs:stats:*")
    assert sum(int(raw.field(minute, "reconciled") or 0) for minute in minutes) == 1
    worker = await lab.worker()
    (leased,) = await worker.take(1)
    await worker.settle([(leased, Done("1"))], 0)


@clause("J-42", "J-39")
async def test_j42_a_running_foreign_job_that_was_acknowledged_early_is_not_requeued(
    connection: Connection, raw: Raw
) -> None:
    async with StreamsLab(connection, foreign_idle_s=600.0) as lab:
        raw.call("XGROUP", "CREATE", QUEUE, "workers", "0", "MKSTREAM")
        job_id = await lab.submit()
        (entry,) = raw.read(QUEUE, "foreign-1")
        raw.call("XACK", QUEUE, "workers", entry)
        long_ago = raw.now_ms() - round(10_000 * LEASE_S)
        raw.call("HSET", f"job:{job_id}", "status", "running", "updated_ts", long_ago)
        assert await lab.maintain("reconcile") == 0
        raw.call("HSET", f"job:{job_id}", "updated_ts", raw.now_ms() - 601_000)
        assert await lab.maintain("reconcile") == 1


@clause("J-42")
async def test_j42_a_canceled_or_exhausted_job_ends_instead(lab: StreamsLab, raw: Raw) -> None:
    wanted, worn = await lab.submit(), await lab.submit()
    raw.call("XTRIM", QUEUE, "MAXLEN", 0)
    raw.call("HSET", f"job:{wanted}", "cancel_ts", "1", "updated_ts", "1")
    raw.call("HSET", f"job:{worn}", "deliveries", "5", "updated_ts", "1")
    assert await lab.maintain("reconcile") == 2
    assert raw.field(f"job:{wanted}", "status") == "canceled"
    assert json.loads(raw.field(f"job:{worn}", "error") or "")["code"] == "delivery_limit"
    assert await lab.at_rest()


@clause("J-42")
async def test_j42_many_open_jobs_are_reconciled_in_batches(lab: StreamsLab, raw: Raw) -> None:
    answers = await lab.queue.submit_many([JobRequest("echo", "{}") for _ in range(1000)])
    job_ids = [answer.job_id for answer in answers if isinstance(answer, Submitted)]
    raw.call("XTRIM", QUEUE, "MAXLEN", 400)
    for job_id in job_ids:
        raw.call("HSET", f"job:{job_id}", "updated_ts", "1")
    (reconcile,) = [task for task in lab.sweeper.maintenance() if task.name == "reconcile"]
    first = await reconcile.run()
    assert first is not None
    assert first.more
    assert first.done < 600, "one call does not block the server"
    rest = await lab.maintain("reconcile")
    assert first.done + rest == 600
    assert raw.length(QUEUE) == 1000


@clause("J-53")
async def test_j53_the_workers_of_all_queues_are_read_in_one_round_trip(
    connection: Connection, lab: StreamsLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = [f"queue-{number}" for number in range(20)]
    for queue in queues:
        await lab.worker(f"task-{queue}", queues=[queue])
    replies: list[asyncio.Future[Reply]] = []
    unanswered = 0
    call = connection.call

    def counted(*args: Arg) -> Awaitable[Reply]:
        nonlocal unanswered
        reply = asyncio.ensure_future(call(*args))
        if args[0] == "XINFO":
            replies.append(reply)
            unanswered = max(unanswered, sum(not each.done() for each in replies))
        return reply

    monkeypatch.setattr(connection, "call", counted)
    assert len(await WorkerRegistry(connection, lab.settings).workers()) == 20
    assert unanswered == len(replies) == 21


@clause("O-15")
async def test_o15_lookups_of_unknown_tasks_at_the_same_time_are_one(
    connection: Connection, lab: StreamsLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lab.worker("known")
    registry = WorkerRegistry(connection, lab.settings)
    reads = 0
    call = connection.call

    def counted(*args: Arg) -> Awaitable[Reply]:
        nonlocal reads
        reads += args[0] == "XINFO"
        return call(*args)

    monkeypatch.setattr(connection, "call", counted)
    assert await registry.unknown_among({"first"}) == {"first"}
    alone, reads = reads, 0
    tasks = [f"unknown-{number}" for number in range(100)]
    found = await asyncio.gather(*(registry.unknown_among({task}) for task in tasks))
    assert found == [{task} for task in tasks]
    assert 0 < reads <= 2 * alone
