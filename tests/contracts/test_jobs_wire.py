"""J-1 … J-9: what is on the wire, read back with a plain client and compared whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import cast

import pytest

from jobwire.job.errors import GroundError, RefusedError
from jobwire.job.messages import (
    Canceled,
    Done,
    Failed,
    GivenBack,
    Held,
    JobError,
    JobId,
    KeepAnswer,
    Order,
    Report,
    ReportAnswer,
    SettleAnswer,
    Submitted,
    TryAgain,
)
from jobwire.valkey import Connection
from jobwire.wires.streams import contract
from jobwire.wires.streams.contract import Keys
from jobwire.wires.streams.engine import StreamsEngine
from jobwire.wires.streams.queue import StreamsQueue
from tests.raw import Raw, Recording
from tests.streams import StreamsLab
from tests.support import clause, wait_until

PAYLOAD = '{"prompt": "a tiny story",  "n": 12345678901234567890123}'
ERROR = JobError("no_such_city", "there is no city of that name")
TRANSIENT = JobError("handler_error", "the handler failed", retryable=True)


async def submit(queue: StreamsQueue, **order: object) -> JobId:
    wanted = {"task": "echo", "payload_json": PAYLOAD, **order}
    answer = await queue.submit(Order(**wanted))  # pyright: ignore[reportArgumentType] - by name
    assert isinstance(answer, Submitted)
    return answer.job_id


async def start(lab: StreamsLab, **order: object) -> tuple[StreamsEngine, Held]:
    worker = await lab.worker()
    await submit(lab.queue, **order)
    (held,) = await worker.take(1)
    return worker, held


def without_times(raw: Raw, job_id: str) -> dict[str, str]:
    """The whole hash; the server's times checked to be times, and set apart."""
    found = raw.fields(f"job:{job_id}")
    started = "started_ts" in found
    assert started == ("deliveries" in found), "a job that was started says when"
    for name in ("created_ts", "updated_ts", *(("started_ts",) if started else ())):
        assert len(found.pop(name)) == 13
    return found


# ── J-1 ──────────────────────────────────────────────────────────────────────────────────────────


@clause("J-1")
async def test_j01_the_keys_of_a_whole_life_are_the_declared_ones(
    lab: StreamsLab, raw: Raw
) -> None:
    worker, held = await start(lab, idempotency_key="once", tenant="acme")
    delayed = await submit(lab.queue, delay_s=600)
    await worker.report([(held, Report("progress", '{"percent":5}'))])
    await worker.settle([(held, Done("1"))], 0)
    await lab.sweep()

    name = contract.idempotency_name("acme", "once")
    assert len(name) == 64, "another tenant's key is hashed, so that it meets nobody else's"
    minute = next(key for key in raw.find() if key.startswith("jobs:stats:"))
    guards = {f"jobs:guard:{duty.name}" for duty in lab.sweeper.duties()} - {"jobs:guard:promote"}
    known = {
        "jobs:stream": "stream",
        f"job:{held.job.id}": "hash",
        f"job:{held.job.id}:events": "stream",
        f"job:{delayed}": "hash",
        f"job:{delayed}:events": "stream",
        f"idempotency:{name}": "string",
        "jobs:delayed": "zset",
        "jobs:open": "zset",
        "jobs:index": "zset",
        "jobs:index:acme": "zset",
        "jobs:tenants": "zset",
        f"jobs:worker:{worker.consumer}": "hash",
        minute: "hash",
        **dict.fromkeys(guards, "string"),
    }
    # A guard may have expired by now; nothing else may be missing, and nothing may be new.
    found = {key: kind for key in raw.find() if (kind := raw.kind(key)) != "none"}
    assert {key: kind for key, kind in known.items() if key in found or key not in guards} == found
    await lab.queue.cancel(delayed)


@clause("J-1")
async def test_j01_a_prefix_goes_in_front_of_every_key(connection: Connection, raw: Raw) -> None:
    async with StreamsLab(connection, key_prefix="team{7}:") as lab:
        worker, held = await start(lab, idempotency_key="once", tenant="acme")
        await submit(lab.queue, delay_s=600)
        await worker.settle([(held, Done("1"))], 0)
        await lab.sweep()
        assert raw.find()
        assert [key for key in raw.find() if not key.startswith("team{7}:")] == []


@clause("J-1")
async def test_j01_keys_without_a_lifetime_are_the_permanent_ones(
    lab: StreamsLab, raw: Raw
) -> None:
    worker, held = await start(lab, idempotency_key="once", tenant="acme")
    await submit(lab.queue, delay_s=600)
    await worker.report([(held, Report("log", "1"))])
    await lab.sweep()
    lasting = {key for key in raw.find() if raw.ttl_s(key) == -1}
    assert lasting == {
        "jobs:stream",
        "jobs:delayed",
        "jobs:open",
        "jobs:tenants",
        "jobs:index",
        "jobs:index:acme",
    }
    keys = Keys()
    assert set(contract.PERMANENT) == {
        keys.queue,
        keys.delayed,
        keys.open,
        keys.tenants,
        keys.index(),
        keys.index("*"),
    }
    await worker.settle([(held, Done("1"))], 0)


# ── J-2, J-3 ─────────────────────────────────────────────────────────────────────────────────────


@clause("J-2")
async def test_j02_a_queue_entry_has_exactly_three_fields(lab: StreamsLab, raw: Raw) -> None:
    job_id = await submit(
        lab.queue, tenant="acme", max_attempts=3, timeout_s=7.5, traceparent="00-abc"
    )
    ((_, fields),) = raw.entries("jobs:stream")
    assert fields == {"job_id": job_id, "task": "echo", "payload": PAYLOAD}


@clause("J-2")
async def test_j02_an_entry_that_was_made_anew_is_the_same(lab: StreamsLab, raw: Raw) -> None:
    """After a retry, a release and a delay, too."""
    worker, held = await start(lab)
    wanted = {"job_id": held.job.id, "task": "echo", "payload": PAYLOAD}
    await worker.settle([(held, TryAgain(0, TRANSIENT))], 0)
    (again,) = await worker.take(1)
    await worker.settle([(again, GivenBack())], 0)
    assert [fields for _, fields in raw.entries("jobs:stream")] == [wanted]
    (third,) = await worker.take(1)
    await worker.settle([(third, TryAgain(0.001, TRANSIENT))], 0)
    await wait_until(lambda: lab.duty("promote"), "the job to be due")
    assert [fields for _, fields in raw.entries("jobs:stream")] == [wanted]


@clause("J-3")
async def test_j03_the_hash_of_a_plain_job_through_its_life(lab: StreamsLab, raw: Raw) -> None:
    worker = await lab.worker()
    job_id = await submit(lab.queue, ttl_s=600)
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

    (held,) = await worker.take(1)
    ours = {
        "owner": held.token,
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

    await worker.settle([(held, Done('{"text": "once"}'))], 0)
    assert without_times(raw, job_id) == {
        **source,
        **ours,
        "owner": f"{held.token}!",
        "status": "done",
        "result": '{"text": "once"}',
        "error": "",
    }
    assert raw.field(f"job:{job_id}", "created_ts") == created


@clause("J-3")
async def test_j03_declared_extras_stand_where_they_say_something(
    lab: StreamsLab, raw: Raw
) -> None:
    job_id = await submit(
        lab.queue,
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
    (held,) = await worker.take(1)
    assert (held.policy.max_attempts, held.policy.timeout_s) == (3, 7.5)
    assert (held.job.tenant, held.job.traceparent) == ("acme", "00-abc")
    await worker.settle([(held, TryAgain(60, TRANSIENT))], 0)
    found = without_times(raw, job_id)
    assert (found["attempt"], found["deliveries"], found["status"]) == ("2", "1", "queued")
    assert "entry_id" not in found, "it lies in jobs:delayed, in no entry"
    assert set(found) <= set(contract.Field) | set(contract.Extra)


@clause("J-3", "J-39")
async def test_j03_a_job_without_extras_runs_all_the_same(lab: StreamsLab, raw: Raw) -> None:
    """As a gateway writes it that knows the published contract only."""
    worker = await lab.worker()
    raw.write("job:foreign", foreign_hash("foreign"))
    entry = raw.add("jobs:stream", {"task": "echo", "payload": '{"a":1}', "job_id": "foreign"})
    (held,) = await worker.take(1)
    assert held.job.payload == {"a": 1}
    assert (held.job.attempt, held.job.deliveries) == (1, 1)
    assert (held.policy.max_attempts, held.policy.timeout_s) == (None, None)
    assert raw.field("job:foreign", "entry_id") == entry
    await worker.settle([(held, Done("1"))], 0)
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


# ── J-4, J-5, J-6 ────────────────────────────────────────────────────────────────────────────────


@clause("J-4")
async def test_j04_events_have_four_fields_and_tell_the_whole_story(
    lab: StreamsLab, raw: Raw
) -> None:
    worker, held = await start(lab)
    await worker.report(
        [
            (held, Report("progress", '{"percent":50,"message":"half"}', number=1)),
            (held, Report("token", '{"text":"ab"}', "chat.generate", 2)),
        ]
    )
    await worker.settle([(held, TryAgain(0, TRANSIENT))], 0)
    (again,) = await worker.take(1)
    await worker.settle([(again, Done("1"))], 0)

    events = [fields for _, fields in raw.entries(f"job:{held.job.id}:events")]
    for event in events:
        assert list(event) == ["type", "ts", "step", "data"]
        assert len(event["ts"]) == 13
        json.loads(event["data"])
    assert [(event["type"], event["step"], json.loads(event["data"])) for event in events] == [
        ("queued", "gateway.enqueue", {}),
        ("running", "worker.start", {"attempt": 1}),
        ("progress", "worker.report", {"percent": 50, "message": "half"}),
        ("token", "chat.generate", {"text": "ab"}),
        (
            "retrying",
            "worker.retry",
            {
                "attempt": 1,
                "delay_ms": 0,
                "error": {"code": "handler_error", "message": "the handler failed"},
            },
        ),
        ("running", "worker.start", {"attempt": 2}),
        ("done", "worker.settle", {}),
    ]
    assert raw.field(f"job:{held.job.id}", "progress") == '{"percent":50,"message":"half"}'


@clause("J-4")
@pytest.mark.parametrize("kind", ["done", "error", "canceled", "hello", "gap", "Bad", "", "a b"])
async def test_j04_no_report_can_end_a_job_or_speak_for_the_gateway(
    lab: StreamsLab, raw: Raw, kind: str
) -> None:
    worker, held = await start(lab)
    before = raw.length(f"job:{held.job.id}:events")
    batch = [(held, Report(kind, "{}", number=1)), (held, Report("log", "{}", number=2))]
    assert await worker.report(batch) == [ReportAnswer.DROPPED, ReportAnswer.WRITTEN]
    assert raw.length(f"job:{held.job.id}:events") == before + 1
    await worker.settle([(held, Done("1"))], 0)


@clause("J-4")
async def test_j04_data_may_be_as_large_as_it_may_be(lab: StreamsLab) -> None:
    worker, held = await start(lab)
    fits = json.dumps("é" * ((contract.MAX_EVENT_BYTES - 2) // 2), ensure_ascii=False)
    assert len(fits.encode()) == contract.MAX_EVENT_BYTES
    batch = [(held, Report("log", fits)), (held, Report("log", fits.replace('"', '"x', 1)))]
    assert await worker.report(batch) == [ReportAnswer.WRITTEN, ReportAnswer.DROPPED]
    await worker.settle([(held, Done("1"))], 0)


@clause("J-4")
async def test_j04_a_job_has_at_most_so_many_events_and_always_its_end(
    connection: Connection, raw: Raw
) -> None:
    async with StreamsLab(connection, max_events=10) as lab:
        worker, held = await start(lab)
        key = f"job:{held.job.id}:events"
        batch = [(held, Report("log", str(n), number=n)) for n in range(1, 21)]
        answers = await worker.report(batch)
        assert answers == [ReportAnswer.WRITTEN] * 7 + [ReportAnswer.DROPPED] * 13
        for _ in range(4):
            await worker.settle([(held, TryAgain(0, TRANSIENT))], 0)
            (held,) = await worker.take(1)
            assert raw.length(key) <= 10
        await worker.settle([(held, Done("1"))], 0)
        assert raw.length(key) <= 10
        assert raw.last(key)["type"] == "done"


@clause("J-4", "J-5")
async def test_j04_nothing_is_appended_after_a_terminal_event(lab: StreamsLab, raw: Raw) -> None:
    worker, held = await start(lab)
    await worker.settle([(held, Done('"first"'))], 0)
    key = f"job:{held.job.id}"
    hash_before, events_before = raw.fields(key), raw.entries(f"{key}:events")

    assert await worker.report([(held, Report("log", "1"))]) == [ReportAnswer.LOST]
    for outcome in (Failed(ERROR), Canceled(), TryAgain(0, TRANSIENT), GivenBack()):
        await worker.settle([(held, outcome)], 0)
    await lab.queue.cancel(held.job.id)
    keeper = worker.keeper()
    assert keeper.keep([held]) == [KeepAnswer.ENDED]
    keeper.close()
    raw.add("jobs:stream", {"job_id": held.job.id, "task": "echo", "payload": "{}"})
    assert await worker.take(1) == []
    await lab.sweep()

    assert raw.fields(key) == hash_before
    assert raw.entries(f"{key}:events") == events_before


@clause("J-5")
async def test_j05_status_goes_the_ways_it_may(lab: StreamsLab, raw: Raw) -> None:
    worker, held = await start(lab)
    seen = [raw.field(f"job:{held.job.id}", "status")]
    for outcome in (TryAgain(0, TRANSIENT), GivenBack()):
        await worker.settle([(held, outcome)], 0)
        seen.append(raw.field(f"job:{held.job.id}", "status"))
        (held,) = await worker.take(1)
        seen.append(raw.field(f"job:{held.job.id}", "status"))
    await worker.settle([(held, Failed(ERROR))], 0)
    seen.append(raw.field(f"job:{held.job.id}", "status"))
    assert seen == ["running", "queued", "running", "queued", "running", "error"]


@clause("J-6")
async def test_j06_an_error_is_one_object_in_hash_and_event(lab: StreamsLab, raw: Raw) -> None:
    worker, held = await start(lab)
    error = JobError("no_such_city", "no \ud800 city", False, '{"text":"so far"}', "Traceback …")
    await worker.settle([(held, Failed(error))], 0)
    found = raw.fields(f"job:{held.job.id}")
    assert json.loads(found["error"]) == {
        "code": "no_such_city",
        "message": "no ? city",
        "retryable": False,
        "attempt": 1,
        "partial": {"text": "so far"},
    }
    event = raw.last(f"job:{held.job.id}:events")
    assert (event["type"], event["data"]) == ("error", found["error"])
    assert found["result"] == ""
    assert "Traceback" not in json.dumps(found), "tracebacks go to the log"


@clause("J-6")
async def test_j06_a_traceback_is_kept_only_if_asked_for(connection: Connection, raw: Raw) -> None:
    async with StreamsLab(connection, store_tracebacks=True) as lab:
        worker, held = await start(lab)
        error = JobError("handler_error", "failed", detail="Traceback …")
        await worker.settle([(held, Failed(error))], 0)
        assert raw.field(f"job:{held.job.id}", "traceback") == "Traceback …"


@clause("J-6")
async def test_j06_a_canceled_job_says_so_with_what_there_was(lab: StreamsLab, raw: Raw) -> None:
    worker, held = await start(lab)
    await worker.settle([(held, Canceled('{"text":"so far"}'))], 0)
    found = raw.fields(f"job:{held.job.id}")
    assert found["status"] == "canceled"
    assert json.loads(found["error"])["code"] == "canceled"
    assert json.loads(found["error"])["partial"] == {"text": "so far"}


# ── J-7 ──────────────────────────────────────────────────────────────────────────────────────────


@clause("J-7")
async def test_j07_every_change_renews_the_lifetime_of_hash_and_events(
    lab: StreamsLab, raw: Raw
) -> None:
    worker = await lab.worker()
    job_id = await submit(lab.queue, ttl_s=600)
    keys = (f"job:{job_id}", f"job:{job_id}:events")

    def renewed() -> bool:
        """Whether both have their whole life again; then most of it is taken away."""
        times = [raw.ttl_s(key) for key in keys]
        for key in keys:
            raw.expire(key, 100)
        return times in ([600, 600], [599, 600], [600, 599], [599, 599])

    assert renewed()
    (held,) = await worker.take(1)
    assert renewed()
    await worker.report([(held, Report("log", "1"))])
    assert renewed()
    await worker.settle([(held, GivenBack())], 0)
    assert renewed()
    (held,) = await worker.take(1)
    assert renewed()
    await worker.settle([(held, TryAgain(0, TRANSIENT))], 0)
    assert renewed()
    (held,) = await worker.take(1)
    await worker.settle([(held, Done("1"))], 0)
    assert renewed()


@clause("J-7")
async def test_j07_an_order_without_a_lifetime_gets_the_setting(
    connection: Connection, raw: Raw
) -> None:
    async with StreamsLab(connection, job_ttl_s=1234) as lab:
        job_id = await submit(lab.queue)
        assert raw.field(f"job:{job_id}", "ttl_s") == "1234"
        assert raw.ttl_s(f"job:{job_id}") in (1233, 1234)


@clause("J-7")
@pytest.mark.parametrize("ttl_s", [0, -1, contract.MAX_TTL_S + 1])
async def test_j07_a_lifetime_out_of_range_is_refused(lab: StreamsLab, ttl_s: int) -> None:
    with pytest.raises(RefusedError, match="ttl_s"):
        await submit(lab.queue, ttl_s=ttl_s)


@clause("J-7")
async def test_j07_an_unfinished_job_does_not_vanish(lab: StreamsLab, raw: Raw) -> None:
    """It outlives its own lifetime several times over, with its events and idempotency key."""
    job_id = await submit(lab.queue, ttl_s=1, idempotency_key="once")
    keys = (f"job:{job_id}", f"job:{job_id}:events", "idempotency:once")
    loop = asyncio.get_running_loop()
    until_s = loop.time() + 2.5
    while loop.time() < until_s:
        await lab.duty("keepalive")
        assert raw.exists(*keys) == 3
        await asyncio.sleep(0.05)
    await lab.queue.cancel(job_id)
    await lab.duty("keepalive")
    assert raw.members("jobs:open") == []
    await wait_until(lambda: raw.exists(*keys) == 0, "the ended job to expire")


@clause("J-7")
async def test_j07_no_write_revives_half_a_hash(lab: StreamsLab, raw: Raw) -> None:
    worker = await lab.worker()
    for _ in range(6):
        await submit(lab.queue)
    held = await worker.take(5)
    waiting = raw.entries("jobs:stream")[-1][1]["job_id"]
    for key in raw.find("job:*"):
        raw.delete(key)

    assert await worker.report([(held[0], Report("log", "1"))]) == [ReportAnswer.LOST]
    keeper = worker.keeper()
    assert keeper.keep(held[:1]) == [KeepAnswer.ENDED]
    keeper.close()
    outcomes = (Done("1"), Failed(ERROR), Canceled(), TryAgain(0, TRANSIENT), GivenBack())
    settled = await worker.settle(list(zip(held, outcomes, strict=True)), 0)
    assert settled.answers == [SettleAnswer.GONE] * 5
    await lab.queue.cancel(JobId(waiting))
    assert await worker.take(1) == []
    await lab.sweep()
    assert raw.find("job:*") == []
    assert await lab.at_rest()


# ── J-8 ──────────────────────────────────────────────────────────────────────────────────────────


@clause("J-8")
async def test_j08_a_payload_is_kept_byte_for_byte(lab: StreamsLab, raw: Raw) -> None:
    text = '{ "big":123456789012345678901234567890,"f": 1.10e5 , "ü":"\\u00fc", "z":[]}'
    worker, held = await start(lab, payload_json=text)
    assert raw.field(f"job:{held.job.id}", "payload") == text
    assert cast("dict[str, object]", held.job.payload)["big"] == 123456789012345678901234567890
    await worker.settle([(held, GivenBack())], 0)
    assert raw.entries("jobs:stream")[0][1]["payload"] == text


# ── J-9 ──────────────────────────────────────────────────────────────────────────────────────────


@clause("J-9")
async def test_j09_each_transition_is_one_call(lab: StreamsLab, raw: Raw) -> None:
    """Many jobs' transitions travel in one call, and every step inside is the server's own."""
    worker = await lab.worker()
    job_ids = [await submit(lab.queue) for _ in range(3)]
    with Recording(raw) as seen:
        held = await worker.take(3)
        await worker.report([(one, Report("log", "1")) for one in held])
        await worker.settle([(one, Done("1")) for one in held], 0)
        job_id = await submit(lab.queue)
        await lab.queue.cancel(job_id)
    # The first take of a worker looks for the jobs of silent ones, too.
    assert seen.scripts == 6
    assert {one.job.id for one in held} == set(job_ids)


@clause("J-9")
async def test_j09_time_is_the_servers(lab: StreamsLab, raw: Raw) -> None:
    before = raw.now_ms()
    worker, held = await start(lab)
    await worker.settle([(held, Done("1"))], 0)
    after = raw.now_ms()
    record = await lab.queue.record(held.job.id)
    assert record is not None
    times = [int(event["ts"]) for event in await lab.events(held.job.id)]
    assert before <= record.created_ms <= times[0] <= times[1] <= times[2] <= after
    assert record.updated_ms == times[2]


@clause("J-9", "J-12")
async def test_j09_a_full_server_can_still_start_finish_and_hand_back(
    lab: StreamsLab, raw: Raw, server_setting: Callable[[str, str], None]
) -> None:
    worker = await lab.worker()
    for _ in range(5):
        await submit(lab.queue)
    (first,) = await worker.take(1)
    keys_before = set(raw.find())
    server_setting("maxmemory", "1")

    with pytest.raises(GroundError) as refused:
        await submit(lab.queue)
    assert refused.value.status == 503
    assert set(raw.find()) == keys_before, "nothing was written"
    assert await worker.report([(first, Report("log", "1"))]) == [ReportAnswer.DROPPED]
    keeper = worker.keeper()
    assert keeper.keep([first]) == [KeepAnswer.KEPT]
    keeper.close()
    others = await worker.take(4)
    assert len(others) == 4
    outcomes = (Done("1"), Failed(ERROR), TryAgain(0, TRANSIENT), GivenBack(), Canceled())
    settled = await worker.settle(list(zip((first, *others), outcomes, strict=True)), 0)
    assert settled.answers == [SettleAnswer.SETTLED] * 5
    server_setting("maxmemory", "0")
    await worker.settle([(one, Done("1")) for one in await worker.take(5)], 0)
    assert await lab.at_rest()


@clause("J-9")
async def test_j09_one_bad_key_harms_no_other_job_of_its_batch(lab: StreamsLab, raw: Raw) -> None:
    worker = await lab.worker()
    job_ids = [await submit(lab.queue) for _ in range(5)]
    raw.spoil(f"job:{job_ids[0]}")
    held = await worker.take(5)
    assert [one.job.id for one in held] == job_ids[1:], "the broken one was dropped"

    raw.spoil(f"job:{job_ids[1]}")
    raw.spoil(f"job:{job_ids[2]}:events")
    keeper = worker.keeper()
    assert keeper.keep(held) == [KeepAnswer.ENDED] + [KeepAnswer.KEPT] * 3
    keeper.close()
    assert await worker.report([(one, Report("log", "1")) for one in held]) == [
        ReportAnswer.LOST,
        ReportAnswer.DROPPED,
        ReportAnswer.WRITTEN,
        ReportAnswer.WRITTEN,
    ]
    settled = await worker.settle([(one, Done("1")) for one in held], 0)
    assert settled.answers == [SettleAnswer.GONE] + [SettleAnswer.SETTLED] * 3
    assert [raw.field(f"job:{job_id}", "status") for job_id in job_ids[2:]] == ["done"] * 3
    assert raw.kind(f"job:{job_ids[1]}") == "string", "what is not ours is left alone"
    assert raw.length("jobs:stream") == 0
