"""J-7, J-9: lifetimes of keys; each transition is one script on the server's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from jobwire.job.errors import BackendUnavailable, RefusedError
from jobwire.job.messages import (
    Already,
    Canceled,
    Done,
    Failed,
    JobError,
    JobId,
    JobRequest,
    Released,
    RenewAnswer,
    Report,
    ReportAnswer,
    RetryLater,
    SettleAnswer,
    SubmitAnswer,
    Submitted,
)
from jobwire.systems.jobs import contract
from jobwire.valkey import Connection
from tests.support import clause, wait_until
from tests.support.raw import Raw, Recording, foreign_job
from tests.support.streams import StreamsLab

ERROR = JobError("no_such_city", "there is no city of that name")
TRANSIENT = JobError("handler_error", "the handler failed", retryable=True)


# ── J-7 ──────────────────────────────────────────────────────────────────────────────────────────


@clause("J-7")
async def test_j07_every_change_renews_the_lifetime_of_hash_and_events(
    lab: StreamsLab, raw: Raw
) -> None:
    worker = await lab.worker()
    job_id = await lab.submit(ttl_s=60)
    keys = (f"job:{job_id}", f"job:{job_id}:events")

    def renewed() -> bool:
        """Whether both have their full TTL again; then shorten it for the next check."""
        times = [raw.ttl_s(key) for key in keys]
        for key in keys:
            raw.expire(key, 10)
        return all(45 < time <= 60 for time in times)

    assert renewed()
    # A start within a thousandth of the lifetime after creation changes no lifetime.
    created_ts = raw.field(keys[0], "created_ts")
    await let_pass(raw, int(created_ts or 0) + 61)
    (leased,) = await worker.take(1)
    assert renewed()
    await worker.report([(leased, Report("log", "1"))])
    assert renewed()
    await worker.settle([(leased, Released())], 0)
    assert renewed()
    (leased,) = await worker.take(1)
    assert renewed()
    await worker.settle([(leased, RetryLater(0, TRANSIENT))], 0)
    assert renewed()
    (leased,) = await worker.take(1)
    assert renewed()
    started_ts = raw.field(keys[0], "started_ts")
    await let_pass(raw, int(started_ts or 0) + 61)
    await worker.settle([(leased, Done("1"))], 0)
    assert renewed()


@clause("J-7")
async def test_j07_a_job_that_starts_and_ends_at_once_has_its_whole_lifetime(
    lab: StreamsLab, raw: Raw
) -> None:
    worker = await lab.worker()
    job_id = await lab.submit(ttl_s=86_400, idempotency_key="once")
    (leased,) = await worker.take(1)
    keys = (f"job:{job_id}", f"job:{job_id}:events", "idempotency:once")
    for key in keys:
        assert 86_340 < raw.ttl_s(key) <= 86_400
    await worker.settle([(leased, Done("1"))], 0)
    for key in keys:
        assert 86_340 < raw.ttl_s(key) <= 86_400


@clause("J-7")
async def test_j07_a_request_without_ttl_gets_the_default(connection: Connection, raw: Raw) -> None:
    async with StreamsLab(connection, job_ttl_s=1234) as lab:
        job_id = await lab.submit()
        assert raw.field(f"job:{job_id}", "ttl_s") == "1234"
        assert 1200 < raw.ttl_s(f"job:{job_id}") <= 1234


@clause("J-7")
@pytest.mark.parametrize("ttl_s", [0, -1, contract.MAX_TTL_S + 1])
async def test_j07_a_lifetime_out_of_range_is_refused(lab: StreamsLab, ttl_s: int) -> None:
    with pytest.raises(RefusedError, match="ttl_s"):
        await lab.submit(ttl_s=ttl_s)


TTL_S = 600


async def let_pass(raw: Raw, until_ms: int) -> None:
    """Return when the server's clock has reached a time."""
    await wait_until(lambda: raw.now_ms() >= until_ms, "the time to pass")


def is_whole(raw: Raw, *keys: str) -> bool:
    """Whether they have their whole lifetime again."""
    return all(TTL_S - 60 < raw.ttl_s(key) <= TTL_S for key in keys)


@clause("J-7", "R-1")
async def test_j07_an_unfinished_job_outlives_its_ttl(lab: StreamsLab, raw: Raw) -> None:
    """Several times over, with its events and idempotency key; once ended, it expires."""
    job_id = await lab.submit(ttl_s=TTL_S, idempotency_key="once")
    keys = (f"job:{job_id}", f"job:{job_id}:events", "idempotency:once")
    for _ in range(5):
        raw.let_pass(TTL_S / 2)
        assert await lab.maintain("extend_ttl") == 1
        assert is_whole(raw, *keys)
    await lab.queue.cancel(job_id)
    assert raw.members("jobs:open") == []
    raw.let_pass(TTL_S)
    await lab.maintain("extend_ttl")
    assert raw.exists(*keys) == 0


@clause("J-7", "R-1")
async def test_j07_the_largest_queue_outlives_its_ttl(lab: StreamsLab, raw: Raw) -> None:
    """As many jobs as the queue may hold are renewed in one period, and no worker runs."""
    made: list[SubmitAnswer] = []
    while len(made) < contract.MAX_QUEUE:
        requests = [JobRequest("echo", "{}", ttl_s=TTL_S) for _ in range(500)]
        made += await asyncio.gather(*map(lab.queue.submit, requests))
    raw.let_pass(TTL_S / 2)
    assert await lab.maintain("extend_ttl") == contract.MAX_QUEUE
    raw.let_pass(TTL_S - 60)
    alive = raw.exists(*(f"job:{one.job_id}" for one in made if isinstance(one, Submitted)))
    assert alive == contract.MAX_QUEUE


@clause("J-7", "R-1")
async def test_j07_an_outage_shorter_than_half_a_ttl_loses_nothing(
    lab: StreamsLab, raw: Raw
) -> None:
    """No process runs around the time at which the keys would first expire."""
    worker, leased = await lab.start(ttl_s=TTL_S)
    waiting = await lab.submit(ttl_s=TTL_S, idempotency_key="once")
    raw.let_pass(TTL_S / 2)
    await lab.maintain("extend_ttl")
    # Just before the next renewal everything stops.
    raw.let_pass(TTL_S / 2 - 60)
    await lab.maintain("extend_ttl")
    raw.let_pass(TTL_S / 2)
    assert await lab.maintain("extend_ttl") == 2
    assert is_whole(raw, f"job:{waiting}", f"job:{waiting}:events", "idempotency:once")
    settled = await worker.settle([(leased, Done("1"))], 0)
    assert settled.answers == [SettleAnswer.SETTLED], "the result is kept"


@clause("J-7", "J-39", "R-1")
async def test_j07_a_foreign_gateways_job_is_renewed_when_it_is_first_seen(
    lab: StreamsLab, raw: Raw
) -> None:
    """No process of ours ran for most of the job's first TTL."""
    foreign_job(raw, "theirs", ttl_s=TTL_S)
    raw.let_pass(TTL_S - 60)
    await lab.maintain("index_foreign")
    raw.let_pass(TTL_S / 2)
    await lab.maintain("extend_ttl")
    assert is_whole(raw, "job:theirs", "job:theirs:events")


@clause("J-7", "J-11", "R-6")
async def test_j11_an_idempotency_key_lives_as_long_as_its_job(lab: StreamsLab, raw: Raw) -> None:
    """The job ends late in its key's first TTL; then both live for a whole TTL."""
    worker, leased = await lab.start(ttl_s=TTL_S, idempotency_key="once")
    raw.let_pass(TTL_S / 2)
    await worker.settle([(leased, Done("1"))], 0)
    raw.let_pass(TTL_S - 60)
    assert raw.exists(f"job:{leased.job.id}") == 1
    again = await lab.queue.submit(JobRequest("echo", "{}", idempotency_key="once"))
    assert again == Already(leased.job.id)


@clause("J-7", "J-11", "R-6")
async def test_j11_every_ttl_renewal_includes_the_idempotency_key(
    lab: StreamsLab, raw: Raw
) -> None:
    job_id = await lab.submit(ttl_s=600, idempotency_key="once")
    worker = await lab.worker()

    async def passed() -> None:
        """A moment later; the key expires no earlier than hash and events."""
        times = [raw.call("PEXPIRETIME", key) for key in keys]
        assert times[2] == max(cast("list[int]", times)), times
        await asyncio.sleep(0.01)

    keys = (f"job:{job_id}", f"job:{job_id}:events", "idempotency:once")
    await passed()
    (leased,) = await worker.take(1)
    await passed()
    await worker.report([(leased, Report("log", "1"))])
    await passed()
    await worker.settle([(leased, Released())], 0)
    await passed()
    (leased,) = await worker.take(1)
    await worker.settle([(leased, RetryLater(0.001, TRANSIENT))], 0)
    await passed()
    await lab.maintain("promote")
    await passed()
    (leased,) = await worker.take(1)
    await lab.silence(worker)
    assert await lab.maintain("reclaim") == 1
    await passed()
    (leased,) = await worker.take(1)
    await lab.queue.cancel(job_id)
    await passed()
    await worker.settle([(leased, RetryLater(0, TRANSIENT))], 0)
    assert raw.field(f"job:{job_id}", "status") == "canceled"
    await passed()


@clause("J-7")
async def test_j07_no_write_recreates_a_partial_hash(lab: StreamsLab, raw: Raw) -> None:
    worker = await lab.worker()
    for _ in range(6):
        await lab.submit()
    leased = await worker.take(5)
    waiting = raw.entries("jobs:stream")[-1][1]["job_id"]
    for key in raw.find("job:*"):
        raw.delete(key)

    assert await worker.report([(leased[0], Report("log", "1"))]) == [ReportAnswer.LOST]
    renewer = worker.lease_renewer()
    assert renewer.renew(leased[:1]) == [RenewAnswer.ENDED]
    renewer.close()
    outcomes = (Done("1"), Failed(ERROR), Canceled(), RetryLater(0, TRANSIENT), Released())
    settled = await worker.settle(list(zip(leased, outcomes, strict=True)), 0)
    assert settled.answers == [SettleAnswer.GONE] * 5
    await lab.queue.cancel(JobId(waiting))
    assert await worker.take(1) == []
    await lab.sweep()
    assert raw.find("job:*") == []
    assert await lab.at_rest()


# ── J-9 ──────────────────────────────────────────────────────────────────────────────────────────


@clause("J-9")
async def test_j09_each_transition_is_one_call(lab: StreamsLab, raw: Raw) -> None:
    """Transitions of many jobs are one call, and the server runs all steps."""
    worker = await lab.worker()
    job_ids = [await lab.submit() for _ in range(3)]
    with Recording(raw) as seen:
        leased = await worker.take(3)
        await worker.report([(one, Report("log", "1")) for one in leased])
        await worker.settle([(one, Done("1")) for one in leased], 0)
        job_id = await lab.submit()
        await lab.queue.cancel(job_id)
    # The first take of a worker also checks for expired leases.
    assert seen.scripts == 6
    assert {one.job.id for one in leased} == set(job_ids)


@clause("J-9")
async def test_j09_time_is_the_servers(lab: StreamsLab, raw: Raw) -> None:
    before = raw.now_ms()
    worker, leased = await lab.start()
    await worker.settle([(leased, Done("1"))], 0)
    after = raw.now_ms()
    record = await lab.queue.record(leased.job.id)
    assert record is not None
    times = [int(event["ts"]) for event in await lab.events(leased.job.id)]
    assert before <= record.created_ms <= times[0] <= times[1] <= times[2] <= after
    assert record.updated_ms == times[2]


@clause("J-9", "J-12")
async def test_j09_a_full_server_can_still_start_settle_and_release(
    lab: StreamsLab, raw: Raw, server_setting: Callable[[str, str], None]
) -> None:
    worker = await lab.worker()
    for _ in range(5):
        await lab.submit()
    (first,) = await worker.take(1)
    keys_before = set(raw.find())
    server_setting("maxmemory", "1")

    with pytest.raises(BackendUnavailable) as refused:
        await lab.submit()
    assert refused.value.status == 503
    assert set(raw.find()) == keys_before, "nothing was written"
    assert await worker.report([(first, Report("log", "1"))]) == [ReportAnswer.DROPPED]
    renewer = worker.lease_renewer()
    assert renewer.renew([first]) == [RenewAnswer.RENEWED]
    renewer.close()
    others = await worker.take(4)
    assert len(others) == 4
    outcomes = (Done("1"), Failed(ERROR), RetryLater(0, TRANSIENT), Released(), Canceled())
    settled = await worker.settle(list(zip((first, *others), outcomes, strict=True)), 0)
    assert settled.answers == [SettleAnswer.SETTLED] * 5
    server_setting("maxmemory", "0")
    await worker.settle([(one, Done("1")) for one in await worker.take(5)], 0)
    assert await lab.at_rest()


@clause("J-9")
async def test_j09_a_refused_job_affects_no_other_of_its_batch(lab: StreamsLab, raw: Raw) -> None:
    worker = await lab.worker()
    job_ids = [await lab.submit() for _ in range(5)]
    raw.corrupt(f"job:{job_ids[0]}")
    leased = await worker.take(5)
    assert [one.job.id for one in leased] == job_ids[1:], "the broken one was dropped"

    raw.corrupt(f"job:{job_ids[1]}")
    raw.corrupt(f"job:{job_ids[2]}:events")
    renewer = worker.lease_renewer()
    assert renewer.renew(leased) == [RenewAnswer.ENDED] + [RenewAnswer.RENEWED] * 3
    renewer.close()
    assert await worker.report([(one, Report("log", "1")) for one in leased]) == [
        ReportAnswer.LOST,
        ReportAnswer.DROPPED,
        ReportAnswer.WRITTEN,
        ReportAnswer.WRITTEN,
    ]
    settled = await worker.settle([(one, Done("1")) for one in leased], 0)
    assert settled.answers == [SettleAnswer.GONE] + [SettleAnswer.SETTLED] * 3
    assert [raw.field(f"job:{job_id}", "status") for job_id in job_ids[2:]] == ["done"] * 3
    assert raw.kind(f"job:{job_ids[1]}") == "string", "keys of other programs are not changed"
    assert raw.length("jobs:stream") == 0
