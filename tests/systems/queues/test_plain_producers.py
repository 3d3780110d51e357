"""Producers that implement only the published document are served.

They write no marker and no `priority`, raw scores, and the wrong end of `wait`.
"""

from __future__ import annotations

import json

from jobwire.job.messages import Failed, RetryLater
from jobwire.systems.queues.codec import Empty
from jobwire.systems.queues.consumer import FailedAttempt
from tests.support import clause
from tests.systems.queues.conftest import KEY, START_MS, Site, after_failure


def submit(site: Site, **options: object) -> str:
    """Contract 1 of the document, command by command."""
    job_id = str(site.raw.call("INCR", f"{KEY}id"))
    site.raw.plain.hset(
        f"{KEY}{job_id}",
        mapping={
            "name": "video-generation",
            "data": "{}",
            "opts": json.dumps(options),
            "progress": "0",
            "delay": "0",
            "timestamp": str(START_MS),
            "attemptsMade": "0",
        },
    )
    priority = options.get("priority", 0)
    if priority:
        site.raw.call("ZADD", f"{KEY}prioritized", str(priority), job_id)
    else:
        site.raw.call("RPUSH", f"{KEY}wait", job_id)
    site.raw.add(f"{KEY}events", {"event": "waiting", "jobId": job_id, "timestamp": str(START_MS)})
    return job_id


@clause("B-1", "B-2")
async def test_b02_jobs_of_plain_producers_run(site: Site) -> None:
    plain, urgent = submit(site), submit(site, priority=1)
    assert [(await site.take())[0].id for _ in range(2)] == [plain, urgent]


@clause("B-5")
async def test_b05_attempts_made_is_ignored(site: Site) -> None:
    """`attemptsMade` in the hash is not read and not increased: official packages would retry
    forever because of it."""
    job_id = submit(site, attempts=2)
    job, token = await site.take()
    outcome = after_failure(job)
    assert isinstance(outcome, RetryLater)
    assert outcome.after_s == 0
    await site.consumer.retry(job, token, FailedAttempt("no"))
    job, token = await site.take()
    assert isinstance(after_failure(job), Failed)
    await site.consumer.fail(job, token, FailedAttempt("no"))
    found = site.hash(job_id)
    assert (found["attemptsMade"], found["atm"], found["ats"]) == ("0", "2", "2")


@clause("B-2", "B-5")
async def test_b02_a_missing_priority_is_the_options(site: Site) -> None:
    job_id = submit(site, priority=3, attempts=2)
    job, token = await site.take()
    read = await site.queue.get(job_id)
    assert read is not None
    assert read.priority == 3
    await site.consumer.retry(job, token, FailedAttempt("no"))
    assert site.raw.call("ZSCORE", f"{KEY}prioritized", job_id) == 3 * 2**32 + 1


@clause("B-2")
async def test_b02_a_raw_time_in_delayed_waits_until_it_is_due(site: Site) -> None:
    job_id = submit(site)
    site.raw.call("LREM", f"{KEY}wait", 0, job_id)
    due_ms = START_MS + 60_000
    site.raw.call("ZADD", f"{KEY}delayed", due_ms, job_id)
    await site.add(delay_ms=90_000)
    assert await site.consumer.take("t") == Empty(due_ms)
    site.later(59_999)
    assert await site.consumer.take("t") == Empty(due_ms)
    site.later(1)
    assert (await site.take())[0].id == job_id
    assert await site.consumer.take("t") == Empty(START_MS + 90_000)


@clause("B-2")
async def test_b02_the_marker_of_a_raw_time_is_that_time(site: Site) -> None:
    job_id = submit(site)
    site.raw.call("LREM", f"{KEY}wait", 0, job_id)
    site.raw.call("ZADD", f"{KEY}delayed", START_MS + 60_000, job_id)
    await site.add(delay_ms=90_000)
    assert site.raw.call("ZSCORE", f"{KEY}marker", "1") == START_MS + 60_000
