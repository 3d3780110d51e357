"""B-8, B-9: the features of BullMQ's documentation, with npm bullmq on one side and ours on the
other.

Each story runs twice: the Node program produces and our worker works, and the other way round. One
Node process and one server serve all stories.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from jobwire.local import LocalValkey
from jobwire.systems.queues.announcement import seen_workers
from jobwire.systems.queues.codec import Took
from jobwire.systems.queues.consumer import BullConsumer, FailedAttempt, SettledAttempt
from jobwire.systems.queues.contract import DEFAULT_PREFIX, BullState
from jobwire.systems.queues.schedulers import Repeat
from jobwire.valkey import Connection
from tests.interop.bullmq_jobwire import new_job
from tests.interop.bullmq_lab import Peer
from tests.interop.bullmq_stories import LIMIT_MS, Story, watched
from tests.support import clause, wait_until
from tests.support.thirdparty import NODE, node_packages

_HERE: Final = Path(__file__).parent


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Peer, str]]:
    """The Node program, and the server that both sides use."""
    packages = node_packages()
    with LocalValkey(tmp_path_factory.mktemp("stories"), admin=True) as server:
        url = server.admin_url
        program = _HERE / "node" / "bullmq_stories.js"
        peer = Peer([NODE, program, packages, url.replace("valkey:", "redis:")])
        try:
            yield peer, url
        finally:
            peer.close()


@pytest_asyncio.fixture(params=["node", "jobwire"])
async def story(request: pytest.FixtureRequest, node: tuple[Peer, str]) -> AsyncIterator[Story]:
    peer, url = node
    async with Connection.open(url) as connection:
        story = Story(request.param, peer, url, connection)
        async with story.follower.running(url):
            await story.ask("watch")
            await story.work()
            yield story
            await story.stop()


@clause("B-8", "B-9")
async def test_b9_a_job_and_its_result(story: Story) -> None:
    job_id = await story.add("echo", {"value": {"a": [1, "é"]}})
    assert await story.result(job_id) == {"value": {"a": [1, "é"]}}


@clause("B-8", "B-9")
async def test_b9_progress_and_logs(story: Story) -> None:
    job_id = await story.add("steps")
    await story.result(job_id)
    assert (await story.job(job_id)).progress_json == "50"
    assert (await story.queue.logs(job_id)).lines == ["half of it"]
    assert (await story.node("getJobLogs", job_id))["logs"] == ["half of it"]


@clause("B-8", "B-9")
async def test_b9_failures_retries_and_unrecoverable_errors(story: Story) -> None:
    failing, flaky, never = [
        await story.add(name, attempts=2, backoff={"type": "fixed", "delay": 10})
        for name in ("fail", "flaky", "never")
    ]
    assert "no disk" in (await story.result(failing))["error"]
    assert await story.result(flaky) == {"value": "flaky"}
    assert "never" in (await story.result(never))["error"]
    made = [(await story.job(job_id)).attempts_made for job_id in (failing, flaky, never)]
    assert made == [2, 2, 1]
    # A failed job is run again by hand.
    if story.ours:
        assert await story.admin.retry(failing) is None
    else:
        await story.ask("job", id=failing, method="retry")
    await story.until(failing, "failed")
    assert (await story.job(failing)).attempts_started >= 3


@clause("B-8", "B-9")
async def test_b9_pause_priorities_and_lifo(story: Story) -> None:
    await story.pause()
    for value, opts in (("c", {"priority": 9}), ("b", {"priority": 1}), ("a", {})):
        last = await story.add("echo", {"value": value}, **opts)
    first = await story.add("echo", {"value": "first"}, lifo=True)
    assert await story.queue.state(last) == BullState.WAITING
    await story.resume()
    await story.until_count(BullState.COMPLETED, 4)
    jobs = {json.loads(job.return_json): job for job in await story.queue.list(BullState.COMPLETED)}
    assert jobs["first"].id == first
    started_ms = [jobs[value].processed_on_ms or 0 for value in ("first", "a", "b", "c")]
    assert started_ms == sorted(started_ms)


@clause("B-8", "B-9")
async def test_b9_delays_promotion_and_changes(story: Story) -> None:
    short = await story.add("echo", {"value": 1}, delay=20)
    far, promoted, changed = [await story.add("echo", delay=3_600_000) for _ in range(3)]
    assert await story.result(short) == {"value": 1}
    if story.ours:
        assert await story.admin.promote(promoted) is None
        assert await story.admin.change_delay(changed, 5) is None
        assert await story.admin.change_priority(far, 3) is None
    else:
        await story.ask("job", id=promoted, method="promote")
        await story.ask("job", id=changed, method="changeDelay", args=[5])
        await story.ask("job", id=far, method="changePriority", args=[{"priority": 3}])
    await story.until(promoted, "completed")
    await story.until(changed, "completed")
    assert (await story.job(far)).priority == 3
    await (story.admin.promote_all() if story.ours else story.node("promoteJobs"))
    await story.until(far, "completed")


@clause("B-8", "B-9")
async def test_b9_ids_bulk_and_deduplication(story: Story) -> None:
    await story.pause()
    assert await story.add("echo", jobId="mine") == await story.add("echo", jobId="mine") == "mine"
    owner = await story.add("echo", deduplication={"id": "x"})
    assert await story.add("echo", deduplication={"id": "x"}) == owner
    if story.ours:
        jobs = [new_job({"name": "echo", "data": {"value": n}}) for n in range(3)]
        assert len(await story.queue.submit_many(jobs)) == 3
    else:
        bulk = [{"name": "echo", "data": {"value": n}} for n in range(3)]
        assert len(await story.node("addBulk", bulk)) == 3
    assert (await story.queue.counts())[BullState.WAITING] == 5
    await story.resume()
    await story.until(owner, "completed")
    # The id is free again once its owner has ended.
    assert await story.add("echo", deduplication={"id": "x"}) != owner


@clause("B-8", "B-9")
async def test_b9_retention(story: Story) -> None:
    gone = await story.add("echo", removeOnComplete=True)
    kept = [await story.add("echo", removeOnComplete=1) for _ in range(3)]

    # The worker has several slots, so any of the three may end last and be kept.
    async def one_is_left() -> bool:
        left = [each for each in (gone, *kept) if await story.queue.get(each) is not None]
        return len(left) == 1 and left[0] in kept

    await wait_until(one_is_left, "all but one job to be removed")
    await story.until_count(BullState.COMPLETED, 1)


@clause("B-8", "B-9")
async def test_b9_flows_and_policies(story: Story) -> None:
    def child(name: str, value: str, **opts: Any) -> dict[str, Any]:
        return {"name": name, "queueName": story.name, "data": {"value": value}, "opts": opts}

    def parent(*children: dict[str, Any]) -> dict[str, Any]:
        return {"name": "join", "queueName": story.name, "data": {}, "children": list(children)}

    both = await story.flow(parent(child("echo", "a"), child("echo", "b")))
    assert await story.result(both) == {"value": ["a", "b"]}
    ignoring = child("fail", "x", ignoreDependencyOnFailure=True)
    ignored = await story.flow(parent(child("echo", "a"), ignoring))
    assert await story.result(ignored) == {"value": ["a"]}
    assert len((await story.admin.children(ignored)).ignored) == 1
    failing = await story.flow(parent(child("fail", "x", failParentOnFailure=True)))
    assert "failed" in (await story.result(failing))["error"]


@clause("B-8", "B-9")
async def test_b9_schedulers(story: Story) -> None:
    if story.ours:
        template = new_job({"name": "echo", "data": {"value": "tick"}})
        await story.schedulers.set("every", Repeat(every_ms=100, limit=2), template)
        await story.schedulers.set("cron", Repeat(pattern="0 0 3 1 1 *", tz="UTC"), template)
    else:
        template = {"name": "echo", "data": {"value": "tick"}}
        await story.node("upsertJobScheduler", "every", {"every": 100, "limit": 2}, template)
        cron = {"pattern": "0 0 3 1 1 *", "tz": "UTC"}
        await story.node("upsertJobScheduler", "cron", cron, template)
    await story.until_count(BullState.COMPLETED, 2)
    assert {each.id for each in await story.schedulers.list()} == {"every", "cron"}
    remove = (
        story.schedulers.remove("cron") if story.ours else story.node("removeJobScheduler", "cron")
    )
    assert await remove is True
    assert (await story.queue.counts())[BullState.DELAYED] == 0


@clause("B-8", "B-9")
async def test_b9_administration_of_a_queue(story: Story) -> None:
    failed = [await story.add("fail") for _ in range(2)]
    for job_id in failed:
        await story.until(job_id, "failed")
    await (story.admin.retry_all() if story.ours else story.node("retryJobs"))

    async def again() -> bool:
        jobs = [await story.job(job_id) for job_id in failed]
        return all(job.attempts_made == 2 for job in jobs)

    await wait_until(again, "both to run again", timeout_s=60)
    if story.ours:
        assert sorted(await story.admin.clean("failed")) == sorted(failed)
    else:
        assert sorted(await story.node("clean", 0, 0, "failed")) == sorted(failed)
    await story.pause()
    waiting = await story.add("echo")
    await story.add("echo", delay=60_000)
    if story.ours:
        assert await story.admin.remove(waiting) is None
        assert await story.admin.drain(delayed=True) == 1
        assert await story.admin.obliterate() is None
    else:
        assert await story.node("remove", waiting) == 1
        await story.node("drain", True)
        await story.node("obliterate")
    assert sum((await story.queue.counts()).values()) == 0


@clause("B-8", "B-9")
async def test_b9_a_rate_limit_of_the_queue(story: Story) -> None:
    per_ms = 200
    if story.ours:
        await story.admin.set_rate_limit(1, per_ms)
    else:
        await story.node("setGlobalRateLimit", 1, per_ms)
    assert (await story.admin.limits())[1:] == (1, per_ms)
    assert await story.node("getGlobalRateLimit") == {"max": 1, "duration": per_ms}
    for _ in range(3):
        await story.add("echo")
    await story.until_count(BullState.COMPLETED, 3)
    starts = await story.start_times_ms()
    assert all(later - earlier >= per_ms - 1 for earlier, later in pairwise(starts)), starts
    if story.ours:
        await story.admin.set_rate_limit(None)
    else:
        await story.node("removeGlobalRateLimit")
    assert await story.node("getGlobalRateLimit") is None


@clause("B-8", "B-9")
async def test_b9_a_handler_limits_the_rate_of_its_queue(story: Story) -> None:
    """It needs a worker with a rate limit; the attempt does not count."""
    await story.stop()
    await story.work(limit=(100, 1000))
    job_id = await story.add("limited")
    assert await story.result(job_id) == {"value": "later"}
    assert await story.attempts(job_id) == (2, 1)
    first, second = await story.start_times_ms()
    assert second - first >= LIMIT_MS - 1


@clause("B-8", "B-9")
async def test_b9_a_concurrency_of_all_workers(story: Story) -> None:
    if story.ours:
        await story.admin.set_concurrency(1)
    else:
        await story.node("setGlobalConcurrency", 1)
    assert await story.node("getGlobalConcurrency") == 1
    for _ in range(4):
        await story.add("slow")
    await story.until_count(BullState.COMPLETED, 4)
    names = [event.name for event in await story.events("active", "completed")]
    assert names == ["active", "completed"] * 4, "one at a time"
    if story.ours:
        await story.admin.set_concurrency(None)
    else:
        await story.node("removeGlobalConcurrency")
    assert (await story.admin.limits()).concurrency is None


@clause("B-8", "B-9")
async def test_b9_a_handler_postpones_its_job(story: Story) -> None:
    job_id = await story.add("postponed", attempts=1)
    assert await story.result(job_id) == {"value": "later"}
    assert await story.attempts(job_id) == (2, 1), "it does not count as an attempt"
    names = [event.name for event in await story.events("active", "delayed", "completed")]
    assert names == ["active", "delayed", "active", "completed"]


@clause("B-8", "B-9")
async def test_b9_a_handler_waits_for_children_that_it_adds(story: Story) -> None:
    job_id = await story.add("family")
    assert await story.result(job_id) == {"value": ["a", "b"]}
    # Children may have ended before their parent waits for them: then Node's worker continues.
    assert (await story.job(job_id)).attempts_made == 1
    counts = await story.ask("job", id=job_id, method="getDependenciesCount")
    assert (counts["processed"], counts["unprocessed"]) == (2, 0)


@clause("B-8", "B-9")
async def test_b9_a_retry_continues_with_the_updated_data(story: Story) -> None:
    job_id = await story.add("saved", attempts=2)
    assert await story.result(job_id) == {"value": 2}
    assert await story.attempts(job_id) == (2, 2)
    assert json.loads((await story.job(job_id)).data_json) == {"step": 2}


@clause("B-8", "B-9")
async def test_b9_queue_events_with_custom_ones(story: Story) -> None:
    expected = ["added", "waiting", "active", "scene", "completed"]
    if story.ours:
        collector = await watched(story)
        job_id = await story.add("announce", {"value": 7})
        await story.result(job_id)
        await wait_until(
            lambda: any(event.name == "completed" for event in collector.events), "the last event"
        )
        seen = [event for event in collector.events if event.name in expected]
        facts = {event.name: event.fields for event in seen}
        names = [event.name for event in seen]
        assert all(event.job_id == job_id for event in seen)
    else:
        await story.ask("record", names=expected)
        job_id = await story.add("announce", {"value": 7})
        await story.result(job_id)

        async def all_seen() -> bool:
            return len(await story.ask("recorded")) >= 5

        await wait_until(all_seen, "five events")
        recorded = await story.ask("recorded")
        facts = dict(recorded)
        names = [name for name, _ in recorded]
        assert all(fields["jobId"] == job_id for _, fields in recorded)
    assert names == expected
    assert json.loads(facts["scene"]["data"]) == {"n": 1}
    assert facts["completed"]["returnvalue"] in (7, "7")


@clause("B-8", "B-9")
async def test_b9_throttled_and_debounced_jobs(story: Story) -> None:
    throttle = {"id": "throttle", "ttl": 3_600_000}
    first = await story.add("echo", {"value": 1}, deduplication=throttle)
    await story.until(first, "completed")
    assert await story.add("echo", {"value": 2}, deduplication=throttle) == first
    assert await story.admin.deduplication_owner("throttle") == first
    assert await story.node("getDeduplicationJobId", "throttle") == first
    if story.ours:
        assert await story.admin.free_deduplication("throttle") is True
    else:
        assert await story.node("removeDeduplicationKey", "throttle") == 1
    assert await story.add("echo", deduplication=throttle) != first
    # Each further job takes the place of one that is still delayed.
    debounce = {"id": "debounce", "ttl": 3_600_000, "extend": True, "replace": True}
    early, late = [
        await story.add("echo", {"value": value}, deduplication=debounce, delay=3_600_000)
        for value in ("early", "late")
    ]
    assert await story.queue.get(early) is None
    if story.ours:
        assert await story.admin.promote(late) is None
    else:
        await story.ask("job", id=late, method="promote")
    assert await story.result(late) == {"value": "late"}


@clause("B-8", "B-9")
async def test_b9_jobs_are_processed_by_hand(story: Story) -> None:
    """Without a running worker: take a job under a token, extend its lock, end it."""
    await story.stop()
    done, failed = await story.add("echo", {"value": 1}), await story.add("echo")
    if story.ours:
        assert (await story.ask("take", token="t1"))["id"] == done
        assert await story.ask("taken", token="t1", method="extendLock", args=["t1", 60_000]) == 1
        await story.ask(
            "taken", token="t1", method="moveToCompleted", args=["by hand", "t1", False]
        )
        assert (await story.ask("take", token="t2"))["id"] == failed
        await story.ask("fail", token="t2", reason="by hand")
    else:
        consumer = BullConsumer(story.connection, story.name)
        taken = await consumer.take("t1")
        assert isinstance(taken, Took)
        assert taken.job.id == done
        assert await consumer.renew([(done, "t1")]) == []
        assert await consumer.complete(taken.job, "t1", '"by hand"') == SettledAttempt()
        taken = await consumer.take("t2")
        assert isinstance(taken, Took)
        assert await consumer.fail(taken.job, "t2", FailedAttempt("by hand")) == SettledAttempt()
    assert await story.result(done) == {"value": "by hand"}
    assert await story.result(failed) == {"error": "by hand"}
    assert (await story.queue.counts())[BullState.ACTIVE] == 0


@clause("B-8", "B-9")
async def test_b9_metrics_and_the_list_of_workers(story: Story) -> None:
    for name in ("echo", "echo", "fail"):
        await story.result(await story.add(name))
    assert (await story.admin.metrics(BullState.COMPLETED)).total == 2
    assert (await story.admin.metrics(BullState.FAILED)).total == 1
    assert (await story.node("getMetrics", "completed"))["meta"]["count"] == 2
    assert (await story.node("getMetrics", "failed"))["meta"]["count"] == 1
    found = await seen_workers(story.connection, DEFAULT_PREFIX, [story.name])
    assert found == {story.name: 1}
    assert await story.node("getWorkersCount") == 1


@clause("B-8", "B-9")
async def test_b9_counts_lists_and_states(story: Story) -> None:
    await story.node("getJobCounts")  # it opens the queue
    await story.pause()
    plain = [await story.add("echo") for _ in range(2)]
    for priority in (1, 1, 5):
        await story.add("echo", priority=priority)
    delayed = await story.add("echo", delay=3_600_000)
    counts = {str(state): count for state, count in (await story.queue.counts()).items()}
    theirs = await story.node("getJobCounts", *counts)
    # A paused queue that version 6 has opened keeps its jobs in the waiting list.
    assert theirs == counts
    assert (counts["waiting"], counts["prioritized"], counts["delayed"]) == (2, 3, 1)
    per_priority = await story.admin.counts_per_priority([0, 1, 5])
    assert per_priority == {0: 2, 1: 2, 5: 1}
    listed = await story.node("getCountsPerPriority", [0, 1, 5])
    assert {int(priority): count for priority, count in listed.items()} == per_priority
    assert [job.id for job in await story.queue.list(BullState.WAITING)] == plain
    assert await story.node("getWaiting") == plain
    assert await story.node("getDelayed") == [delayed]
    assert await story.node("getJobState", delayed) == await story.queue.state(delayed)
    await story.resume()
    await story.until_count(BullState.COMPLETED, 5)
    assert await story.node("getCompletedCount") == 5
