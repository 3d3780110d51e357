"""J-1, J-2, J-3, J-8: keys, entry and hash, read back with a plain client and compared whole."""

from __future__ import annotations

from typing import cast

from jobwire.job.messages import (
    Done,
    JobError,
    Released,
    Report,
    RetryLater,
)
from jobwire.systems.jobs import contract
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.valkey import Connection
from tests.support import clause, wait_until
from tests.support.raw import Raw
from tests.support.streams import StreamsLab

PAYLOAD = '{"prompt": "a tiny story",  "n": 12345678901234567890123}'
TRANSIENT = JobError("handler_error", "the handler failed", retryable=True)


def without_times(raw: Raw, job_id: str) -> dict[str, str]:
    """The whole hash without its times, which are checked separately."""
    found = raw.fields(f"job:{job_id}")
    started = "started_ts" in found
    assert started == ("deliveries" in found), "a started job has its start time"
    for name in ("created_ts", "updated_ts", *(("started_ts",) if started else ())):
        assert len(found.pop(name)) == 13
    return found


# ── J-1 ──────────────────────────────────────────────────────────────────────────────────────────


@clause("J-1")
async def test_j01_the_keys_of_a_whole_lifecycle_are_declared(lab: StreamsLab, raw: Raw) -> None:
    worker, leased = await lab.start(idempotency_key="once", tenant="acme")
    delayed = await lab.submit(delay_s=600)
    await worker.report([(leased, Report("progress", '{"percent":5}'))])
    await worker.settle([(leased, Done("1"))], 0)
    await lab.sweep()

    name = contract.idempotency_name("acme", "once")
    assert name.startswith("jobs:idempotency:acme:"), "a space of its own"
    minutes = raw.find("jobs:stats:*")
    assert minutes
    guards = {f"jobs:guard:{task.name}" for task in lab.sweeper.maintenance()} - {
        "jobs:guard:promote"
    }
    known = {
        "jobs:stream": "stream",
        f"job:{leased.job.id}": "hash",
        f"job:{leased.job.id}:events": "stream",
        f"job:{delayed}": "hash",
        f"job:{delayed}:events": "stream",
        name: "string",
        "jobs:delayed": "zset",
        "jobs:open": "zset",
        "jobs:index": "zset",
        "jobs:index:acme": "zset",
        "jobs:tenants": "zset",
        f"jobs:worker:{worker.consumer}": "hash",
        "jobs:tasks": "hash",
        "jobs:clock": "string",
        **dict.fromkeys(minutes, "hash"),
        "jobs:guard:outage": "hash",
        **dict.fromkeys(guards, "string"),
    }
    # A guard may have expired by now; nothing else may be missing, and nothing may be new.
    found = {key: kind for key in raw.find() if (kind := raw.kind(key)) != "none"}
    assert {key: kind for key, kind in known.items() if key in found or key not in guards} == found
    await lab.queue.cancel(delayed)


@clause("J-1")
async def test_j01_the_prefix_precedes_every_key(connection: Connection, raw: Raw) -> None:
    async with StreamsLab(connection, key_prefix="team{7}:") as lab:
        worker, leased = await lab.start(idempotency_key="once", tenant="acme")
        await lab.submit(delay_s=600)
        await worker.settle([(leased, Done("1"))], 0)
        await lab.sweep()
        assert raw.find()
        assert [key for key in raw.find() if not key.startswith("team{7}:")] == []


@clause("J-1")
async def test_j01_keys_without_a_lifetime_are_the_permanent_ones(
    lab: StreamsLab, raw: Raw
) -> None:
    worker, leased = await lab.start(idempotency_key="once", tenant="acme")
    await lab.submit(delay_s=600)
    await worker.report([(leased, Report("log", "1"))])
    await lab.sweep()
    lasting = {key for key in raw.find() if raw.ttl_s(key) == -1}
    assert lasting == {
        "jobs:stream",
        "jobs:delayed",
        "jobs:open",
        "jobs:tasks",
        "jobs:tenants",
        "jobs:index",
        "jobs:index:acme",
    }
    keys = StreamsKeys()
    assert set(contract.PERMANENT) == {
        keys.shards,
        keys.queue,
        keys.named_queue("*"),
        keys.queues,
        keys.paused,
        keys.delayed,
        keys.suspended,
        keys.open,
        keys.tasks,
        keys.tenants,
        keys.index(),
        keys.index("*"),
    }
    await worker.settle([(leased, Done("1"))], 0)


# ── J-2, J-3 ─────────────────────────────────────────────────────────────────────────────────────


@clause("J-2")
async def test_j02_a_queue_entry_has_exactly_three_fields(lab: StreamsLab, raw: Raw) -> None:
    job_id = await lab.submit(
        PAYLOAD, tenant="acme", max_attempts=3, timeout_s=7.5, traceparent="00-abc"
    )
    ((_, fields),) = raw.entries("jobs:stream")
    assert fields == {"job_id": job_id, "task": "echo", "payload": PAYLOAD}


@clause("J-2")
async def test_j02_a_requeued_entry_has_the_same_fields(lab: StreamsLab, raw: Raw) -> None:
    """After a retry, a release and a delay, too."""
    worker, leased = await lab.start(payload_json=PAYLOAD)
    wanted = {"job_id": leased.job.id, "task": "echo", "payload": PAYLOAD}
    await worker.settle([(leased, RetryLater(0, TRANSIENT))], 0)
    (again,) = await worker.take(1)
    await worker.settle([(again, Released())], 0)
    assert [fields for _, fields in raw.entries("jobs:stream")] == [wanted]
    (third,) = await worker.take(1)
    await worker.settle([(third, RetryLater(0.001, TRANSIENT))], 0)
    await wait_until(lambda: lab.maintain("promote"), "the job to be due")
    assert [fields for _, fields in raw.entries("jobs:stream")] == [wanted]


@clause("J-3")
async def test_j03_the_hash_of_a_job_through_its_lifecycle(lab: StreamsLab, raw: Raw) -> None:
    worker = await lab.worker()
    job_id = await lab.submit(PAYLOAD, ttl_s=600)
    source = {"job_id": job_id, "task": "echo", "payload": PAYLOAD, "ttl_s": "600"}
    ((entry, _),) = raw.entries("jobs:stream")
    created = raw.field(f"job:{job_id}", "created_ts")
    assert without_times(raw, job_id) == {
        **source,
        "status": "queued",
        "result": "",
        "error": "",
        "entry_id": entry,
    }

    (leased,) = await worker.take(1)
    ours = {
        "owner": leased.token,
        "worker": worker.consumer,
        "deliveries": "1",
        "entry_id": entry,
    }
    assert without_times(raw, job_id) == {
        **source,
        **ours,
        "status": "running",
        "result": "",
        "error": "",
    }

    await worker.settle([(leased, Done('{"text": "once"}'))], 0)
    assert without_times(raw, job_id) == {
        **source,
        **ours,
        "owner": f"{leased.token}!",
        "status": "done",
        "result": '{"text": "once"}',
        "error": "",
    }
    assert raw.field(f"job:{job_id}", "created_ts") == created


@clause("J-3")
async def test_j03_extra_fields_are_written_only_when_set(lab: StreamsLab, raw: Raw) -> None:
    job_id = await lab.submit(
        max_attempts=3,
        timeout_s=7.5,
        idempotency_key="once",
        fingerprint="f00",
        tenant="acme",
        traceparent="00-abc",
        retry_of="another",
    )
    found = without_times(raw, job_id)
    extras = {name: value for name, value in found.items() if name in set(contract.Extra)}
    assert extras == {
        "max_attempts": "3",
        "timeout_s": "7.5",
        "idempotency_key": contract.idempotency_name("acme", "once"),
        "fingerprint": "f00",
        "tenant": "acme",
        "traceparent": "00-abc",
        "retry_of": "another",
        "entry_id": raw.entries("jobs:stream")[0][0],
    }
    assert set(found) - set(extras) == set(contract.Field) - {"created_ts", "updated_ts"}

    worker = await lab.worker()
    (leased,) = await worker.take(1)
    assert (leased.policy.max_attempts, leased.policy.timeout_s) == (3, 7.5)
    assert (leased.job.tenant, leased.job.traceparent) == ("acme", "00-abc")
    await worker.settle([(leased, RetryLater(60, TRANSIENT))], 0)
    found = without_times(raw, job_id)
    assert (found["attempt"], found["deliveries"], found["status"]) == ("2", "1", "queued")
    assert "entry_id" not in found, "it is in jobs:delayed and has no entry"
    assert set(found) <= set(contract.Field) | set(contract.Extra)


@clause("J-3", "J-39")
async def test_j03_a_job_without_extra_fields_runs(lab: StreamsLab, raw: Raw) -> None:
    """As a gateway writes it that implements the published contract only."""
    worker = await lab.worker()
    raw.write("job:foreign", foreign_hash("foreign"))
    entry = raw.add("jobs:stream", {"task": "echo", "payload": '{"a":1}', "job_id": "foreign"})
    (leased,) = await worker.take(1)
    assert leased.job.payload == {"a": 1}
    assert (leased.job.attempt, leased.job.deliveries) == (1, 1)
    assert (leased.policy.max_attempts, leased.policy.timeout_s) == (None, None)
    assert raw.field("job:foreign", "entry_id") == entry
    await worker.settle([(leased, Done("1"))], 0)
    assert raw.field("job:foreign", "status") == "done"


def foreign_hash(job_id: str, **fields: str) -> dict[str, str]:
    return {
        "job_id": job_id,
        "task": "echo",
        "payload": '{"a":1}',
        "status": "queued",
        "created_ts": "1700000000000",
        "updated_ts": "1700000000000",
        "ttl_s": "600",
        "result": "",
        "error": "",
        **fields,
    }


# ── J-8 ──────────────────────────────────────────────────────────────────────────────────────────


@clause("J-8")
async def test_j08_a_payload_is_stored_byte_for_byte_on_the_wire(lab: StreamsLab, raw: Raw) -> None:
    text = '{ "big":123456789012345678901234567890,"f": 1.10e5 , "ü":"\\u00fc", "z":[]}'
    worker, leased = await lab.start(payload_json=text)
    assert raw.field(f"job:{leased.job.id}", "payload") == text
    assert cast("dict[str, object]", leased.job.payload)["big"] == 123456789012345678901234567890
    await worker.settle([(leased, Released())], 0)
    assert raw.entries("jobs:stream")[0][1]["payload"] == text
