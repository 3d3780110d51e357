"""D-23: a failed job is followed by a job of the task that its handler names with `on_failure`."""

from __future__ import annotations

import json
from functools import partial

import msgspec
import pytest

from jobwire import App, Context, Fail, FailedJob
from jobwire.job.messages import (
    Canceled,
    Done,
    Failed,
    JobError,
    RetryLater,
    SettleAnswer,
    TaskDefinition,
)
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.valkey import Connection
from jobwire.worker import Worker
from tests.support import clause, wait_until
from tests.support.jobs_http import ServedJobs
from tests.support.raw import Raw, foreign_job
from tests.support.streams import StreamsLab
from tests.support.workers import started, stopped

TASK, NEXT = "podcast", "tell"
FAILED = Failed(JobError("no_audio", "there is no sound"))


async def holder(lab: StreamsLab, queue: str = "default") -> StreamsEngine:
    """A worker whose task is followed by another one, in the same queue."""
    names = (queue,) if queue == "default" else ("default", queue)
    engine = StreamsEngine(
        lab.connection, lab.settings, queues=names, task_queues={TASK: "default", NEXT: queue}
    )
    lab._workers.append(engine)  # pyright: ignore[reportPrivateUsage] - the lab deregisters it
    await engine.register([TaskDefinition(TASK, "", "", NEXT), TaskDefinition(NEXT)], slots=4)
    return engine


def following(raw: Raw, job_id: str) -> list[dict[str, str]]:
    """The hashes of all jobs that follow this one."""
    keys = [key for key in raw.find("job:*") if key.count(":") == 1]
    found = [raw.fields(key) for key in keys]
    return [each for each in found if each.get("failure_of") == job_id]


def submit_foreign(raw: Raw, job_id: str, payload: str = "{}") -> None:
    """As a foreign gateway does, which may choose any id and any payload."""
    raw.call("XDEL", "jobs:stream", foreign_job(raw, job_id, task=TASK, payload=payload))
    raw.add("jobs:stream", {"job_id": job_id, "task": TASK, "payload": payload})


@clause("D-23")
async def test_d23_the_script_that_ends_a_job_creates_the_one_that_follows(
    lab: StreamsLab, raw: Raw
) -> None:
    worker = await holder(lab)
    job_id = await lab.submit('{"url":"a.mp3"}', task=TASK)
    (leased,) = await worker.take(1)
    for _ in range(2):  # the second call: the reply of the first one was lost
        assert (await worker.settle([(leased, FAILED)], 0)).answers == [SettleAnswer.SETTLED]
    (found,) = following(raw, job_id)
    assert raw.field(f"job:{job_id}", "on_failure") == found["job_id"]
    error = {"code": "no_audio", "message": "there is no sound", "retryable": False, "attempt": 1}
    payload = {"job_id": job_id, "task": TASK, "error": error, "payload": {"url": "a.mp3"}}
    assert json.loads(found["payload"]) == payload
    assert (found["task"], found["status"], found["ttl_s"]) == (NEXT, "queued", "86400")
    assert raw.ttl_s(f"job:{found['job_id']}") > 86_000
    ((entry, fields),) = raw.entries("jobs:stream")
    names = ("job_id", "task", "payload")
    assert (entry, fields) == (found["entry_id"], {name: found[name] for name in names})
    assert raw.members("jobs:open") == [found["job_id"]]
    assert found["job_id"] in raw.members("jobs:index")
    (queued,) = await lab.events(found["job_id"])
    assert (queued["type"], queued["step"]) == ("queued", "gateway.enqueue")
    (leased,) = await worker.take(1)
    assert leased.job.id == found["job_id"]
    await worker.settle([(leased, Done("1"))], 0)


@clause("D-23")
async def test_d23_no_other_end_is_followed(lab: StreamsLab, raw: Raw) -> None:
    worker = await holder(lab)
    retry = RetryLater(0, JobError("e", "e", True))
    for outcome in (Done("1"), retry, Canceled()):
        job_id = await lab.submit(task=TASK)
        (leased,) = await worker.take(1)
        await worker.settle([(leased, outcome)], 0)
        assert not following(raw, job_id)
        if outcome is retry:
            assert await lab.queue.cancel(job_id) == "canceled"
            assert not following(raw, job_id)


@clause("D-23")
async def test_d23_nothing_follows_a_job_that_follows(lab: StreamsLab, raw: Raw) -> None:
    worker = await holder(lab)
    # Two tasks that follow each other: without the rule this would never end.
    tasks = [TaskDefinition(TASK, "", "", NEXT), TaskDefinition(NEXT, "", "", TASK)]
    await worker.register(tasks, slots=4)
    await lab.submit(task=TASK)
    (first,) = await worker.take(1)
    await worker.settle([(first, FAILED)], 0)
    (second,) = await worker.take(1)
    await worker.settle([(second, FAILED)], 0)
    assert await worker.take(1) == []
    assert not following(raw, second.job.id)


@clause("D-23", "J-34")
async def test_d23_a_job_that_killed_its_workers_is_followed(
    connection: Connection, raw: Raw
) -> None:
    async with StreamsLab(connection, max_deliveries=1) as lab:
        worker = await holder(lab, "alarms")
        job_id = await lab.submit(task=TASK, tenant="acme", traceparent="00-a-b-01")
        await worker.take(1)
        await lab.silence(worker)
        await lab.maintain("reclaim")
        (found,) = following(raw, job_id)
        assert json.loads(found["payload"])["error"]["code"] == "delivery_limit"
        extras = {name: found[name] for name in ("queue", "tenant", "traceparent")}
        assert extras == {"queue": "alarms", "tenant": "acme", "traceparent": "00-a-b-01"}
        assert len(raw.entries("jobs:stream:alarms")) == 1
        assert found["job_id"] in raw.members("jobs:index:acme")
        assert raw.entries("jobs:stream") == [], "the entry of the failed job is gone"
        (leased,) = await worker.take(1)
        await worker.settle([(leased, Done("1"))], 0)


@clause("D-23", "D-16")
async def test_d23_what_follows_failures_has_an_end(lab: StreamsLab, raw: Raw) -> None:
    """Regression: `repair` that runs `work` again, and `work` that fails again, never ended."""
    app = App("repairs")

    @app.handler("repair", uses={"durable"})
    async def repair(ctx: Context) -> None:
        await ctx.run("work", {})

    @app.handler("work", on_failure=repair)
    async def work(ctx: Context) -> None:
        raise ValueError

    tasks = dict.fromkeys(app.handlers, "repairs")
    engine = StreamsEngine(lab.connection, lab.settings, queues=["repairs"], task_queues=tasks)
    worker = Worker(app, [engine], slots=2)
    running = await started(worker)
    try:
        job_id = await lab.submit(task="work", queue="repairs")
        found = None
        while found != job_id:
            job_id = found or job_id
            found = await wait_until(partial(_next, raw, job_id), "what follows")
    finally:
        await stopped(worker, running)
    assert int(raw.field(f"job:{job_id}", "depth") or "") == 8


def _next(raw: Raw, job_id: str) -> str | None:
    """The job that follows this failed one, or the child of the one that follows; itself at the
    end."""
    job = raw.fields(f"job:{job_id}")
    if "failure_of" in job:
        made = raw.fields(f"job:{job_id}:steps").get("k::1@work")
        return json.loads(made)[0] if made else None
    return job.get("on_failure", job_id) if job["status"] == "error" else None


@clause("D-23", "J-39")
@pytest.mark.parametrize("seen_by", ["reconcile", "extend_ttl"])
@pytest.mark.parametrize(
    ("error", "got"),
    [
        *(('{"code":"e","message":"m"}', ("e", "m")), ('"boom"', ("", '"boom"'))),
        *(("boom {", ("", "boom {")), ("x" + "é" * 3000, ("", "x" + "é" * 2047))),
        (b"caf\xe9 \xc3\xa9", ("", "caf? ??")),
        ('{"code":"e","message":"m","n":NaN}', ("", '{"code":"e","message":"m","n":NaN}')),
        ('{"code":"e","message":"a\nb"}', ("", '{"code":"e","message":"a\nb"}')),
        ('{"code":"e","message":"m","n":1e400}', ("", '{"code":"e","message":"m","n":1e400}')),
        ('{"code":"e","message":"m","attempt":"2"}', ("e", "m")),
        (json.dumps({"code": "e", "message": "m" * 300_000}), ("e", "m" * 4096)),
    ],
)
async def test_d23_a_job_that_a_foreign_worker_failed_is_followed_once(
    lab: StreamsLab, raw: Raw, seen_by: str, error: str | bytes, got: tuple[str, str]
) -> None:
    worker = await holder(lab)
    job_id = await lab.submit(task=TASK)
    raw.call("XREADGROUP", "GROUP", "workers", "theirs", "STREAMS", "jobs:stream", ">")
    raw.call("HSET", f"job:{job_id}", "status", "error", "error", error)
    (entry,) = raw.pending("jobs:stream")
    raw.call("XACK", "jobs:stream", "workers", entry)
    raw.call("XDEL", "jobs:stream", entry)
    for _ in range(2):
        raw.call("ZADD", "jobs:open", 1, job_id)
        await lab.maintain(seen_by)
    (found,) = following(raw, job_id)
    written = msgspec.json.decode(found["payload"], type=FailedJob).error
    assert (written.code, written.message) == got
    (leased,) = await worker.take(1)
    await worker.settle([(leased, Done("1"))], 0)


@clause("D-23", "J-38")
@pytest.mark.parametrize(
    "payload",
    [
        *("{broken", '{"a": NaN}', '{"a": 0x10}', json.dumps({"x": "y" * 204_700})),
        *('{"a": "x\ty"}', '{"a": -1e400}', '{"a": [1.]}', '{"a": 1.e2}', f'{{"a": {"9" * 5000}}}'),
    ],
    ids=["invalid", "nan", "hex", "large", "control", "infinite", "point", "exponent", "digits"],
)
async def test_d23_a_payload_that_does_not_fit_is_left_out(
    lab: StreamsLab, raw: Raw, payload: str
) -> None:
    worker = await holder(lab)
    submit_foreign(raw, "theirs", payload)
    (leased,) = await worker.take(1)
    await worker.settle([(leased, FAILED)], 0)
    (found,) = following(raw, "theirs")
    assert sorted(json.loads(found["payload"])) == ["error", "job_id", "task"]
    (leased,) = await worker.take(1)
    await worker.settle([(leased, Done("1"))], 0)


@clause("D-23", "J-38")
async def test_d23_any_json_of_a_payload_is_passed_on(lab: StreamsLab, raw: Raw) -> None:
    payload = r'{"a":"\\\"","b":"{1.}\u0000 é 1e999","c":[-0.5e-3,1E5,-0,' + "1" * 400 + "]}"
    worker = await holder(lab)
    submit_foreign(raw, "theirs", payload)
    (leased,) = await worker.take(1)
    await worker.settle([(leased, FAILED)], 0)
    (found,) = following(raw, "theirs")
    assert f'"payload":{payload}' in found["payload"]
    (leased,) = await worker.take(1)
    assert leased.job.payload == msgspec.json.decode(found["payload"])
    await worker.settle([(leased, Done("1"))], 0)


@clause("D-23")
async def test_d23_the_job_that_follows_is_on_the_same_shard(lab: StreamsLab, raw: Raw) -> None:
    worker = await holder(lab)
    for job_id, same in (
        ("0f00beef-0000-8000-8000-000000000001", True),
        ("0f00beef-0000-4000-8000-000000000001", False),
    ):
        submit_foreign(raw, job_id)
        (leased,) = await worker.take(1)
        await worker.settle([(leased, FAILED)], 0)
        (found,) = following(raw, job_id)
        new_id = found["job_id"]
        assert (new_id[:8] == job_id[:8], new_id[14]) == (same, "8" if same else "4")
        assert new_id.count("-") == 4
        assert len(new_id) == 36
        (leased,) = await worker.take(1)
        await worker.settle([(leased, Done("1"))], 0)


@clause("D-23", "R-1")
async def test_d23_keys_of_a_wrong_type_keep_no_job_from_ending(lab: StreamsLab, raw: Raw) -> None:
    worker = await holder(lab, "alarms")
    job_id = await lab.submit(task=TASK)
    (leased,) = await worker.take(1)
    raw.delete("jobs:stream:alarms")
    raw.call("SET", "jobs:stream:alarms", "text")
    assert (await worker.settle([(leased, FAILED)], 0)).answers == [SettleAnswer.SETTLED]
    assert (await lab.ends(job_id), raw.entries("jobs:stream")) == (1, [])
    raw.delete("jobs:stream:alarms")


# ── in a worker, over HTTP ───────────────────────────────────────────────────────────────────────


@clause("D-23")
async def test_d23_on_failure_runs_once_with_the_failed_job(
    lab: StreamsLab, served: ServedJobs
) -> None:
    app, told = App("media"), list[FailedJob]()

    @app.handler("tell", retries=1)
    async def tell(ctx: Context[FailedJob]) -> str:
        told.append(ctx.payload)
        return ctx.payload.error.message

    @app.handler("podcast", on_failure=tell)
    async def podcast(ctx: Context) -> None:
        ctx.partial = {"seconds": 3}
        raise Fail("no_audio", f"{ctx.payload['url']} has no sound")

    engine = StreamsEngine(
        lab.connection,
        lab.settings,
        queues=["media"],
        task_queues={"podcast": "media", "tell": "media"},
    )
    worker = Worker(app, [engine], slots=2)
    running = await started(worker)
    job_id = await lab.submit('{"url":"a.mp3"}', task="podcast", queue="media")
    await wait_until(lambda: bool(told), "the failure to be told")
    await wait_until(lab.at_rest, "the job to end")
    await stopped(worker, running)
    (failed,) = told
    assert (failed.job_id, failed.task, failed.payload) == (job_id, "podcast", {"url": "a.mp3"})
    assert (failed.error.code, failed.error.partial) == ("no_audio", {"seconds": 3})
    job = served.client.get(f"/v1/jobs/{job_id}").json()
    next_one = served.client.get(f"/v1/jobs/{job['on_failure']}").json()
    assert (next_one["failure_of"], next_one["task"]) == (job_id, "tell")
    assert (next_one["status"], next_one["result"]) == ("done", "a.mp3 has no sound")
    assert "failure_of" not in job
    assert "on_failure" not in next_one


@clause("D-23")
async def test_d23_on_failure_names_another_task_of_the_app(lab: StreamsLab) -> None:
    app = App("media")
    with pytest.raises(ValueError, match="the handler itself"):
        app.handler("podcast", on_failure="podcast")
    with pytest.raises(TypeError, match="is not a task"):
        app.handler("podcast", on_failure=print)  # pyright: ignore[reportArgumentType] - the fault under test
    app.handler("podcast", on_failure="tell")(lambda ctx: None)
    with pytest.raises(ValueError, match="on_failure='tell' is not a task of this App"):
        Worker(app, [StreamsEngine(lab.connection, lab.settings)])
    app.handler("tell", queue="alarms")(lambda ctx: None)
    Worker(app, [StreamsEngine(lab.connection, lab.settings)])
