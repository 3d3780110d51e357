"""B-17, B-8: repeated settles, late renewals, releases; parents and deduplication."""

from __future__ import annotations

import contextlib
import json

from jobwire.job.messages import CancelOutcome, Done, RenewAnswer
from jobwire.systems.queues.add_batcher import Deduplicated
from jobwire.systems.queues.codec import Limited, Took
from jobwire.systems.queues.consumer import FailedAttempt, SettledAttempt
from jobwire.systems.queues.contract import CANCELED, SETTLED_TTL_MS, BullState, Refusal
from jobwire.systems.queues.engine import BullEngine
from jobwire.systems.queues.options import BullJobOptions, Deduplication, Parent
from jobwire.systems.queues.settings import BullSettings
from jobwire.systems.queues.worker_connections import WorkerConnections
from jobwire.valkey import Connection
from tests.support import Plain, clause
from tests.systems.queues.conftest import KEY, QUEUE, Site


@clause("B-17")
async def test_b17_a_repeated_settle_is_written_once(site: Site) -> None:
    await site.add(remove_on_complete=True)
    job, token = await site.take()
    assert await site.consumer.complete(job, token, "1") == SettledAttempt()
    before = site.events()
    assert await site.consumer.complete(job, token, "1") == SettledAttempt()
    assert site.events() == before
    kept = f"{KEY}jobwire:settled:{token}"
    assert 0 < site.raw.ttl_s(kept) <= SETTLED_TTL_MS // 1000


@clause("B-17")
async def test_b17_a_repeated_failure_is_written_once(site: Site) -> None:
    await site.add()
    job, token = await site.take()
    for _ in range(2):
        assert await site.consumer.fail(job, token, FailedAttempt("no")) == SettledAttempt()
    assert [event["event"] for event in site.events()].count("failed") == 1
    assert site.hash("1")["atm"] == "1"


@clause("B-17")
async def test_b17_a_job_settled_by_another_is_lost(site: Site) -> None:
    """A worker whose lock expired settles a job that a second worker has completed."""
    await site.add()
    job, token = await site.take()
    site.raw.call("DEL", f"{KEY}1:lock")
    assert await site.consumer.complete(job, token) is Refusal.NO_LOCK
    await site.consumer.release(job.id, "0")
    again, other = await site.take()
    await site.consumer.complete(again, other, '"second"')
    assert await site.consumer.complete(job, token, '"first"') is Refusal.NO_LOCK
    assert json.loads(site.hash("1")["returnvalue"]) == "second"


@clause("B-17")
async def test_b17_the_same_job_under_the_same_token_can_be_settled_again(site: Site) -> None:
    """A job that runs a second time under one token is not a repeated settle."""
    for number in range(2):
        await site.add(job_id="mine", remove_on_complete=True)
        answer = await site.consumer.take("token")
        assert isinstance(answer, Took)
        assert await site.consumer.complete(answer.job, "token") == SettledAttempt()
        assert [event["event"] for event in site.events()].count("completed") == number + 1


@clause("B-17", "B-3")
async def test_b17_a_lock_that_expired_is_not_renewed(site: Site) -> None:
    await site.add()
    job, token = await site.take()
    site.raw.call("DEL", f"{KEY}1:lock")
    assert await site.consumer.renew([(job.id, token)]) == [job.id]
    assert site.raw.exists(f"{KEY}1:lock") == 0


@clause("B-17", "B-3")
async def test_b17_a_stale_lease_takes_nothing_from_a_later_one_of_its_job(
    connection: Connection, site: Site
) -> None:
    """Regression: a worker that had lost a job and had it again was told that it lost both."""
    await site.add()
    engine = BullEngine(WorkerConnections(connection, BullSettings(announce=False)), QUEUE)
    await engine.register([], 2)
    try:
        (stale,) = await engine.take(1)
        site.raw.call("DEL", f"{KEY}1:lock", f"{KEY}active")  # a failover lost the last writes
        site.raw.call("LPUSH", f"{KEY}wait", "1")
        (fresh,) = await engine.take(1)
        assert await engine.renew([stale, fresh]) == [RenewAnswer.LOST, RenewAnswer.RENEWED]
        with contextlib.closing(engine.lease_renewer()) as renewer:
            assert renewer.renew([fresh, stale]) == [RenewAnswer.RENEWED, RenewAnswer.LOST]
        site.raw.call("HSET", f"{KEY}1", "defa", CANCELED)
        assert await engine.renew([stale, fresh]) == [RenewAnswer.LOST, RenewAnswer.CANCEL]
        await engine.settle([(fresh, Done("null"))], 0)
    finally:
        await engine.deregister()


@clause("B-17")
async def test_b17_a_released_job_is_taken_next_and_its_start_counts(site: Site) -> None:
    for priority in (0, 4):
        first = await site.add(priority=priority)
        await site.add(priority=priority)
        job, token = await site.take()
        assert job.id == first
        assert await site.consumer.release(job.id, token) == SettledAttempt()
        assert (site.hash(first)["ats"], site.hash(first).get("atm")) == ("1", None)
        assert await site.complete() == first
        await site.complete()


@clause("B-8")
async def test_b08_a_child_that_ends_releases_its_parent(site: Site) -> None:
    await site.queue.submit_parent("film", "{}", BullJobOptions(job_id="film"))
    for number in range(2):
        await site.add(f"scene-{number}", parent=Parent(QUEUE, "film"))
    await site.complete("first")
    assert site.ids("waiting-children") == ["film"]
    await site.complete("second")
    job, token = await site.take()
    assert job.id == "film"
    assert await site.consumer.wait_for_children("film", token) is False
    values = site.raw.fields(f"{KEY}film:processed")
    assert values == {f"{KEY}2": '"first"', f"{KEY}3": '"second"'}


@clause("B-8")
async def test_b08_deduplication_ends_with_its_owner(site: Site) -> None:
    options = BullJobOptions(deduplication=Deduplication(id="film"))
    await site.add(deduplication=options.deduplication)
    assert await site.queue.submit("x", "{}", options) == Deduplicated("1")
    await site.complete()
    assert site.raw.exists(f"{KEY}de:film") == 0
    assert await site.add(deduplication=options.deduplication) == "3"


@clause("B-8")
async def test_b08_cancel_of_an_owner_drops_the_job_that_was_held_back(site: Site) -> None:
    """Otherwise the next owner of the deduplication id would bring it back."""
    rule = Deduplication(id="film", keep_last_if_active=True)
    owner = await site.add(deduplication=rule)
    job, token = await site.take()
    held_back = await site.queue.submit("old", "{}", BullJobOptions(deduplication=rule))
    assert held_back == Deduplicated(owner)
    await site.consumer.retry(job, token, FailedAttempt("try again"))
    assert await site.queue.cancel(owner) is CancelOutcome.CANCELED
    next_owner = await site.add(deduplication=rule)
    assert await site.complete() == next_owner
    assert (await site.queue.counts())[BullState.WAITING] == 0


@clause("B-8")
async def test_b08_no_more_jobs_start_in_a_period_than_the_rate_limit_allows(
    connection: Connection, plain: Plain
) -> None:
    site = Site(connection, plain, limit_max=2, limit_ms=60_000)
    for _ in range(3):
        await site.add()
    for _ in range(2):
        await site.take()
    limited = await site.consumer.take("third")
    assert isinstance(limited, Limited)
    assert 0 < limited.wait_ms <= 60_000
    assert (await site.queue.counts())[BullState.WAITING] == 1, "nothing is taken"
    await site.admin.rate_limit(0)  # ends the period
    await site.take()


@clause("B-8")
async def test_b08_a_queue_that_is_limited_by_hand_starts_no_job(
    connection: Connection, plain: Plain
) -> None:
    """Node writes the largest of its integers as the number of jobs started."""
    site = Site(connection, plain, limit_max=2, limit_ms=60_000)
    await site.add()
    await site.admin.rate_limit(60_000)
    limited = await site.consumer.take("first")
    assert isinstance(limited, Limited)
    assert 0 < limited.wait_ms <= 60_000
    await site.admin.rate_limit(0)
    await site.take()
