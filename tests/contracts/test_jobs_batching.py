"""J-9, J-18: requests of one loop turn are sent in one call and answered separately."""

from __future__ import annotations

import asyncio
import random
from typing import cast

import pytest

from jobwire.job.errors import BackendUnavailable
from jobwire.job.messages import (
    Already,
    CancelOutcome,
    Done,
    Full,
    JobId,
    JobRequest,
    Mismatch,
    SettleAnswer,
    SubmitAnswer,
    Submitted,
)
from jobwire.systems.jobs.contract import MAX_PAYLOAD_BYTES
from jobwire.systems.jobs.scripts import SCRIPTS
from jobwire.valkey import Connection
from tests.support import clause
from tests.support.raw import Raw, Recording
from tests.support.streams import StreamsLab

QUEUE = "jobs:stream"


def made(answer: SubmitAnswer) -> JobId:
    assert isinstance(answer, Submitted)
    return answer.job_id


@clause("J-9", "J-10", "J-18")
async def test_j18_submissions_of_one_loop_turn_are_one_call(lab: StreamsLab, raw: Raw) -> None:
    requests = [
        JobRequest("echo", f'{{"n":{number}}}', ttl_s=600 + number % 2) for number in range(250)
    ]
    with Recording(raw) as seen:
        answers = await asyncio.gather(*(lab.queue.submit(request) for request in requests))
    assert seen.scripts == 3, "a hundred at a time"
    entries = raw.entries(QUEUE)
    assert [fields["payload"] for _, fields in entries] == [
        request.payload_json for request in requests
    ]
    for answer, request, (entry, fields) in zip(answers, requests, entries, strict=True):
        job_id = made(answer)
        created = str(answer.created_ms) if isinstance(answer, Submitted) else ""
        assert fields == {"job_id": job_id, "task": "echo", "payload": request.payload_json}
        assert raw.fields(f"job:{job_id}") == {
            "job_id": job_id,
            "task": "echo",
            "payload": request.payload_json,
            "status": "queued",
            "created_ts": created,
            "updated_ts": created,
            "ttl_s": str(request.ttl_s),
            "result": "",
            "error": "",
            "entry_id": entry,
        }
        ((_, event),) = raw.entries(f"job:{job_id}:events")
        assert event == {"type": "queued", "ts": created, "step": "gateway.enqueue", "data": "{}"}
        for key in (f"job:{job_id}", f"job:{job_id}:events"):
            expires_s = cast(int, raw.call("EXPIRETIME", key))
            assert expires_s - int(created) // 1000 - (request.ttl_s or 0) in (0, 1)
    jobs = {made(answer) for answer in answers}
    assert set(raw.members("jobs:open")) == set(raw.members("jobs:index")) == jobs
    # The calls may lie on both sides of a full minute.
    counted = [int(raw.field(key, "submissions") or 0) for key in raw.find("jobs:stats:*")]
    assert sum(counted) == 250


@clause("J-9", "J-11", "J-12")
async def test_j11_each_submission_of_a_batch_is_answered_separately(
    connection: Connection, raw: Raw
) -> None:
    async with StreamsLab(connection, max_queue=5) as lab:
        raw.call("HSET", "idempotency:corrupt", "not", "a string")
        raw.expire("idempotency:corrupt", 60)
        requests = [
            JobRequest("echo", "{}", idempotency_key="k", fingerprint="a"),
            JobRequest("echo", "{}", idempotency_key="k", fingerprint="a"),
            JobRequest("echo", "{}", idempotency_key="k", fingerprint="b"),
            JobRequest("echo", "{}", idempotency_key="corrupt"),
            JobRequest("echo", "{}", delay_s=600),
            JobRequest("echo", "{}", tenant="acme"),
            JobRequest("echo", "{}", job_id=JobId("given")),
            JobRequest("echo", "{}", job_id=JobId("given")),
            JobRequest("echo", "{}"),
            JobRequest("echo", "{}"),
        ]
        with Recording(raw) as seen:
            submissions = [lab.queue.submit(request) for request in requests]
            answers_or_errors = await asyncio.gather(*submissions, return_exceptions=True)
        assert seen.scripts == 1
        first, again, other, broken, later, acme, given, twice, last, full = answers_or_errors
        assert isinstance(first, Submitted)
        assert (again, other) == (Already(first.job_id), Mismatch(first.job_id))
        assert isinstance(broken, BackendUnavailable)
        assert "WRONGTYPE" in broken.detail
        assert isinstance(later, Submitted)
        assert isinstance(acme, Submitted)
        assert isinstance(given, Submitted)
        assert twice == given
        assert isinstance(last, Submitted)
        assert full == Full(5)
        assert raw.members("jobs:delayed") == [later.job_id]
        assert raw.field(f"job:{later.job_id}", "entry_id") is None
        assert raw.members("jobs:index:acme") == [acme.job_id]
        for entry, fields in raw.entries(QUEUE):
            assert raw.field(f"job:{fields['job_id']}", "entry_id") == entry
        assert raw.length(QUEUE) == 4


@clause("J-9")
async def test_j09_later_calls_do_not_overtake_a_submission(lab: StreamsLab) -> None:
    # As jobwire programs do: a script that is not loaded yet when it is run may be overtaken.
    await lab.connection.load_scripts(SCRIPTS.values())
    job_id = JobId("given")
    submitted = lab.queue.submit(JobRequest("echo", "{}", job_id=job_id))
    found, canceled = lab.queue.record(job_id), lab.queue.cancel(job_id)
    assert await found is not None
    assert await canceled is CancelOutcome.CANCELED
    assert made(await submitted) == job_id


@clause("J-9")
async def test_j09_a_cancelled_caller_does_not_shift_other_answers(lab: StreamsLab) -> None:
    async def submit(number: int) -> SubmitAnswer:
        return await lab.queue.submit(JobRequest("echo", "{}", job_id=JobId(f"job-{number}")))

    tasks = [asyncio.create_task(submit(number)) for number in range(9)]
    await asyncio.sleep(0)
    for task in tasks[::3]:
        task.cancel()
    answers_or_errors = await asyncio.gather(*tasks, return_exceptions=True)
    stayed = [made(one) for one in answers_or_errors if not isinstance(one, BaseException)]
    assert stayed == [f"job-{number}" for number in range(9) if number % 3]


@clause("J-9")
async def test_j09_an_unencodable_submission_fails_only_its_caller(lab: StreamsLab) -> None:
    tasks = ["echo", "half a character: \ud800", "echo"]
    submissions = [lab.queue.submit(JobRequest(task, "{}")) for task in tasks]
    first, half, last = await asyncio.gather(*submissions, return_exceptions=True)
    assert isinstance(half, UnicodeEncodeError)
    assert isinstance(first, Submitted)
    assert isinstance(last, Submitted)


@clause("J-8", "J-9")
async def test_j09_large_payloads_are_sent_in_smaller_batches(lab: StreamsLab, raw: Raw) -> None:
    large = '{"a":"' + "x" * (MAX_PAYLOAD_BYTES - 8) + '"}'
    with Recording(raw) as seen:
        answers = await lab.queue.submit_many([JobRequest("echo", large)] * 6)
    assert seen.scripts == 3
    assert raw.length(QUEUE) == len({made(answer) for answer in answers}) == 6


@clause("J-33", "J-9")
@pytest.mark.parametrize("count", [3, 4, 60])
async def test_j33_each_job_of_a_batch_is_fenced_separately(
    lab: StreamsLab, raw: Raw, count: int
) -> None:
    """In any order of their ends, and with older and younger jobs still leased."""
    worker, other = await lab.worker(), await lab.worker()
    for _ in range(count + 40):
        await lab.queue.submit(JobRequest("echo", "{}"))
    leased = await worker.take(count + 40)
    batch = leased[20 : 20 + count]
    random.Random(count).shuffle(batch)
    theirs, ours, acked = batch[0], batch[1], batch[2]
    raw.call("XCLAIM", QUEUE, "workers", "foreign", 0, str(theirs.wire), "JUSTID")
    raw.call("XCLAIM", QUEUE, "workers", other.consumer, 0, str(ours.wire), "JUSTID")
    raw.call("XACK", QUEUE, "workers", str(acked.wire))
    settled = await worker.settle([(one, Done("1")) for one in batch], 0)
    assert settled.answers == [SettleAnswer.LOST] * 3 + [SettleAnswer.SETTLED] * (count - 3)
    for one in (theirs, ours, acked):
        assert raw.field(f"job:{one.job.id}", "status") == "running"
    rest = leased[:20] + leased[20 + count :]
    last = await worker.settle([(one, Done("1")) for one in rest], 0)
    assert set(last.answers) == {SettleAnswer.SETTLED}
