"""D-10, D-19: what reads `jobs:suspended`. The test writes it, as a suspended job stands there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import cast

import pytest
import pytest_asyncio

from jobwire.job.ids import child_job_id
from jobwire.job.messages import (
    SUBMIT_KIND,
    Done,
    Failed,
    Full,
    JobError,
    JobId,
    JobRequest,
    Report,
    ReportAnswer,
    Restarted,
    Submitted,
    Suspended,
    TaskDefinition,
)
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.queue import Selection
from jobwire.systems.jobs.queue_admin import JobQueueAdmin
from jobwire.valkey import Connection
from tests.conformance.lab import TASK
from tests.support import clause, wait_until_sync
from tests.support.jobs_http import ServedJobs
from tests.support.raw import Raw
from tests.support.streams import StreamsLab

SUSPENDED = "jobs:suspended"


def suspend(raw: Raw, job_id: str, due_ms: float | str) -> None:
    """As a worker that suspends its job leaves it: no entry, not delayed."""
    raw.call("XDEL", "jobs:stream", raw.field(f"job:{job_id}", "entry_id") or "")
    raw.call("HDEL", f"job:{job_id}", "entry_id")
    raw.call("ZADD", SUSPENDED, due_ms, job_id)


def grow_old(raw: Raw, job_id: str) -> None:
    raw.call("HSET", f"job:{job_id}", "updated_ts", raw.now_ms() - 10**7)


@clause("D-10", "D-19")
@pytest.mark.parametrize("due", ["ahead", "+inf"])
async def test_d10_reconcile_leaves_a_suspended_job_alone(
    lab: StreamsLab, raw: Raw, due: str
) -> None:
    job_id = await lab.submit()
    suspend(raw, job_id, raw.now_ms() + 10**7 if due == "ahead" else due)
    grow_old(raw, job_id)
    lost = await lab.submit()
    raw.call("XDEL", "jobs:stream", raw.field(f"job:{lost}", "entry_id") or "")
    grow_old(raw, lost)
    assert await lab.maintain("reconcile") == 1, "only the job that is nowhere"
    (queued,) = raw.entries("jobs:stream")
    assert queued[1]["job_id"] == lost
    assert raw.members(SUSPENDED) == [job_id]


@clause("D-10")
async def test_d10_reconcile_queues_a_suspended_job_that_nobody_has_woken(
    lab: StreamsLab, raw: Raw
) -> None:
    job_id = await lab.submit()
    suspend(raw, job_id, raw.now_ms() - 10**7)
    grow_old(raw, job_id)
    for suffix, verb in ((":steps", "HSET"), (":awaits", "SADD")):
        raw.call(verb, f"job:{job_id}{suffix}", *("g:a", "1")[: 2 if verb == "HSET" else 1])
        raw.call("EXPIRE", f"job:{job_id}{suffix}", 10**7)
    assert await lab.maintain("reconcile") == 1
    assert [entry["job_id"] for _, entry in raw.entries("jobs:stream")] == [job_id]
    assert not raw.exists(SUSPENDED, f"job:{job_id}:awaits")
    assert raw.ttl_s(f"job:{job_id}:steps") <= raw.ttl_s(f"job:{job_id}"), "its own again"


@clause("D-19")
@pytest.mark.parametrize("gone", ["ended", "expired"])
async def test_d19_a_suspended_job_that_others_ended_is_forgotten(
    lab: StreamsLab, raw: Raw, gone: str
) -> None:
    job_id = await lab.submit()
    suspend(raw, job_id, raw.now_ms() + 10**7)
    if gone == "ended":
        raw.call("HSET", f"job:{job_id}", "status", "done")
    else:
        raw.delete(f"job:{job_id}")
    raw.call("ZADD", "jobs:open", 1, job_id)
    await lab.maintain("extend_ttl")
    assert not raw.exists(SUSPENDED, "jobs:open")


@clause("D-10")
async def test_d10_suspended_jobs_refuse_no_submission(connection: Connection, raw: Raw) -> None:
    async with StreamsLab(connection, max_queue=2, tenant_max_open=2) as lab:
        for _ in range(3):
            suspend(raw, await lab.submit(tenant="acme"), "+inf")
        assert await lab.submit(tenant="acme")
        request = JobRequest(TASK, "{}", tenant="acme")
        assert isinstance(await lab.queue.submit(request), Submitted)
        raw.call("DEL", "jobs:guard:recount:acme")
        answer = await lab.queue.submit(request)
        assert answer == Full(2), "the jobs in the queue count"


@clause("D-10")
async def test_d10_a_purge_leaves_suspended_jobs_unless_asked(lab: StreamsLab, raw: Raw) -> None:
    admin = JobQueueAdmin(lab.connection, lab.settings)
    suspended = await lab.submit()
    suspend(raw, suspended, "+inf")
    other = await lab.submit(queue="media")
    suspend(raw, other, raw.now_ms() + 10**7)
    await lab.submit()
    assert await admin.purge("default") == 1
    assert raw.field(f"job:{suspended}", "status") == "queued"
    assert await admin.purge("default", suspended=True) == 1
    assert raw.field(f"job:{suspended}", "status") == "canceled"
    assert raw.members(SUSPENDED) == [other], "that of another queue stays"
    raw.delete(SUSPENDED)


@clause("D-10", "D-15")
@pytest.mark.parametrize("suspended", [False, True])
async def test_d10_a_purge_leaves_a_job_that_it_has_woken(
    lab: StreamsLab, raw: Raw, suspended: bool
) -> None:
    """Regression: the end of its child put it at the end of the queue, where the purge found it."""
    worker = await lab.worker(queues=["media"])
    parent = await lab.submit(queue="media")
    (leased,) = await worker.take(1)
    child = child_job_id(parent, "a")
    made = Report(SUBMIT_KIND, json.dumps([child, TASK, "{}"]), "k:a")
    assert await worker.report([(leased, made)]) == [ReportAnswer.WRITTEN]
    await worker.settle([(leased, Suspended("children", "a", 3600.0, "", ("c:a",)))], 0)
    waiting = [await lab.submit(queue="media") for _ in range(250)]  # more than one call handles
    admin = JobQueueAdmin(lab.connection, lab.settings)
    canceled = await admin.purge("media", suspended=suspended)
    assert canceled == len([child, *waiting]) + suspended
    assert raw.members("jobs:suspended") == []
    assert raw.field(f"job:{parent}", "status") == ("canceled" if suspended else "queued")
    assert len(raw.entries("jobs:stream:media")) == (not suspended)
    await lab.queue.cancel(parent)


@clause("D-19", "J-16")
async def test_d19_a_suspended_job_is_canceled_at_once(lab: StreamsLab, raw: Raw) -> None:
    job_id = await lab.submit()
    suspend(raw, job_id, "+inf")
    assert await lab.queue.cancel(job_id) == "canceled"
    assert await lab.ends(job_id) == 1
    assert not raw.exists(SUSPENDED, "jobs:open")


@clause("D-19", "J-14")
async def test_d19_lists_have_the_due_time_of_a_suspended_job(lab: StreamsLab, raw: Raw) -> None:
    due_ms = raw.now_ms() + 10**7
    waiting, timed, endless = [await lab.submit() for _ in range(3)]
    suspend(raw, timed, due_ms)
    suspend(raw, endless, "+inf")
    page = await lab.queue.page("", 10)
    found = {record.job_id: record.due_ms for record in page.records}
    assert found == {waiting: None, timed: due_ms, endless: None}
    assert await lab.queue.due_ms(timed) == due_ms
    for delayed, jobs in ((True, []), (False, [waiting])):
        page = await lab.queue.page("", 10, Selection("queued", delayed=delayed))
        assert [record.job_id for record in page.records] == jobs
    raw.delete(SUSPENDED)


@clause("D-10")
def test_d10_suspended_jobs_are_counted_apart(served: ServedJobs, raw: Raw) -> None:
    job_id = cast(str, served.submit()["job_id"])
    suspend(raw, job_id, raw.now_ms() + 1_000)
    scale = served.client.get("/v1/scale").json()
    assert (scale["waiting"], scale["load"]) == (0, 0)
    now = served.client.get("/v1/stats").json()["now"]
    assert (now["waiting"], now["delayed"], now["suspended"]) == (0, 0, 1)

    def is_counted() -> bool:
        (row,) = served.client.get("/v1/overview").json()["systems"]
        return (row["waiting"], row["suspended"]) == (0, 1)

    wait_until_sync(is_counted, "the overview, which is kept for a moment, to count it")
    assert 'jobwire_jobs{queue="",state="suspended"} 1.0' in served.client.get("/metrics").text
    path = "/v1/jobs/queues/default/purge?suspended=true"
    assert served.client.post(path).json()["canceled"] == 1


# ── J-57: the bytes of a tenant's jobs ───────────────────────────────────────────────────────────

LARGE = json.dumps({"text": "x" * 100_000})
SIZE = 2 * len(LARGE) + 1024
DAY_S = 86_400


@pytest_asyncio.fixture
async def counting(connection: Connection) -> AsyncIterator[StreamsLab]:
    """A lab that counts the bytes of tenants."""
    async with StreamsLab(connection, tenant_max_bytes=10**9) as opened:
        yield opened


def bytes_after(raw: Raw, *seconds: int) -> list[float]:
    """What is counted when this time is over, in jobs of the size of `LARGE`."""
    spans = raw.fields("jobs:bytes:acme")
    del spans["total"]
    now_s = raw.now_ms() // 1000
    sums = [
        sum(int(size) for end, size in spans.items() if int(end) > now_s + after_s)
        for after_s in seconds
    ]
    return [round(size / SIZE, 1) for size in sums]


async def suspended_large(lab: StreamsLab, what: Suspended) -> JobId:
    worker = await lab.worker(queues=["media"])
    job_id = await lab.submit(LARGE, queue="media", tenant="acme", ttl_s=DAY_S)
    (leased,) = await worker.take(1)
    await worker.settle([(leased, what)], 0)
    return job_id


@clause("J-57", "D-13")
@pytest.mark.parametrize("end", ["cancel", "signal", "promote", "reconcile"])
async def test_j57_a_suspended_job_is_counted_as_long_as_it_is_kept(
    counting: StreamsLab, raw: Raw, end: str
) -> None:
    """Regression: it was not counted any more after its first lifetime, and a canceled one was
    subtracted for all the time that it would have been kept."""
    lab, after = counting, (0, 2 * DAY_S, 36 * DAY_S, 40 * DAY_S)
    wait = Suspended("signal", "a", 30.0 * DAY_S, "t:signal:a", ("g:a",))
    job_id = await suspended_large(lab, wait)
    assert bytes_after(raw, *after) == [1, 1, 1, 0]
    raw.call("ZADD", "jobs:open", 1, job_id)
    await lab.maintain("extend_ttl")
    assert bytes_after(raw, *after) == [1, 1, 1, 0]
    match end:
        case "signal":
            await lab.queue.signal(job_id, "a", "1")
        case "promote":
            raw.call("ZADD", SUSPENDED, 1, job_id)
            await lab.maintain("promote")
        case "reconcile":
            raw.call("ZADD", SUSPENDED, 1, job_id)
            grow_old(raw, job_id)
            assert await lab.maintain("reconcile") == 1
        case _:
            pass
    if end != "cancel":
        assert bytes_after(raw, *after) == [1, 0, 0, 0], "its own lifetime again"
    await lab.queue.cancel(job_id)
    assert bytes_after(raw, 0, 400, DAY_S // 2, *after[1:]) == [1, 1, 1, 0, 0, 0], (
        "as of an ended one"
    )


@clause("J-57")
async def test_j57_a_job_is_subtracted_where_it_was_counted(counting: StreamsLab, raw: Raw) -> None:
    """Regression: a job that had waited was subtracted for longer than it had been counted."""
    lab = counting
    job_id = await lab.submit(LARGE, tenant="acme", ttl_s=DAY_S)
    # As an event in the middle of its lifetime, before it is renewed.
    raw.call("PEXPIRE", f"job:{job_id}", DAY_S * 1400)
    await lab.queue.cancel(job_id)
    assert bytes_after(raw, 0, 400, DAY_S // 2, DAY_S * 5 // 4) == [1, 0, 0, 0]


@clause("J-57", "D-24")
async def test_j57_the_payload_of_a_restarted_job_is_counted(
    counting: StreamsLab, raw: Raw
) -> None:
    worker = await counting.worker(queues=["media"])
    await counting.submit("{}", queue="media", tenant="acme", ttl_s=DAY_S)
    raw.call("DEL", "jobs:bytes:acme")  # small jobs are counted by chance
    await counting.submit(LARGE, queue="media", tenant="acme", ttl_s=DAY_S)
    small, large = await worker.take(2)
    await worker.settle([(small, Restarted(LARGE))], 0)
    assert bytes_after(raw, 0, 2 * DAY_S) == [2, 0]
    await worker.settle([(large, Restarted("{}"))], 0)
    assert bytes_after(raw, 0, 2 * DAY_S) == [1, 0]


@clause("J-57", "D-23")
async def test_j57_a_job_that_follows_a_failed_one_is_counted(
    counting: StreamsLab, raw: Raw
) -> None:
    task = TaskDefinition("large", on_failure="tell")
    worker = StreamsEngine(counting.connection, counting.settings)
    await worker.register([task, TaskDefinition("tell")], slots=1)
    await counting.submit(LARGE, task="large", tenant="acme", ttl_s=DAY_S)
    (leased,) = await worker.take(1)
    await worker.settle([(leased, Failed(JobError("no", "no")))], 0)
    assert bytes_after(raw, 0) == [2]
    (leased,) = await worker.take(1)
    await worker.settle([(leased, Done("1"))], 0)
    await worker.deregister()


@clause("J-57", "D-6", "D-12")
async def test_j57_signals_are_counted(connection: Connection, raw: Raw) -> None:
    """Regression: with four megabytes of signals each, the jobs of a tenant filled the server."""
    async with StreamsLab(connection, tenant_max_bytes=4 * SIZE) as lab:
        worker = await lab.worker(queues=["media"])
        job_id = await lab.submit(LARGE, queue="media", tenant="acme", ttl_s=DAY_S)
        value = json.dumps("x" * (SIZE // 4))
        sent = [str(await lab.queue.signal(job_id, f"s{at}", value)) for at in range(13)]
        assert (sent.count("recorded"), sent[11:]) == (11, ["full", "full"])
        assert await lab.queue.signal(job_id, "s0", value) == "same"
        assert bytes_after(raw, 0, 2 * DAY_S) == [3.8, 0]
        (leased,) = await worker.take(1)
        await worker.settle([(leased, Suspended("sleep", "a", 30.0 * DAY_S, "t:a"))], 0)
        assert bytes_after(raw, 0, 2 * DAY_S, 40 * DAY_S) == [3.8, 3.8, 0]
        other = await lab.submit("{}", tenant="globex")
        assert await lab.queue.signal(other, "a", value) == "recorded"
        raw.call("ZADD", SUSPENDED, 1, job_id)
        await lab.maintain("promote")
        (leased,) = await worker.take(1)
        await worker.settle([(leased, Restarted("{}", tuple(f"s{at}" for at in range(1, 13))))], 0)
        assert bytes_after(raw, 0) == [0.3], "with the signal that nobody has read"
        assert await lab.queue.signal(job_id, "s0", value) == "same"
        assert await lab.queue.signal(job_id, "s1", value) == "recorded"
