"""J-10, J-11, J-12, J-16: a producer's part of the contract, below HTTP."""

from __future__ import annotations

import asyncio
import json

import pytest

from jobwire.job.errors import RefusedError
from jobwire.job.messages import (
    Already,
    Canceled,
    CancelOutcome,
    Done,
    Full,
    JobId,
    JobRequest,
    Mismatch,
    Released,
    Submitted,
)
from jobwire.systems.jobs import contract
from jobwire.systems.jobs.payload import check_payload
from jobwire.valkey import Connection
from tests.support import clause, wait_until
from tests.support.raw import Raw, Recording
from tests.support.streams import StreamsLab

QUEUE = "jobs:stream"


# ── J-8 ──────────────────────────────────────────────────────────────────────────────────────────

HALF = "\\ud800"


@clause("J-8")
@pytest.mark.parametrize(
    "text",
    [
        "{}",
        ' {"a" : [1, 2.5, true, null, "ü"]} ',
        '{"big":' + "9" * 4300 + "}",
        '{"big":-' + "9" * 4300 + "}",
        '{"big":"' + "9" * 6000 + '"}',
        '{"large":1.7e308}',
        '{"tiny":1e-999}',
        '{"emoji":"\\ud83d\\ude00"}',
        '{"a":' * 63 + "{}" + "}" * 63,
        '{"a":"' + "[" * 100 + '"}',
        '{"a":"' + "x" * (contract.MAX_PAYLOAD_BYTES - 8) + '"}',
        '{"a":{"b":1},"c":{"b":2}}',
    ],
)
def test_j08_valid_payloads(text: str) -> None:
    check_payload(text)


@clause("J-8")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("[]", "must be an object"),
        ('"text"', "must be an object"),
        ("{'a':1}", "double quotes"),
        ('{"a":NaN}', "NaN is not JSON"),
        ('{"a":-Infinity}', "-Infinity is not JSON"),
        ('{"a":1e400}', "1e400 is out of range"),
        ('{"a":[-1e400]}', "-1e400 is out of range"),
        ('{"a":' + "9" * 400 + ".0}", "is out of range"),
        ('{"a":' + "9" * 6000 + "}", "an integer has 6000 digits"),
        ('{"a":1,"b":{"x":1,"x":2}}', "'x' is repeated"),
        ('{"a":"' + HALF + '"}', "surrogate"),
        ('{"' + HALF + '":1}', "surrogate"),
        ('{"a":' * 64 + "{}" + "}" * 64, "deeper than 64"),
        ('{"a":' + "[" * 50_000 + "]" * 50_000 + "}", "deeper than 64"),
        ('{"a":"\ud800"}', "not valid UTF-8"),
        ('{"a":1} x', "Extra data"),
        ('{"a":"\x01"}', "control character"),
    ],
)
def test_j08_an_invalid_payload_is_refused_with_one_line(text: str, why: str) -> None:
    with pytest.raises(RefusedError) as refused:
        check_payload(text)
    assert why in refused.value.message
    assert "\n" not in refused.value.message
    assert (refused.value.code, refused.value.status) == ("invalid_payload", 422)


@clause("J-8")
@pytest.mark.parametrize("fill", ["x", "é", "\U0001f600"])
def test_j08_size_is_counted_in_bytes(fill: str) -> None:
    count = (contract.MAX_PAYLOAD_BYTES - 8) // len(fill.encode()) + 1
    with pytest.raises(RefusedError) as refused:
        check_payload('{"a":"' + fill * count + '"}')
    assert (refused.value.code, refused.value.status) == ("payload_too_large", 413)


# ── J-10 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-10")
async def test_j10_hash_event_and_entry_are_written_in_this_order_by_one_script(
    lab: StreamsLab, raw: Raw
) -> None:
    await lab.submit()
    with Recording(raw) as seen:
        job_id = await lab.submit()
    job, events = f"job:{job_id}", f"job:{job_id}:events"
    steps = [command.split(" ")[:2] for command in seen.on(QUEUE, "jobs:delayed", job, events)]
    assert steps == [
        ["XLEN", QUEUE],
        ["ZCARD", "jobs:delayed"],
        ["HSET", job],
        ["PEXPIREAT", job],
        ["XADD", events],
        ["PEXPIREAT", events],
        ["XADD", QUEUE],
        ["HSET", job],
    ]
    assert seen.scripts == 1
    event = raw.last(events)
    assert (event["type"], event["step"], event["data"]) == ("queued", "gateway.enqueue", "{}")


@clause("J-10")
async def test_j10_a_delayed_job_waits_for_its_time(lab: StreamsLab, raw: Raw) -> None:
    worker = await lab.worker()
    before = raw.now_ms()
    job_id = await lab.submit(delay_s=0.25)
    assert raw.length(QUEUE) == 0
    due = raw.plain.zscore("jobs:delayed", job_id)
    assert due is not None
    assert before + 250 <= float(due) <= raw.now_ms() + 250
    assert raw.field(f"job:{job_id}", "status") == "queued"
    await wait_until(lambda: lab.maintain("promote"), "the job to be due")
    assert raw.now_ms() >= float(due)
    (leased,) = await worker.take(1)
    assert leased.job.id == job_id
    await worker.settle([(leased, Done("1"))], 0)


# ── J-11 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-11")
async def test_j11_fifty_racing_requests_with_one_key_make_one_job(
    lab: StreamsLab, raw: Raw
) -> None:
    requests = [
        JobRequest("echo", "{}", idempotency_key="once", fingerprint="f") for _ in range(50)
    ]
    answers = await asyncio.gather(*(lab.queue.submit(request) for request in requests))
    made = [answer for answer in answers if isinstance(answer, Submitted)]
    again = [answer for answer in answers if isinstance(answer, Already)]
    assert (len(made), len(again)) == (1, 49)
    assert {answer.job_id for answer in again} == {made[0].job_id}
    assert raw.length(QUEUE) == 1
    assert raw.call("GET", "idempotency:once") == made[0].job_id
    assert 0 < raw.ttl_s("idempotency:once") <= contract.DEFAULT_TTL_S


@clause("J-11")
async def test_j11_the_same_key_with_another_body_is_a_conflict(lab: StreamsLab) -> None:
    first = await lab.submit(idempotency_key="once", fingerprint="f")
    other = JobRequest("echo", "{}", idempotency_key="once", fingerprint="g")
    assert await lab.queue.submit(other) == Mismatch(first)


@clause("J-11")
async def test_j11_a_first_job_without_a_fingerprint_counts_as_the_same(
    lab: StreamsLab, raw: Raw
) -> None:
    """As a foreign gateway writes it: with an idempotency key and without a fingerprint."""
    raw.write("job:theirs", {"job_id": "theirs", "status": "queued", "ttl_s": "600"})
    raw.call("SET", "idempotency:once", "theirs", "EX", 600)
    request = JobRequest("echo", "{}", idempotency_key="once", fingerprint="g")
    assert await lab.queue.submit(request) == Already(JobId("theirs"))


@clause("J-11")
async def test_j11_a_key_of_an_expired_job_creates_a_new_job(lab: StreamsLab, raw: Raw) -> None:
    first = await lab.submit(idempotency_key="once")
    raw.delete(f"job:{first}")
    second = await lab.submit(idempotency_key="once")
    assert second != first
    assert raw.call("GET", "idempotency:once") == second


@clause("J-11")
async def test_j11_keys_of_another_tenant_are_not_found(lab: StreamsLab) -> None:
    names = {
        contract.idempotency_name(tenant, key)
        for tenant, key in (("", "k"), ("a", "k"), ("b", "k"), ("a", "b\0k"), ("a\0b", "k"))
    }
    assert len(names) == 5
    jobs = {await lab.submit(idempotency_key="k", tenant=tenant) for tenant in ("", "a", "b")}
    assert len(jobs) == 3


# ── J-12 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-12")
async def test_j12_a_full_queue_refuses_and_writes_nothing(
    connection: Connection, raw: Raw
) -> None:
    async with StreamsLab(connection, max_queue=3) as lab:
        first = await lab.submit(idempotency_key="first")
        await lab.submit(delay_s=600)
        await lab.submit()
        keys = raw.find()
        assert await lab.queue.submit(JobRequest("echo", "{}", idempotency_key="new")) == Full(3)
        assert raw.find() == keys
        again = JobRequest("echo", "{}", idempotency_key="first")
        assert await lab.queue.submit(again) == Already(first), "a replayed request creates no job"
        await lab.queue.cancel(first)
        assert isinstance(await lab.queue.submit(JobRequest("echo", "{}")), Submitted)


# ── J-16 ─────────────────────────────────────────────────────────────────────────────────────────


@clause("J-16")
@pytest.mark.parametrize("delay_s", [0, 600])
async def test_j16_a_waiting_job_ends_at_once_and_leaves_the_queue(
    lab: StreamsLab, raw: Raw, delay_s: float
) -> None:
    job_id = await lab.submit(delay_s=delay_s)
    assert await lab.queue.cancel(job_id) is CancelOutcome.CANCELED
    found = raw.fields(f"job:{job_id}")
    assert found["status"] == "canceled"
    assert json.loads(found["error"]) == {
        "code": "canceled",
        "message": "canceled on request",
        "retryable": False,
        "attempt": 1,
    }
    event = raw.last(f"job:{job_id}:events")
    assert (event["type"], event["step"]) == ("canceled", "gateway.cancel")
    assert event["data"] == found["error"]
    assert raw.length(QUEUE) == 0
    assert raw.members("jobs:delayed") == []
    assert await lab.queue.cancel(job_id) is CancelOutcome.FINISHED


@clause("J-16")
async def test_j16_a_prefetched_job_can_still_be_canceled(lab: StreamsLab, raw: Raw) -> None:
    worker = await lab.worker()
    job_id = await lab.submit()
    raw.call("SCRIPT", "FLUSH")  # so that the wait fetches it and cannot start it
    assert await worker.wait(30)
    assert await lab.queue.cancel(job_id) is CancelOutcome.CANCELED
    assert await worker.take(1) == []
    assert await lab.at_rest()


@clause("J-16")
async def test_j16_a_running_jobs_worker_gets_the_cancel_with_its_token(
    lab: StreamsLab, raw: Raw
) -> None:
    worker = await lab.worker()
    job_id = await lab.submit()
    (leased,) = await worker.take(1)
    with Recording(raw) as seen:
        assert await lab.queue.cancel(job_id) is CancelOutcome.REQUESTED
    assert seen.on("jobs:control") == [f"PUBLISH jobs:control {leased.token}"]
    first = raw.field(f"job:{job_id}", "cancel_ts")
    assert first
    assert raw.field(f"job:{job_id}", "status") == "running"
    assert await lab.queue.cancel(job_id) is CancelOutcome.REQUESTED
    assert raw.field(f"job:{job_id}", "cancel_ts") == first
    await worker.settle([(leased, Canceled())], 0)
    assert await lab.queue.cancel(job_id) is CancelOutcome.FINISHED


@clause("J-16")
@pytest.mark.parametrize("status", ["queued", "running"])
async def test_j16_a_foreign_workers_job_gets_a_cancel_request(
    lab: StreamsLab, raw: Raw, status: str
) -> None:
    """Also between its read of the entry and its status `running`."""
    raw.call("XGROUP", "CREATE", QUEUE, "workers", "0", "MKSTREAM")
    job_id = await lab.submit()
    assert len(raw.read(QUEUE, "foreign-1")) == 1
    raw.call("HSET", f"job:{job_id}", "status", status)
    assert await lab.queue.cancel(job_id) is CancelOutcome.REQUESTED_FOREIGN
    assert raw.field(f"job:{job_id}", "status") == status
    assert raw.last(f"job:{job_id}:events")["type"] == "queued", "no terminal event of ours"


@clause("J-16")
async def test_j16_a_foreign_gateways_job_is_ended_and_its_entry_dropped_by_take(
    lab: StreamsLab, raw: Raw
) -> None:
    worker = await lab.worker()
    fields = {"job_id": "theirs", "task": "echo", "payload": "{}"}
    raw.write("job:theirs", {**fields, "status": "queued", "ttl_s": "600"})
    raw.add(QUEUE, fields)
    assert await lab.queue.cancel(JobId("theirs")) is CancelOutcome.CANCELED
    assert raw.length(QUEUE) == 1
    assert await worker.take(1) == []
    assert raw.length(QUEUE) == 0
    assert [e["type"] for _, e in raw.entries("job:theirs:events")] == ["canceled"]


@clause("J-16")
async def test_j16_a_cancel_request_outlives_its_worker(lab: StreamsLab, raw: Raw) -> None:
    worker = await lab.worker()
    job_id = await lab.submit()
    (leased,) = await worker.take(1)
    await lab.queue.cancel(job_id)
    raw.call("XCLAIM", QUEUE, "workers", worker.consumer, 0, str(leased.wire), "IDLE", 10**9)
    assert await (await lab.worker()).take(1) == [], "another worker ends it instead of running it"
    assert raw.field(f"job:{job_id}", "status") == "canceled"
    assert (await worker.settle([(leased, Released())], 0)).leased == []
    assert await lab.at_rest()
