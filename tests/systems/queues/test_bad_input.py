"""B-19: bad input has a one-line answer, loses nothing, and stops no worker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobwire.job.errors import RefusedError
from jobwire.systems.queues.codec import Empty, Took
from jobwire.systems.queues.consumer import BullConsumer, FailedAttempt
from jobwire.systems.queues.contract import MAX_PRIORITY, RESERVED_IDS, BullState, Keys, Refusal
from jobwire.systems.queues.options import BullBackoff, BullJobOptions, Deduplication, Keep, Parent
from jobwire.systems.queues.queue import NewBullJob, QueueProducer
from jobwire.valkey import Connection
from tests.support import clause
from tests.systems.queues.conftest import KEY, START_MS, Site

BAD_OPTIONS: list[dict[str, Any]] = [
    {"job_id": "17"},
    {"job_id": "-3"},
    {"job_id": "0"},
    {"job_id": "0:1"},
    {"job_id": "a:b"},
    {"job_id": "delayed"},
    {"job_id": "meta"},
    {"job_id": "id"},
    {"job_id": "a:b:c:d"},
    {"job_id": "0:b:c"},
    {"job_id": "de:b:c"},
    {"job_id": "repeat:b:1"},
    {"job_id": "a:b:lock"},
    {"job_id": "line\nbreak"},
    {"job_id": "x" * 300},
    {"priority": -1},
    {"priority": MAX_PRIORITY + 1},
    {"priority": 1.5},
    {"priority": float("nan")},
    {"priority": True},
    {"delay_ms": -1},
    {"delay_ms": float("nan")},
    {"delay_ms": float("inf")},
    {"delay_ms": 1 << 60},
    {"attempts": -1},
    {"attempts": "3"},
    {"timestamp_ms": -5},
    {"backoff": BullBackoff("fixed", -1)},
    {"backoff": BullBackoff("fixed", 1, 1.5)},
    {"backoff": BullBackoff("fixed", 1, float("nan"))},
    {"remove_on_complete": -1},
    {"remove_on_fail": Keep(count=-2)},
    {"keep_logs": -1},
    {"stack_trace_limit": -1},
    {"deduplication": Deduplication(id="")},
    {"deduplication": Deduplication(id="x", ttl_ms=-1)},
    {"deduplication": Deduplication(id="x"), "parent": Parent("q", "1")},
    {"parent": Parent("a:b", "1")},
    {"parent": Parent("q", "meta")},
    {"parent": Parent("q", "")},
    {"deduplication": Deduplication(id="x" * 300)},
]


@clause("B-19")
@pytest.mark.parametrize("bad", BAD_OPTIONS, ids=str)
async def test_b19_bad_options_are_refused_in_one_line(site: Site, bad: dict[str, Any]) -> None:
    with pytest.raises(RefusedError) as refused:
        await site.queue.submit("job", "{}", BullJobOptions(**bad))
    assert "\n" not in refused.value.message
    assert len(refused.value.message) < 250
    assert site.raw.find("*") == []


@clause("B-19")
@pytest.mark.parametrize("data", ["", "{", "NaN", "Infinity", "[1,]", "'x'", '"\ud800"'])
async def test_b19_data_must_be_json(site: Site, data: str) -> None:
    with pytest.raises(RefusedError, match="not JSON"):
        await site.queue.submit("job", data)
    assert site.raw.find("*") == []


@clause("B-19", "B-16")
async def test_b19_a_result_must_be_json(site: Site) -> None:
    await site.add()
    job, token = await site.take()
    for wrong in ("", "NaN", "undefined"):
        with pytest.raises(RefusedError):
            await site.consumer.complete(job, token, wrong)
    assert site.ids("active") == ["1"]


@clause("B-19")
@pytest.mark.parametrize("name", ["", "a:b", "x" * 300, "line\nbreak"])
async def test_b19_queue_names(connection: Connection, name: str) -> None:
    with pytest.raises(RefusedError):
        QueueProducer(connection, name)
    with pytest.raises(RefusedError):
        BullConsumer(connection, name)


@clause("B-19")
async def test_b19_a_hash_tag_in_the_name_is_accepted(connection: Connection, site: Site) -> None:
    queue = QueueProducer(connection, "{video-generation}")
    await queue.submit("job")
    assert site.raw.exists("bull:{video-generation}:1") == 1


@clause("B-19")
async def test_b19_a_bulk_beyond_its_limits_is_refused_as_a_whole(site: Site) -> None:
    with pytest.raises(RefusedError, match="1001 jobs"):
        await site.queue.submit_many([NewBullJob("job")] * 1001)
    large = '"' + "x" * 1_100_000 + '"'
    with pytest.raises(RefusedError, match="bytes"):
        await site.queue.submit_many([NewBullJob("job", large)] * 10)
    with pytest.raises(RefusedError, match="bytes"):
        await site.queue.submit("job", '"' + "é" * 6_000_000 + '"')
    with pytest.raises(RefusedError, match="job 1: "):
        await site.queue.submit_many(
            [NewBullJob("job"), NewBullJob("job", "{}", BullJobOptions(delay_ms=-1))]
        )
    assert site.raw.find("*") == []
    assert len(await site.queue.submit_many([NewBullJob("job")] * 1000)) == 1000


@clause("B-19")
async def test_b19_missing_jobs_and_unknown_states(site: Site) -> None:
    assert await site.queue.get("nope") is None
    assert await site.queue.state("nope") is BullState.UNKNOWN
    assert set((await site.queue.counts()).values()) == {0}
    assert await site.admin.add_log("nope", "line") is Refusal.MISSING
    assert await site.admin.set_data("nope", "1") is Refusal.MISSING
    with pytest.raises(RefusedError, match="no such state"):
        await site.queue.list("sleeping")
    with pytest.raises(RefusedError):
        await site.queue.list(BullState.WAITING, count=5000)
    await site.add()
    job, token = await site.take()
    gone = job._replace(id="nope")
    assert await site.consumer.complete(gone, token) is Refusal.MISSING
    assert await site.consumer.release("nope", token) is Refusal.MISSING
    assert await site.consumer.wait_for_children("nope", token) is Refusal.MISSING
    assert site.raw.exists(f"{KEY}nope", f"{KEY}nope:logs") == 0


@clause("B-19")
@pytest.mark.parametrize("name", sorted(RESERVED_IDS))
async def test_b19_a_key_of_the_queue_is_not_a_job(site: Site, name: str) -> None:
    await site.add(delay_ms=5)
    before = site.raw.find("*"), site.raw.fields(f"{KEY}meta")
    assert await site.queue.get(name) is None
    assert await site.queue.state(name) is BullState.UNKNOWN
    assert await site.queue.logs(name) == ([], 0)
    assert await site.admin.set_progress(name, "5", "message") is Refusal.MISSING
    assert await site.admin.set_data(name, "{}") is Refusal.MISSING
    assert await site.admin.add_log(name, "line") is Refusal.MISSING
    assert (site.raw.find("*"), site.raw.fields(f"{KEY}meta")) == before


@clause("B-19")
def test_b19_every_key_of_a_queue_is_reserved() -> None:
    keys = Keys("q")
    names = {
        value.removeprefix(keys.base)
        for name in dir(Keys)
        if isinstance(getattr(Keys, name), property)
        for value in [getattr(keys, name)]
    }
    assert {name for name in names if name} - RESERVED_IDS == set()


@clause("B-19")
async def test_b19_any_text_of_a_handler_is_written(site: Site) -> None:
    await site.add(attempts=2)
    job, token = await site.take()
    assert await site.admin.set_progress("1", "5", "half \ud800 " + "x" * 99_999) is None
    assert await site.admin.add_log("1", "half \udcff") == 2
    odd = FailedAttempt("half \ud800", "half \udfff\n" + "x" * 100_000)
    await site.consumer.retry(job, token, odd)
    job, token = await site.take()
    await site.consumer.fail(job, token, odd)
    assert site.hash("1")["failedReason"] == "half ?"
    assert [len(stack) for stack in json.loads(site.hash("1")["stacktrace"])] == [50_000, 50_000]
    assert len((await site.queue.logs("1")).lines[0]) == 65_536


@clause("B-19")
async def test_b19_the_log_of_a_job_is_bounded(site: Site) -> None:
    await site.add()
    for number in range(5):
        await site.admin.set_progress("1", "5", f"message {number}", keep_logs=2)
    assert (await site.queue.logs("1")).lines == ["message 3", "message 4"]


@clause("B-19")
async def test_b19_an_id_without_a_hash_is_dropped_and_the_next_job_runs(site: Site) -> None:
    site.raw.call("LPUSH", f"{KEY}wait", "ghost-1")
    site.raw.call("ZADD", f"{KEY}prioritized", 1, "ghost-2")
    await site.add()
    assert (await site.take())[0].id == "1"
    assert await site.consumer.take("t") == Empty(0)
    assert site.ids("active") == ["1"]
    assert site.raw.exists(f"{KEY}ghost-1", f"{KEY}ghost-2", f"{KEY}ghost-1:lock") == 0


@clause("B-19")
@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("data", "not json", "data is not JSON"),
        ("data", "NaN", "data is not JSON"),
        ("opts", "{", "opts is not a JSON object"),
        ("opts", "[]", "opts is not a JSON object"),
    ],
)
async def test_b19_a_corrupt_hash_is_taken_and_can_be_failed(
    site: Site, field: str, value: str, problem: str
) -> None:
    await site.add()
    site.raw.call("HSET", f"{KEY}1", field, value)
    job, token = await site.take()
    assert problem in job.problem
    await site.consumer.fail(job, token, FailedAttempt(job.problem))
    assert problem in site.hash("1")["failedReason"]


@clause("B-19")
@pytest.mark.parametrize(
    "field", ["progress", "delay", "priority", "timestamp", "stacktrace", "atm", "ats"]
)
async def test_b19_other_fields_may_be_anything(site: Site, field: str) -> None:
    await site.add()
    site.raw.call("HSET", f"{KEY}1", field, "25%")
    job, token = await site.take()
    assert (job.problem, job.attempts_made) == ("", 0)
    read = await site.queue.get(job.id)
    assert read is not None
    assert (read.priority, read.attempts_made, read.progress_json) == (0, 0, "0")
    await site.consumer.complete(job, token)
    assert site.ids("completed") == ["1"]


@clause("B-19")
@pytest.mark.parametrize(
    "parent",
    ["", "{", "[]", "null", '{"id": 1}', '{"queueKey": 5, "id": "p"}', '{"queueKey": "q"}'],
)
async def test_b19_a_corrupt_parent_does_not_block_the_child(site: Site, parent: str) -> None:
    await site.add(remove_on_complete=True)
    await site.add()
    for job_id in ("1", "2"):
        site.raw.call("HSET", f"{KEY}{job_id}", "parentKey", "bull:q:p", "parent", parent)
        await site.complete()
    assert site.ids("completed") == ["2"]
    assert site.raw.exists(f"{KEY}active") == 0


@clause("B-19")
@pytest.mark.parametrize("value", ["many", "nan", "inf", "1e999"])
async def test_b19_corrupt_queue_settings_do_not_stop_it(site: Site, value: str) -> None:
    for field in ("concurrency", "max", "duration"):
        site.raw.call("HSET", f"{KEY}meta", field, value)
    site.raw.call("SET", f"{KEY}limiter", value)
    await site.add()
    await site.complete()
    assert site.ids("completed") == ["1"]


@clause("B-19", "B-8")
@pytest.mark.parametrize(
    "repeat",
    [
        {"pattern": "every full moon"},
        {"pattern": "0 0 31 2 *"},
        {"pattern": "9" * 5000 + " * * * *"},
        {"pattern": "* * * * *", "tz": "Nowhere/Town"},
        {"pattern": "* * * * *", "startDate": 1e300},
        {"pattern": "* * * * * *", "startDate": 9e15},
        {"every": "often"},
        {"every": 1000, "count": "many"},
        {},
    ],
    ids=lambda repeat: str(repeat)[:40],
)
async def test_b19_a_corrupt_scheduler_does_not_block_its_job(
    site: Site, repeat: dict[str, object]
) -> None:
    job_id = f"repeat:s:{START_MS}"
    opts = json.dumps({"repeat": repeat, "repeatJobKey": "s"})
    site.raw.plain.hset(
        f"{KEY}{job_id}",
        mapping={"name": "job", "data": "{}", "opts": opts, "rjk": "s", "timestamp": START_MS},
    )
    site.raw.call("ZADD", f"{KEY}repeat", START_MS, "s")
    site.raw.call("LPUSH", f"{KEY}wait", job_id)
    assert await site.complete() == job_id


@clause("B-19")
async def test_b19_a_job_without_a_name_is_an_error(site: Site) -> None:
    site.raw.call("HSET", f"{KEY}x", "data", "{}", "opts", "{}", "timestamp", START_MS)
    site.raw.call("LPUSH", f"{KEY}wait", "x")
    answer = await site.consumer.take("t")
    assert isinstance(answer, Took)
    assert answer.job.problem == "the job has no name"


@clause("B-19")
async def test_b19_only_keys_of_the_wire_and_our_own_are_written(site: Site) -> None:
    await site.add(priority=3, delay_ms=5, attempts=2, job_id="one")
    site.later(5)
    job, token = await site.take()
    await site.admin.set_progress("one", "5", "message")
    await site.consumer.retry(job, token, FailedAttempt("no"))
    await site.complete()
    await site.consumer.check_stalled()
    known = {
        "id",
        "meta",
        "events",
        "one",
        "one:logs",
        "completed",
        "marker",
        "pc",
        "stalled-check",
    }
    found = {key.removeprefix(KEY) for key in site.raw.find("*")}
    assert {key for key in found - known if not key.startswith("jobwire:")} == set()
