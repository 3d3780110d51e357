"""The seven contracts of the published document: each post-condition.

Where the document and the official packages differ, the tests expect the behavior of the packages
(decision 0090), and the document's own fields in addition (0091).
"""

from __future__ import annotations

import json

import pytest

from jobwire.job.errors import RefusedError
from jobwire.job.messages import Failed, RetryLater
from jobwire.systems.queues.add_batcher import Duplicate
from jobwire.systems.queues.codec import Empty, KeepRule, QueueBlocked
from jobwire.systems.queues.consumer import FailedAttempt, SettledAttempt
from jobwire.systems.queues.contract import Refusal
from jobwire.systems.queues.leased_jobs import leased_job
from jobwire.systems.queues.options import BullBackoff, BullJobOptions
from jobwire.systems.queues.settings import BullSettings
from tests.support import clause, wait_until
from tests.systems.queues.conftest import KEY, QUEUE, START_MS, Site, after_failure

FAILED = FailedAttempt("no disk", "Error: no disk\n  at render")


# 1 submission


@clause("B-1")
async def test_b01_a_job_has_its_hash_and_its_queue_position(site: Site) -> None:
    backoff = BullBackoff("exponential", 1000)
    assert await site.add(data={"videoId": "v"}, attempts=3, backoff=backoff) == "1"
    found = site.hash("1")
    assert json.loads(found.pop("opts")) == {
        "attempts": 3,
        "backoff": {"type": "exponential", "delay": 1000},
    }
    assert found == {
        "name": "video-generation",
        "data": '{"videoId": "v"}',
        "timestamp": str(START_MS),
        "delay": "0",
        "priority": "0",
        "progress": "0",
    }
    assert site.raw.call("GET", f"{KEY}id") == "1"
    assert site.ids("wait") == ["1"]
    assert site.events() == [
        {"event": "added", "jobId": "1", "name": "video-generation"},
        {"event": "waiting", "jobId": "1", "timestamp": str(START_MS)},
    ]


@clause("B-1")
async def test_b01_a_waiting_worker_is_woken(site: Site) -> None:
    await site.add()
    assert site.raw.call("ZRANGE", f"{KEY}marker", 0, -1, "WITHSCORES") == [["0", 0.0]]


@clause("B-1")
async def test_b01_priority_is_shifted_and_kept_in_order(site: Site) -> None:
    for priority in (7, 1, 7):
        await site.add(priority=priority)
    assert site.ids("prioritized") == ["2", "1", "3"]
    assert site.raw.call("ZSCORE", f"{KEY}prioritized", "1") == 7 * 2**32 + 1
    assert site.hash("1")["priority"] == "7"


@clause("B-1")
async def test_b01_a_delayed_job_waits_for_its_time(site: Site) -> None:
    await site.add(delay_ms=5000)
    due_ms = START_MS + 5000
    assert site.raw.call("ZSCORE", f"{KEY}delayed", "1") == due_ms * 4096
    assert site.last("delayed") == {"event": "delayed", "jobId": "1", "delay": str(due_ms)}
    assert await site.consumer.take("t") == Empty(due_ms)
    site.later(5000)
    job, _ = await site.take()
    assert (job.id, job.delay_ms) == ("1", 0)


@clause("B-1")
async def test_b01_jobs_are_taken_in_the_order_of_their_submission(site: Site) -> None:
    for _ in range(3):
        await site.add()
    last = await site.add(lifo=True)
    assert [(await site.take())[0].id for _ in range(4)] == [last, "1", "2", "3"]


@clause("B-1")
async def test_b01_a_custom_id_creates_no_second_job(site: Site) -> None:
    assert await site.add(job_id="mine") == "mine"
    assert await site.queue.submit("x", "{}", BullJobOptions(job_id="mine")) == Duplicate("mine")
    assert site.hash("mine")["name"] == "video-generation"
    assert site.raw.call("GET", f"{KEY}id") == "2", "the counter is increased nevertheless"


# 2 pickup


@clause("B-2")
async def test_b02_a_job_is_started_under_a_lock(site: Site) -> None:
    await site.add(data={"n": 1})
    site.later(10)
    job, token = await site.take()
    assert (job.name, job.data_json, job.attempts_started) == ("video-generation", '{"n": 1}', 1)
    assert site.raw.call("LLEN", f"{KEY}wait") == 0
    assert site.ids("active") == ["1"]
    assert site.raw.call("GET", f"{KEY}1:lock") == token
    assert 0 < site.raw.ttl_s(f"{KEY}1:lock") <= 30
    found = site.hash("1")
    assert (found["processedOn"], found["ats"]) == (str(START_MS + 10), "1")
    assert (found["pb"], found["workerId"]) == ("w1", "worker-1")
    assert site.events()[-1] == {
        "event": "active",
        "jobId": "1",
        "prev": "waiting",
        "timestamp": str(START_MS + 10),
        "workerId": "worker-1",
    }


@clause("B-2")
async def test_b02_jobs_in_wait_precede_prioritized_ones(site: Site) -> None:
    await site.add(priority=1)
    await site.add()
    assert [(await site.take())[0].id for _ in range(2)] == ["2", "1"]


@clause("B-2")
async def test_b02_a_paused_queue_starts_nothing(site: Site) -> None:
    await site.add()
    await site.queue.pause()
    assert await site.consumer.take("t") == QueueBlocked()
    assert site.raw.call("HEXISTS", f"{KEY}meta", "paused")
    await site.queue.resume()
    assert (await site.take())[0].id == "1"


# 3 heartbeat


@clause("B-3")
async def test_b03_locks_are_renewed_in_bulk_by_their_owner_only(site: Site) -> None:
    await site.add()
    await site.add()
    first, token = await site.take()
    second, other = await site.take()
    for job in (first, second):
        site.raw.call("PEXPIRE", f"{KEY}{job.id}:lock", 5000)
    assert await site.consumer.renew([(first.id, token), (second.id, "foreign")]) == [second.id]
    assert site.raw.ttl_s(f"{KEY}{first.id}:lock") > 20
    assert site.raw.ttl_s(f"{KEY}{second.id}:lock") <= 5
    assert site.raw.call("GET", f"{KEY}{second.id}:lock") == other
    assert site.last("active")["jobId"] == second.id, "a renewal writes no event"


@clause("B-3")
def test_b03_the_gap_between_renewals_is_at_most_15_s() -> None:
    assert BullSettings().renew_every_ms == 7_500
    assert BullSettings(lock_ms=4000).renew_every_ms == 1000


# 4 completion


@clause("B-4")
async def test_b04_a_completed_job_keeps_its_result(site: Site) -> None:
    await site.add()
    job, token = await site.take()
    site.later(50)
    result = '{"videoUrl":"https://x/v.mp4","duration":15}'
    assert await site.consumer.complete(job, token, result) == SettledAttempt()
    found = site.hash("1")
    assert (found["returnvalue"], found["finishedOn"], found["atm"]) == (
        result,
        str(START_MS + 50),
        "1",
    )
    assert site.raw.exists(f"{KEY}1:lock", f"{KEY}active") == 0
    assert site.raw.call("ZSCORE", f"{KEY}completed", "1") == START_MS + 50
    assert site.last("completed") == {
        "event": "completed",
        "jobId": "1",
        "returnvalue": result,
        "prev": "active",
        "timestamp": str(START_MS + 50),
    }
    assert site.events()[-1] == {"event": "drained"}


@clause("B-4")
async def test_b04_a_job_that_is_not_kept_leaves_no_key(site: Site) -> None:
    await site.add(remove_on_complete=True)
    job, token = await site.take()
    await site.admin.add_log("1", "a line")
    await site.consumer.complete(job, token)
    assert site.raw.find(f"{KEY}1*") == []
    assert site.raw.exists(f"{KEY}completed") == 0


@clause("B-4")
async def test_b04_only_the_newest_are_kept_with_their_hashes(site: Site) -> None:
    for _ in range(4):
        await site.add(remove_on_complete=2)
    for _ in range(4):
        site.later(1)
        await site.complete()
    assert site.ids("completed") == ["3", "4"]
    assert [site.raw.exists(f"{KEY}{number}") for number in (1, 2, 3, 4)] == [0, 0, 1, 1]


@clause("B-4")
async def test_b04_the_workers_retention_applies_if_the_job_has_none(site: Site) -> None:
    await site.add()
    job, token = await site.take()
    await site.consumer.complete(job, token, keep=KeepRule(0))
    assert site.raw.exists(f"{KEY}1") == 0


@clause("B-4")
async def test_b04_a_settle_without_the_lock_writes_nothing(site: Site) -> None:
    await site.add()
    job, _ = await site.take()
    before = (site.hash("1"), site.events(), site.raw.find(f"{KEY}*"))
    assert await site.consumer.complete(job, "foreign", "1") is Refusal.FOREIGN_LOCK
    assert await site.consumer.fail(job, "foreign", FAILED) is Refusal.FOREIGN_LOCK
    assert await site.consumer.retry(job, "foreign", FAILED) is Refusal.FOREIGN_LOCK
    assert await site.consumer.delay(job, "foreign", 5, FAILED) is Refusal.FOREIGN_LOCK
    assert (site.hash("1"), site.events(), site.raw.find(f"{KEY}*")) == before


# 5 failure


@clause("B-5")
async def test_b05_a_permanent_failure_ends_the_job(site: Site) -> None:
    await site.add(attempts=3)
    job, token = await site.take()
    assert isinstance(after_failure(job, retryable=False), Failed)
    assert await site.consumer.fail(job, token, FAILED) == SettledAttempt()
    found = site.hash("1")
    assert found["failedReason"] == "no disk"
    assert json.loads(found["stacktrace"]) == [FAILED.stack]
    assert found["finishedOn"] == str(START_MS)
    assert site.ids("failed") == ["1"]
    assert site.last("failed") == {
        "event": "failed",
        "jobId": "1",
        "failedReason": "no disk",
        "prev": "active",
    }
    names = [event["event"] for event in site.events()]
    assert "retries-exhausted" not in names, "there were attempts left"


@clause("B-5")
async def test_b05_a_transient_failure_is_retried_after_its_backoff(site: Site) -> None:
    await site.add(attempts=3, backoff=BullBackoff("exponential", 1000))
    for wait_ms in (1000, 2000):
        job, token = await site.take()
        outcome = after_failure(job)
        assert isinstance(outcome, RetryLater)
        assert outcome.after_s * 1000 == wait_ms
        await site.consumer.delay(job, token, wait_ms, FAILED)
        due_ms = site.now_ms + wait_ms
        assert site.last("delayed") == {"event": "delayed", "jobId": "1", "delay": str(due_ms)}
        assert site.last("retry") == {
            "event": "retry",
            "jobId": "1",
            "delay": str(wait_ms),
        }
        site.later(wait_ms)
    job, token = await site.take()
    assert isinstance(after_failure(job), Failed)
    await site.consumer.fail(job, token, FAILED)
    assert site.last("retries-exhausted")["attemptsMade"] == "3"
    assert len(json.loads(site.hash("1")["stacktrace"])) == 3
    assert (site.hash("1")["ats"], site.hash("1")["atm"]) == ("3", "3")


@clause("B-5")
async def test_b05_a_retry_without_delay_goes_to_the_end_of_wait(site: Site) -> None:
    await site.add(attempts=2)
    await site.add()
    job, token = await site.take()
    await site.consumer.retry(job, token, FAILED)
    assert site.last("waiting") == {
        "event": "waiting",
        "jobId": "1",
        "prev": "active",
        "timestamp": str(START_MS),
    }
    assert [(await site.take())[0].id for _ in range(2)] == ["2", "1"]


@clause("B-5")
@pytest.mark.parametrize(
    ("backoff", "made", "chance", "wait_ms"),
    [
        (BullBackoff("fixed", 700), 1, 0.9, 700),
        (BullBackoff("exponential", 700), 0, 0.9, 700),
        (BullBackoff("exponential", 700), 2, 0.9, 2800),
        (BullBackoff("fixed", 1000, 0.5), 0, 0.0, 500),
        (BullBackoff("fixed", 1000, 0.5), 0, 0.5, 750),
        (BullBackoff("fixed", 1000, 1.0), 0, 0.25, 250),
        (None, 0, 0.5, 0),
    ],
)
async def test_b05_backoffs(
    site: Site, backoff: BullBackoff | None, made: int, chance: float, wait_ms: int
) -> None:
    await site.add(attempts=9, backoff=backoff)
    job = (await site.take())[0]._replace(attempts_made=made)
    outcome = after_failure(job, random_fraction=chance)
    assert isinstance(outcome, RetryLater)
    assert outcome.after_s * 1000 == pytest.approx(wait_ms)


@clause("B-5")
async def test_b05_a_backoff_of_an_unknown_kind_is_left_to_the_handler(site: Site) -> None:
    await site.add(attempts=9, backoff=BullBackoff("mine", 300))
    job, token = await site.take()
    assert leased_job(job, token, QUEUE).policy.backoff is None


# 6 stalled jobs


@clause("B-6")
async def test_b06_a_job_without_renewal_runs_again_and_then_fails(site: Site) -> None:
    await site.add(priority=5)
    consumer = site.consumer
    consumer.settings = BullSettings(lock_ms=20, stalled_interval_ms=20)

    async def stall() -> None:
        await site.take()
        moved: list[str] = []

        async def found() -> bool:
            moved.extend(await consumer.check_stalled())
            return bool(moved)

        await wait_until(found, "the stalled check to move the job")
        assert moved == ["1"]

    await stall()
    assert site.ids("wait") == ["1"], "the head of wait, whatever the priority"
    assert (site.hash("1")["stc"], site.hash("1").get("atm")) == ("1", None)
    assert site.last("waiting")["prev"] == "active"
    assert site.last("stalled") == {
        "event": "stalled",
        "jobId": "1",
        "timestamp": str(START_MS),
    }
    await stall()
    job, _ = await site.take()
    assert job.deferred_failure == "job stalled more than allowable limit"


@clause("B-6")
async def test_b06_a_renewed_job_is_not_stalled(site: Site) -> None:
    await site.add()
    job, token = await site.take()
    site.consumer.settings = BullSettings(stalled_interval_ms=5)
    assert await site.consumer.check_stalled() == []
    await wait_until(lambda: not site.raw.exists(f"{KEY}stalled-check"), "the interval")
    await site.consumer.renew([(job.id, token)])
    assert site.raw.exists(f"{KEY}stalled") == 0
    assert await site.consumer.check_stalled() == []
    assert site.ids("active") == ["1"]


@clause("B-6")
async def test_b06_a_job_with_a_valid_lock_is_not_stalled(site: Site) -> None:
    await site.add()
    await site.take()
    site.consumer.settings = BullSettings(stalled_interval_ms=5)
    for _ in range(2):
        assert await site.consumer.check_stalled() == []
        await wait_until(lambda: not site.raw.exists(f"{KEY}stalled-check"), "the interval")
    assert site.raw.call("SMEMBERS", f"{KEY}stalled") == ["1"]
    assert site.ids("active") == ["1"]


@clause("B-6")
async def test_b06_one_check_per_interval_for_all_programs(site: Site) -> None:
    await site.add()
    await site.take()
    await site.consumer.check_stalled()
    assert site.raw.call("SMEMBERS", f"{KEY}stalled") == ["1"]
    site.raw.call("DEL", f"{KEY}1:lock")
    assert await site.consumer.check_stalled() == []
    assert 0 < site.raw.ttl_s(f"{KEY}stalled-check") <= 30


# 7 progress


@clause("B-7")
async def test_b07_progress_is_the_bare_value_with_a_separate_message(site: Site) -> None:
    await site.add()
    assert await site.admin.set_progress("1", "25", "Generating scene 1") is None
    assert site.hash("1")["progress"] == "25"
    assert site.events()[-1] == {
        "event": "progress",
        "jobId": "1",
        "data": "25",
        "progress": "25",
        "timestamp": str(START_MS),
        "message": "Generating scene 1",
    }
    assert (await site.queue.logs("1")).lines == ["Generating scene 1"]


@clause("B-7")
async def test_b07_objects_pass_and_numbers_are_checked(site: Site) -> None:
    await site.add()
    assert await site.admin.set_progress("1", '{"scene": 3, "of": 400}') is None
    for wrong in ("-1", "101", "1e9", "NaN", "25%", ""):
        with pytest.raises(RefusedError):
            await site.admin.set_progress("1", wrong)
    assert site.hash("1")["progress"] == '{"scene": 3, "of": 400}'
    assert await site.admin.set_progress("1", "400", any_number=True) is None


@clause("B-7")
async def test_b07_progress_of_a_missing_job_writes_nothing(site: Site) -> None:
    assert await site.admin.set_progress("nope", "1", "message") is Refusal.MISSING
    assert site.raw.find("*") == []


@clause("B-1", "B-2", "B-4", "B-7")
async def test_b10_without_extras_no_extra_key_is_written(sparse: Site) -> None:
    await sparse.add(attempts=2)
    job, token = await sparse.take()
    await sparse.admin.set_progress("1", "5", "a log line only")
    await sparse.consumer.retry(job, token, FAILED)
    job, token = await sparse.take()
    await sparse.consumer.complete(job, token)
    assert set(sparse.hash("1")) & {"workerId"} == set()
    fields = {name for event in sparse.events() for name in event}
    assert fields & {"timestamp", "workerId", "progress", "message"} == set()
    assert "retry" not in [event["event"] for event in sparse.events()]
