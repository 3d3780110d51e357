"""Programs written from the published contract alone replace either side, mixed with ours."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from jobwire.job.messages import (
    Already,
    CancelOutcome,
    Done,
    JobId,
    JobRequest,
    SettleAnswer,
    Submitted,
)
from jobwire.local import LocalValkey
from jobwire.valkey import Connection
from tests.interop.streams_site import ENDS, node_gateway, node_worker, our_worker
from tests.support import Plain, clause, wait_until
from tests.support.raw import Raw
from tests.support.streams import StreamsLab

QUEUE = "jobs:stream"


@pytest.fixture
def raw(plain: Plain) -> Raw:
    return Raw(plain)


@pytest_asyncio.fixture
async def lab(connection: Connection) -> AsyncIterator[StreamsLab]:
    async with StreamsLab(connection) as opened:
        yield opened


async def submit(lab: StreamsLab, payload: dict[str, object], task: str = "echo") -> JobId:
    answer = await lab.queue.submit(JobRequest(task, json.dumps(payload), ttl_s=600))
    assert isinstance(answer, Submitted)
    return answer.job_id


async def ended(raw: Raw, *job_ids: str, timeout_s: float = 60) -> None:
    def all_ended() -> bool:
        # They write the state first and the event in another step.
        return all(
            raw.field(f"job:{job_id}", "status") in ENDS and kinds(raw, job_id)[-1] in ENDS
            for job_id in job_ids
        )

    await wait_until(all_ended, "all jobs to end", timeout_s=timeout_s)


def kinds(raw: Raw, job_id: str) -> list[str]:
    return [event["type"] for _, event in raw.entries(f"job:{job_id}:events")]


@clause("J-39")
async def test_a_foreign_gateway_with_our_worker(
    valkey: LocalValkey, lab: StreamsLab, raw: Raw
) -> None:
    async with node_gateway(valkey) as gateway, our_worker(lab):
        good, bad = await gateway.submit({"n": 1}), await gateway.submit({"fail": True})
        assert await gateway.watch(good) == [
            ("hello", {}),
            ("queued", {}),
            ("running", {"attempt": 1}),
            ("progress", {"percent": 50, "message": "half"}),
            ("done", {}),
        ]
        job = await gateway.job(good)
        assert (job["status"], job["error"]) == ("done", None)
        assert job["result"] == {"by": "python", "echo": {"n": 1}}
        assert [kind for kind, _ in await gateway.watch(bad)][-1] == "error"
        job = await gateway.job(bad)
        assert (job["status"], job["result"]) == ("error", None)
        assert job["error"]["code"] == "handler_error"
        assert 0 < raw.ttl_s(f"job:{good}") <= 600
        await wait_until(lab.at_rest)


@clause("J-39")
async def test_our_gateway_with_a_foreign_worker(
    valkey: LocalValkey, lab: StreamsLab, raw: Raw
) -> None:
    with node_worker(valkey, "node-1"):
        good, bad = await submit(lab, {"n": 1}), await submit(lab, {"fail": True})
        await ended(raw, good, bad)
        # Their steps are separate commands: the acknowledgement is the last.
        await wait_until(lambda: raw.pending(QUEUE) == {}, "the acks")
        record = await lab.queue.record(good)
        assert record is not None
        assert json.loads(record.result_json) == {"by": "node-1", "echo": {"n": 1}}
        assert kinds(raw, good) == ["queued", "running", "done"]
        assert kinds(raw, bad) == ["queued", "running", "error"]
        assert raw.length(QUEUE) == 2, "the published contract deletes no entry"
        await lab.sweep()
        assert await lab.at_rest()


@clause("J-39")
async def test_two_gateways_and_three_workers_of_both_kinds(
    valkey: LocalValkey, lab: StreamsLab, raw: Raw
) -> None:
    """Two gateways, three workers, jobs of both kinds: each job runs once, on any worker."""
    async with node_gateway(valkey) as gateway, our_worker(lab):
        with node_worker(valkey, "node-1"), node_worker(valkey, "node-2"):
            batches = [
                [await gateway.submit({"n": n, "sleep_ms": 2}), await submit(lab, {"n": n})]
                for n in range(60)
            ]
            job_ids = [job_id for batch in batches for job_id in batch]
            await ended(raw, *job_ids)
            by: Counter[str] = Counter()
            for job_id in job_ids:
                found = raw.fields(f"job:{job_id}")
                by[json.loads(found["result"])["by"]] += 1
                steps = [kind for kind in kinds(raw, job_id) if kind != "progress"]
                assert steps == ["queued", "running", "done"]
            assert by.total() == 120
            assert by["python"]
            assert by["node-1"] + by["node-2"]
            await wait_until(lambda: raw.pending(QUEUE) == {}, "the acks")
        await wait_until(lab.at_rest, "maintenance to clean up after them")


@clause("J-34", "J-39")
async def test_our_worker_reclaims_the_job_of_a_dead_foreign_worker(
    valkey: LocalValkey, connection: Connection, raw: Raw
) -> None:
    # Which is silent for as long as no live one is in this test.
    async with (
        StreamsLab(connection, foreign_idle_s=1.0) as lab,
        node_gateway(valkey) as gateway,
    ):
        with node_worker(valkey, "node-1") as doomed:
            job_id = await gateway.submit({"sleep_ms": 600_000})
            doomed.wait_for_line(f"started {job_id}")
            raw.call("HSET", f"job:{job_id}", "payload", "{}")  # the entry's payload is used
            doomed.kill()
        entry = next(iter(raw.pending(QUEUE)))
        async with our_worker(lab) as worker:
            await wait_until(
                lambda: raw.pending(QUEUE).get(entry) == worker.consumer, "the reclaim"
            )
            found = raw.fields(f"job:{job_id}")
            assert (found["status"], found["deliveries"]) == ("running", "1")
            assert await lab.queue.cancel(JobId(job_id)) is CancelOutcome.REQUESTED
            await ended(raw, job_id)
        assert kinds(raw, job_id).count("running") == 2
        assert kinds(raw, job_id)[-1] == "canceled"
        assert await lab.at_rest()


@clause("J-33", "J-34", "J-39")
async def test_a_foreign_worker_gets_the_job_of_our_dead_worker(
    valkey: LocalValkey, lab: StreamsLab, raw: Raw
) -> None:
    """Foreign workers never claim: maintenance of any jobwire process requeues the job."""
    silent = await lab.worker()
    job_id = await submit(lab, {"n": 1})
    (leased,) = await silent.take(1)
    with node_worker(valkey, "node-1"):
        await lab.silence(silent)
        await lab.sweep()
        await ended(raw, job_id)
        settled = await silent.settle([(leased, Done('"zombie"'))], 0)
        assert settled.answers == [SettleAnswer.ALREADY]
        found = raw.fields(f"job:{job_id}")
        assert json.loads(found["result"])["by"] == "node-1"
        assert kinds(raw, job_id) == ["queued", "running", "queued", "running", "done"]
        await wait_until(lambda: raw.pending(QUEUE) == {}, "the ack")
    await lab.sweep()
    assert await lab.at_rest()


@clause("J-16", "J-39")
async def test_a_cancel_does_not_stop_a_foreign_worker(
    valkey: LocalValkey, lab: StreamsLab, raw: Raw
) -> None:
    with node_worker(valkey, "node-1") as worker:
        running, waiting = await submit(lab, {"sleep_ms": 300}), await submit(lab, {"n": 1})
        worker.wait_for_line(f"started {running}")
        assert await lab.queue.cancel(running) is CancelOutcome.REQUESTED_FOREIGN
        assert await lab.queue.cancel(waiting) is CancelOutcome.CANCELED
        worker.wait_for_line(f"ended {running}")
        assert kinds(raw, running) == ["queued", "running", "done"]
        assert kinds(raw, waiting) == ["queued", "canceled"], "it never reached them"


@clause("J-37", "J-39")
@pytest.mark.timeout(180)
async def test_a_task_that_only_a_foreign_worker_has_is_run_there(
    valkey: LocalValkey, lab: StreamsLab, raw: Raw
) -> None:
    async with our_worker(lab):
        with node_worker(valkey, "node-1"):
            job_ids = [await submit(lab, {"n": n}, task="embed") for n in range(2)]
            # Which worker reads it next is random, and the delay grows each time.
            await ended(raw, *job_ids, timeout_s=110)
            for job_id in job_ids:
                assert kinds(raw, job_id) == ["queued", "running", "done"], (
                    "our worker has not changed it"
                )
                assert "deliveries" not in raw.fields(f"job:{job_id}")


@clause("J-11", "J-39")
async def test_idempotency_keys_are_shared_with_foreign_gateways(
    valkey: LocalValkey, lab: StreamsLab
) -> None:
    async with node_gateway(valkey) as gateway:
        theirs = await gateway.submit({"n": 1}, key="one")
        again = await lab.queue.submit(JobRequest("echo", '{"n":1}', idempotency_key="one"))
        assert again == Already(JobId(theirs))
        ours = await lab.queue.submit(JobRequest("echo", '{"n":2}', idempotency_key="two"))
        assert isinstance(ours, Submitted)
        assert await gateway.submit({"n": 2}, key="two") == ours.job_id


@clause("J-7", "J-39")
async def test_the_ttl_of_waiting_foreign_jobs_is_renewed(
    valkey: LocalValkey, lab: StreamsLab, raw: Raw
) -> None:
    async with node_gateway(valkey) as gateway:
        job_id = await gateway.submit({"n": 1}, ttl_s=2)
        keys = (f"job:{job_id}", f"job:{job_id}:events")
        until_ms = raw.now_ms() + 5_000

        async def time_is_up() -> bool:
            await lab.sweep()
            assert raw.exists(*keys) == 2
            return raw.now_ms() > until_ms

        await wait_until(time_is_up, "the job to outlive its TTL twice")
