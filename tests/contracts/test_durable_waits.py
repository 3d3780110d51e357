"""D-8 … D-12: jobs that wait without a worker, on a real server, in the three kinds of handlers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from jobwire import App, Context, Retry, SignalTimeout, SyncContext
from jobwire.job.ids import child_job_id
from jobwire.job.messages import (
    SUBMIT_KIND,
    CancelRequest,
    Done,
    JobId,
    Released,
    Report,
    ReportAnswer,
    TaskDefinition,
    Token,
)
from jobwire.settings import SettingsError, load
from jobwire.systems.jobs.app_queues import app_queues
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.valkey import Connection
from jobwire.worker import Worker
from jobwire.worker.metrics import Series
from jobwire.worker.middleware import CallNext
from tests.contracts import waiting_handlers
from tests.contracts.test_durable_steps import ended, kinds_of, submit
from tests.contracts.waiting_handlers import KINDS, QUEUE, paid
from tests.support import clause, wait_until
from tests.support.jobs_http import ServedJobs, problem
from tests.support.raw import Raw
from tests.support.streams import StreamsLab
from tests.support.workers import started, stopped

STREAM = f"jobs:stream:{QUEUE}"
SUSPENDED = "jobs:suspended"


@asynccontextmanager
async def working(
    lab: StreamsLab, app: App = waiting_handlers.app, queue: str = QUEUE
) -> AsyncGenerator[Worker]:
    """A worker of the App on a queue of its own."""
    tasks = dict.fromkeys(app.handlers, queue)
    engine = StreamsEngine(lab.connection, lab.settings, queues=[queue], task_queues=tasks)
    worker = Worker(app, [engine], slots=4)
    running = await started(worker)
    try:
        yield worker
    finally:
        await stopped(worker, running)


async def until_suspended(raw: Raw, job_id: str) -> dict[str, Any]:
    """What the job waits for, once it is suspended."""
    await wait_until(lambda: job_id in raw.members(SUSPENDED), "the job to be suspended")
    return json.loads(raw.field(f"job:{job_id}", "waits_for") or "")


def make_due(raw: Raw, job_id: str, *fields: str) -> None:
    """Its time is over, by the server's clock; that of its wait for a signal, without others."""
    raw.call("ZADD", SUSPENDED, "XX", raw.now_ms() - 1, job_id)
    waits_for = json.loads(raw.field(f"job:{job_id}", "waits_for") or "{}")
    if not fields and waits_for.get("for") == "signal":
        fields = (f"t:signal:{waits_for['name']}",)
    for field in fields:
        raw.call("HSET", f"job:{job_id}:steps", field, raw.now_ms() - 1)


@clause("D-8", "D-9", "D-11")
@pytest.mark.parametrize("kind", KINDS)
async def test_d11_a_sleep_holds_no_worker_and_is_slept_once(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str
) -> None:
    path = str(tmp_path / "paid")
    job_id = await submit(lab, kind, {"path": path, "sleep_s": 3600}, queue=QUEUE)
    async with working(lab) as worker:
        waits_for = await until_suspended(raw, job_id)
        assert 3500e3 < waits_for.pop("until") - raw.now_ms() <= 3600e3
        assert waits_for == {"for": "sleep", "name": "sleep"}
        job = raw.fields(f"job:{job_id}")
        assert (job["status"], job["deliveries"], "entry_id" in job) == ("queued", "0", False)
        assert raw.entries(STREAM) == []
        await wait_until(lambda: worker.metrics.held == 0, "the slot to be free")
        make_due(raw, job_id, "t:sleep")
        await lab.maintain("promote")
        assert (await ended(lab, job_id))["result"] == ["one", "two"]
        waited = worker.metrics.tasks[Series(QUEUE, kind)].waited
        assert waited.cumulated()[-1] == ("+Inf", 1), "for its first start only"
    assert paid(path) == ["one", "finally", "finally", "two"]
    assert kinds_of(await lab.events(job_id)) == [
        *("queued", "running", "step_done", "suspended", "queued", "running", "step_done", "done")
    ]
    assert not raw.exists(SUSPENDED, f"job:{job_id}:awaits")
    assert raw.field(f"job:{job_id}", "attempt") is None, "not a failure"


@clause("D-11")
async def test_d11_a_short_sleep_is_spent_in_the_worker(
    lab: StreamsLab, raw: Raw, tmp_path: Path
) -> None:
    work = {"path": str(tmp_path / "paid"), "sleep_s": 0.01}
    jobs = [await submit(lab, kind, work, queue=QUEUE) for kind in KINDS]
    async with working(lab):
        for job_id in jobs:
            assert (await ended(lab, job_id))["result"] == ["one", "two"]
            assert "suspended" not in kinds_of(await lab.events(job_id))
            assert sorted(raw.fields(f"job:{job_id}:steps")) == ["s:one", "s:two"]


@clause("D-11")
async def test_d11_a_job_that_is_woken_early_sleeps_on(
    lab: StreamsLab, raw: Raw, tmp_path: Path
) -> None:
    job_id = await submit(
        lab, "async", {"path": str(tmp_path / "paid"), "sleep_s": 3600}, queue=QUEUE
    )
    async with working(lab):
        first = await until_suspended(raw, job_id)
        raw.call("ZADD", SUSPENDED, "XX", raw.now_ms() - 1, job_id)
        await lab.maintain("promote")

        async def slept_twice() -> bool:
            return kinds_of(await lab.events(job_id)).count("suspended") == 2

        await wait_until(slept_twice, "the second suspend")
        assert await until_suspended(raw, job_id) == first, "its end is the one that is recorded"
    await lab.queue.cancel(job_id)


@clause("D-8", "D-12")
@pytest.mark.parametrize("kind", KINDS)
async def test_d12_a_signal_wakes_its_job_once(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str
) -> None:
    work = {"path": str(tmp_path / "paid"), "signal": "approval"}
    job_id = await submit(lab, kind, work, queue=QUEUE)
    async with working(lab):
        waits_for = await until_suspended(raw, job_id)
        assert (waits_for["for"], waits_for["name"]) == ("signal", "approval")
        assert raw.call("SMEMBERS", f"job:{job_id}:awaits") == ["g:approval"]
        assert await lab.queue.signal(job_id, "other", "1") == "recorded", "and does not wake it"
        assert raw.members(SUSPENDED) == [job_id]
        assert await lab.queue.signal(job_id, "approval", '{"by":"ann"}') == "recorded"
        assert await lab.queue.signal(job_id, "approval", '{"by":"ann"}') == "same"
        assert await lab.queue.signal(job_id, "approval", '{"by":"bob"}') == "other"
        assert (await ended(lab, job_id))["result"] == ["one", "ann", "two"]
    assert await lab.queue.signal(job_id, "approval", "1") == "finished"
    assert await lab.queue.signal(JobId("none"), "approval", "1") == "gone"
    assert kinds_of(await lab.events(job_id)).count("running") == 2


@clause("D-12", "D-8")
@pytest.mark.parametrize("kind", KINDS)
async def test_d12_a_signal_before_its_wait_is_kept(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str
) -> None:
    work = {"path": str(tmp_path / "paid"), "signal": "approval"}
    job_id = await submit(lab, kind, work, queue=QUEUE)
    assert await lab.queue.signal(job_id, "approval", '{"by":"ann"}') == "recorded"
    async with working(lab):
        assert (await ended(lab, job_id))["result"] == ["one", "ann", "two"]
    assert kinds_of(await lab.events(job_id)).count("running") == 1


@clause("D-12")
async def test_d12_a_signal_that_does_not_come_in_time(
    lab: StreamsLab, raw: Raw, tmp_path: Path
) -> None:
    work = {"path": str(tmp_path / "paid"), "signal": "approval", "timeout_s": 60}
    jobs = [await submit(lab, kind, work, queue=QUEUE) for kind in KINDS]
    async with working(lab):
        for job_id in jobs:
            await until_suspended(raw, job_id)
            make_due(raw, job_id)
        await lab.maintain("promote")
        for job_id in jobs:
            assert (await ended(lab, job_id))["result"] == ["one", "timeout", "two"]
            assert (await lab.queue.signal(job_id, "approval", "1")) == "finished"


@clause("D-9")
@pytest.mark.parametrize("kind", KINDS)
async def test_d09_a_handler_that_goes_on_is_suspended_all_the_same(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    work = {"path": str(tmp_path / "paid"), "signal": "approval", "swallow": True}
    job_id = await submit(lab, kind, work, queue=QUEUE)
    async with working(lab):
        await until_suspended(raw, job_id)
    assert paid(tmp_path / "paid") == ["one", "swallowed", "finally"]
    await lab.queue.cancel(job_id)
    assert (await ended(lab, job_id))["status"] == "canceled"
    assert not raw.exists(SUSPENDED, f"job:{job_id}:awaits")


@clause("D-14", "D-15")
@pytest.mark.parametrize("kind", KINDS)
async def test_d15_children_run_once_and_wake_their_parent(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str
) -> None:
    work = {"path": str(tmp_path / "paid"), "children": ["a", "b"]}
    job_id = await submit(lab, kind, work, queue=QUEUE, tenant="acme")
    async with working(lab):
        assert (await ended(lab, job_id))["result"] == ["one", "render-a", "render-b", "two"]
    assert sorted(paid(tmp_path / "paid")) == sorted(
        ["one", "render-a", "render-b", "finally", "finally", "two"]
    )
    record = raw.fields(f"job:{job_id}:steps")
    child, task = json.loads(record["k:a@render"])
    assert task == "render"
    assert json.loads(record["c:a@render"])[1:] == ["done", "render-a"]
    fields = raw.fields(f"job:{child}")
    assert (fields["parent"], fields["depth"], fields["tenant"], fields["queue"]) == (
        *(f"{job_id} a@render", "1", "acme", QUEUE),
    )


@clause("D-14", "D-6")
@pytest.mark.parametrize("kind", KINDS)
async def test_d14_a_job_waits_for_a_full_server_to_accept_its_children(
    lab: StreamsLab,
    raw: Raw,
    tmp_path: Path,
    server_setting: Callable[[str, str], None],
    kind: str,
) -> None:
    work = {"path": str(tmp_path / "paid"), "signal": "approval", "children": ["a", "b"]}
    job_id = await submit(lab, kind, work, queue=QUEUE)
    async with working(lab):
        await until_suspended(raw, job_id)
        raw.call("HSET", f"job:{job_id}:steps", "g:approval", '[1,{"by":"ann"}]')
        make_due(raw, job_id)
        server_setting("maxmemory", "1")
        await lab.maintain("promote")
        await wait_until(
            lambda: "children" in (raw.field(f"job:{job_id}", "waits_for") or ""), "the wait"
        )
        assert not [each for each in raw.fields(f"job:{job_id}:steps") if each.startswith("k:")]
        server_setting("maxmemory", "0")
        make_due(raw, job_id)
        await lab.maintain("promote")
        result = (await ended(lab, job_id))["result"]
    assert result == ["one", "ann", "render-a", "render-b", "two"]
    assert paid(tmp_path / "paid").count("one") == 1
    assert raw.field(f"job:{job_id}", "attempt") is None, "not a failure"


@clause("D-15")
@pytest.mark.parametrize("kind", KINDS)
async def test_d15_a_failed_child_fails_its_parent(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str
) -> None:
    work = {"path": str(tmp_path / "paid"), "children": ["bad", "b"]}
    job_id = await submit(lab, kind, work, queue=QUEUE)
    async with working(lab):
        assert (await ended(lab, job_id))["code"] == "child_failed"
    assert "render-b" in paid(tmp_path / "paid"), "after all have ended"


def app_of(handler: Any, task: str = "odd", **options: Any) -> App:
    app = App("odd")
    app.handler(task, uses={"durable"}, **options)(handler)
    return app


async def run_alone(lab: StreamsLab, handler: Any, **options: Any) -> dict[str, Any]:
    """A job of this handler, to its end."""
    job_id = await submit(lab, "odd", {}, queue=QUEUE)
    async with working(lab, app_of(handler, **options)):
        return await ended(lab, job_id)


@clause("D-18")
async def test_d18_what_suspends_is_declared_and_has_a_queue_of_its_own(lab: StreamsLab) -> None:
    app = App("plain")

    @app.handler("odd")
    async def undeclared(ctx: Context) -> None:
        await ctx.sleep(60)

    job_id = await submit(lab, "odd", {}, queue=QUEUE)
    async with working(lab, app):
        assert (await ended(lab, job_id))["code"] == "unsupported"

    async def waits(ctx: Context) -> None:
        await ctx.sleep(1)

    job_id = await submit(lab, "odd", {})
    async with working(lab, app_of(waits), "default"):
        assert (await ended(lab, job_id))["code"] == "unsupported"
    with pytest.raises(SettingsError, match="may take jobs of the queue 'default'"):
        app_queues(app_of(waits, "chat"), load(environ={}).settings)
    named = App("podcasts")
    named.handler("odd", uses={"durable"}, queue="media")(waits)
    assert app_queues(named, load(environ={}).settings).by_task == {"odd": "media"}


@clause("D-16")
async def test_d16_children_are_bounded(lab: StreamsLab, raw: Raw) -> None:
    async def submits(ctx: Context) -> None:
        await ctx.submit("odd", {})

    for field, value in (("depth", 8), ("children", 1000)):
        job_id = await submit(lab, "odd", {}, queue=QUEUE)
        raw.call("HSET", f"job:{job_id}", field, value)
        async with working(lab, app_of(submits)):
            assert (await ended(lab, job_id))["code"] == "child_limit"

    async def unknown(ctx: Context) -> None:
        await ctx.submit("nobody", {})

    assert (await run_alone(lab, unknown))["code"] == "unknown_task"

    async def invalid(ctx: Context) -> None:
        await ctx.submit("odd", [1])

    assert (await run_alone(lab, invalid))["code"] == "invalid_payload"


@clause("D-14")
async def test_d14_a_child_that_is_refused_affects_no_other_job(lab: StreamsLab, raw: Raw) -> None:
    """Regression: the queue of the refused child stayed selected, and the next job was lost."""
    tasks = {"odd": QUEUE, "broken": "broken"}
    worker = StreamsEngine(lab.connection, lab.settings, queues=[QUEUE], task_queues=tasks)
    await worker.register([TaskDefinition(task) for task in tasks], slots=2)
    for _ in range(2):
        await submit(lab, "odd", {}, queue=QUEUE)
    one, other = await worker.take(2)
    children = [
        (leased, child_job_id(leased.job.id, task), task)
        for leased, task in ((one, "broken"), (other, "odd"))
    ]
    reports = [
        (leased, Report(SUBMIT_KIND, json.dumps([child, task, "{}"]), f"k::1@{task}"))
        for leased, child, task in children
    ]
    raw.call("SET", "jobs:stream:broken", "no stream")
    assert await worker.report(reports) == [ReportAnswer.REFUSED, ReportAnswer.WRITTEN]
    raw.delete("jobs:stream:broken")
    refused = children[0][1]
    assert not raw.exists(f"job:{refused}"), "it would never run"
    assert await worker.report(reports) == [ReportAnswer.WRITTEN] * 2
    assert [fields["job_id"] for _, fields in raw.entries("jobs:stream:broken")] == [refused]
    assert raw.field(f"job:{refused}", "parent") == f"{one.job.id} :1@broken"
    await worker.settle([(leased, Done("1")) for leased in (one, other)], 0)
    await worker.deregister()


@clause("D-16")
async def test_d16_children_of_a_canceled_job_are_canceled(
    served: ServedJobs, lab: StreamsLab, raw: Raw, tmp_path: Path
) -> None:
    async def submits(ctx: Context) -> None:
        await ctx.gather(await ctx.submit("elsewhere", {}))

    worker = await lab.worker("elsewhere", queues=["elsewhere"])
    job_id = await submit(lab, "odd", {}, queue=QUEUE)
    async with working(lab, app_of(submits)):
        await until_suspended(raw, job_id)
    (child,) = served.client.get(f"/v1/jobs/{job_id}").json()["children"]["first"]
    assert served.client.get(f"/v1/jobs/{child['job_id']}").json()["parent"]["job_id"] == job_id
    (leased,) = await worker.take(1)
    raw.call("HSET", f"job:{job_id}", "status", "canceled")
    assert await worker.renew([leased]) == ["cancel"], "as by a cancel of its own"
    raw.call("HSET", f"job:{job_id}", "status", "queued")
    await worker.settle([(leased, Released())], 0)
    assert served.client.post(f"/v1/jobs/{job_id}/cancel").json()["outcome"] == "canceled"
    assert raw.field(f"job:{child['job_id']}", "status") == "canceled", "at once"
    children = served.client.get(f"/v1/jobs/{job_id}").json()["children"]
    assert (children["open"], children["canceled"]) == (0, 1)
    assert children["first"][0]["status"] == "canceled"


@clause("D-16")
async def test_d16_the_open_children_of_a_running_job_are_canceled_with_it(
    served: ServedJobs, lab: StreamsLab, raw: Raw
) -> None:
    """Regression: a child that waited for its approval outlived its canceled parent, and ran."""

    async def submits(ctx: Context) -> None:
        await ctx.submit("elsewhere", {})
        await asyncio.Event().wait()

    await lab.worker("elsewhere", queues=["elsewhere"])
    job_id = await submit(lab, "odd", {}, queue=QUEUE)
    record = f"job:{job_id}:steps"
    async with working(lab, app_of(submits)):
        await wait_until(lambda: raw.exists(record), "the child")
        child = json.loads(raw.fields(record)["k::1@elsewhere"])[0]
        assert served.client.post(f"/v1/jobs/{job_id}/cancel").status_code == 202
        assert raw.field(f"job:{child}", "status") == "canceled", "at once"
        await ended(lab, job_id)
    assert raw.field(f"job:{job_id}", "status") == "canceled"


@clause("D-16")
async def test_d16_a_repeated_cancel_reaches_the_children_that_the_first_did_not(
    served: ServedJobs, lab: StreamsLab, raw: Raw
) -> None:
    async def submits(ctx: Context) -> None:
        await ctx.run("elsewhere", {})

    worker = await lab.worker("elsewhere", queues=["elsewhere"])
    jobs = [await submit(lab, "odd", {}, queue=QUEUE) for _ in range(2)]
    async with working(lab, app_of(submits)):
        for job_id in jobs:
            await until_suspended(raw, job_id)
    first, second = [
        json.loads(raw.fields(f"job:{each}:steps")["k::1@elsewhere"])[0] for each in jobs
    ]
    # As a gateway that dies after the first of its two calls.
    assert await lab.queue.cancel(jobs[0]) == "canceled"
    problem(served.client.post(f"/v1/jobs/{jobs[0]}/cancel"), 409, "already_finished")
    assert raw.field(f"job:{first}", "status") == "canceled"
    # As a purge, which leaves them: their parent lives until they look at it.
    assert await lab.queue.cancel(jobs[1]) == "canceled"
    assert raw.ttl_s(f"job:{jobs[1]}") > 300
    assert await worker.take(1) == []
    assert raw.field(f"job:{second}", "status") == "canceled"


@clause("D-16")
async def test_d16_the_cancel_of_children_reads_no_results(lab: StreamsLab, raw: Raw) -> None:
    """Regression: the records of a thousand children are up to four gigabytes."""

    def sent_bytes() -> int:
        return cast(int, raw.plain.info("stats")["total_net_output_bytes"])

    parent, *children = [await lab.submit() for _ in range(5)]
    for at, child in enumerate(children):
        raw.call("HSET", f"job:{parent}", "children", len(children))
        raw.call("HSET", f"job:{parent}:steps", f"k::{at}@x", json.dumps([child, "x"]))
    below = await lab.submit()
    raw.call("HSET", f"job:{children[0]}", "children", 1)
    raw.call("HSET", f"job:{children[0]}:steps", "k:a@x", json.dumps([below, "x"]))
    for job_id in (parent, *children):
        raw.call("HSET", f"job:{job_id}:steps", "s:large", json.dumps([1, 1, "x" * 250_000]))
        raw.call("EXPIRE", f"job:{job_id}:steps", 600)
    before = sent_bytes()
    await lab.queue.cancel_children(parent)
    assert sent_bytes() - before < 100_000
    for job_id in (*children, below):
        assert raw.field(f"job:{job_id}", "status") == "canceled"


@clause("D-14")
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_d14_two_branches_that_submit_the_same_child_both_get_it(
    lab: StreamsLab, raw: Raw, kind: str
) -> None:
    """Regression: one of them waited for ever."""

    async def branches(ctx: Context) -> list[str]:
        made = await asyncio.gather(*(ctx.submit("elsewhere", {}, key="a") for _ in range(3)))
        return [each.job_id for each in made]

    def threads(ctx: SyncContext) -> list[str]:
        with ThreadPoolExecutor(3) as pool:
            made = [pool.submit(ctx.submit, "elsewhere", {}, key="a") for _ in range(3)]
        return [each.result().job_id for each in made]

    await lab.worker("elsewhere", queues=["elsewhere"])
    answer = await run_alone(lab, branches if kind == "async" else threads)
    assert len(answer["result"]) == 3
    assert len(set(answer["result"])) == 1
    await lab.queue.cancel(answer["result"][0])


@clause("D-14", "D-16", "J-16")
async def test_d14_a_job_that_is_to_be_canceled_submits_nothing_and_ends(
    connection: Connection, lab: StreamsLab, raw: Raw
) -> None:
    """Regression: where the child's answer overtook the cancel request, the worker took its lease
    for lost, and the job ended a lease later, without its partial result."""

    async def submits(ctx: Context) -> None:
        ctx.partial = "half"
        while True:
            await ctx.submit("elsewhere", {})

    await lab.worker("elsewhere", queues=["elsewhere"])
    # Without cancel requests: the answer to a child is always first.
    engine = StreamsEngine(connection, lab.settings, queues=[QUEUE], task_queues={"odd": QUEUE})
    engine.cancels = _no_cancels
    worker = Worker(app_of(submits), [engine], slots=1)
    running = await started(worker)
    job_id = await submit(lab, "odd", {}, queue=QUEUE)
    try:
        await wait_until(lambda: raw.exists(f"job:{job_id}:steps"), "the first child")
        assert await lab.queue.cancel(job_id) == "requested"
        assert (await ended(lab, job_id))["status"] == "canceled"
        assert "half" in (await lab.events(job_id))[-1]["data"], "its partial result"
    finally:
        await stopped(worker, running)
    await lab.queue.cancel_children(job_id)


async def _no_cancels() -> AsyncGenerator[CancelRequest]:
    await asyncio.Event().wait()
    yield CancelRequest(Token(""))


@clause("D-17")
async def test_d17_children_are_listed_in_the_order_of_their_numbers(
    served: ServedJobs, lab: StreamsLab, raw: Raw
) -> None:
    job_id = await lab.submit()
    made = [field for n in (10, 2, 1) for field in (f"k::{n}@leaf", '["x","leaf"]')]
    raw.call("HSET", f"job:{job_id}:steps", *made, "k:a@leaf", '["x","leaf"]')
    raw.expire(f"job:{job_id}:steps", 600)
    raw.call("HSET", f"job:{job_id}", "steps", 4)
    first = served.client.get(f"/v1/jobs/{job_id}").json()["children"]["first"]
    assert [each["name"] for each in first] == ["a@leaf", ":1@leaf", ":2@leaf", ":10@leaf"]


@clause("D-16")
async def test_d16_a_child_is_not_started_after_its_parent_was_canceled(
    lab: StreamsLab, raw: Raw
) -> None:
    worker = await lab.worker("odd", queues=[QUEUE])
    parent, child = [await submit(lab, "odd", {}, queue=QUEUE) for _ in range(2)]
    await lab.queue.cancel(parent)
    raw.call("HSET", f"job:{child}", "parent", f"{parent} :1@odd")
    assert await worker.take(1) == []
    assert raw.field(f"job:{child}", "status") == "canceled"


@clause("D-15")
async def test_d15_a_large_result_stays_with_the_child(lab: StreamsLab, raw: Raw) -> None:
    app = App("large")

    @app.handler("large", uses={"durable"})
    async def large(ctx: Context) -> str:
        return "x" * 300_000

    @app.handler("odd", uses={"durable"})
    async def parent(ctx: Context) -> int:
        return len(await ctx.run(large, {}))

    job_id = await submit(lab, "odd", {}, queue=QUEUE)
    async with working(lab, app):
        assert (await ended(lab, job_id))["result"] == 300_000
    record = raw.fields(f"job:{job_id}:steps")
    assert json.loads(record["c::1@large"])[1:] == ["done"]
    child = json.loads(record["k::1@large"])[0]
    assert raw.field(f"job:{job_id}", "kept_children") == f"{child} "


@clause("D-15")
@pytest.mark.parametrize(
    ("written", "result"),
    [
        *(("no JSON", "no JSON"), ('{"a": 0.5}', {"a": 0.5}), ('{"a": NaN}', '{"a": NaN}')),
        *(("0x10", "0x10"), (b'"caf\xe9"', '"caf\ufffd"')),
    ],
)
async def test_d15_the_end_of_a_child_by_foreign_code_is_seen(
    lab: StreamsLab, raw: Raw, written: str | bytes, result: object
) -> None:
    async def submits(ctx: Context) -> Any:
        return await ctx.run("elsewhere", {})

    await lab.worker("elsewhere", queues=["elsewhere"])
    job_id = await submit(lab, "odd", {}, queue=QUEUE)
    async with working(lab, app_of(submits)):
        await until_suspended(raw, job_id)
        child = json.loads(raw.fields(f"job:{job_id}:steps")["k::1@elsewhere"])[0]
        raw.call("HSET", f"job:{child}", "status", "done", "result", written)
        raw.call("ZADD", "jobs:open", 1, child)
        await lab.maintain("extend_ttl")
        assert (await ended(lab, job_id))["result"] == result


@clause("D-13")
async def test_d13_a_suspended_job_lives_until_it_is_due_and_longer(
    lab: StreamsLab, raw: Raw, tmp_path: Path
) -> None:
    day_ms = 86_400_000
    work = {"path": str(tmp_path / "paid"), "signal": "approval", "timeout_s": 30 * 86_400}
    job_id = await submit(lab, "async", work, queue=QUEUE, ttl_s=60, idempotency_key="once")
    keys = [f"job:{job_id}{suffix}" for suffix in ("", ":events", ":steps", ":awaits")]
    keys.append("idempotency:once")

    def lifetimes() -> list[int]:
        return [round(cast(int, raw.call("PTTL", key)) / day_ms) for key in keys]

    async with working(lab):
        await until_suspended(raw, job_id)
        assert lifetimes() == [37] * 5
        raw.call("ZADD", "jobs:open", 1, job_id)
        await lab.maintain("extend_ttl")
        assert lifetimes() == [37] * 5, "a renewal shortens nothing"
        await lab.queue.signal(job_id, "approval", '{"by":"ann"}')
        await ended(lab, job_id)
    assert cast(int, raw.call("PTTL", keys[0])) <= 60_000, "its own again"
    assert float(cast(str, raw.call("ZSCORE", "jobs:open", job_id) or 0)) == 0


@clause("D-24")
@pytest.mark.parametrize("kind", ["async", "def"])
async def test_d24_a_job_begins_anew(lab: StreamsLab, raw: Raw, kind: str) -> None:
    async def turns(ctx: Context) -> list[Any]:
        turn = ctx.payload.get("turn", 1)
        found = await ctx.step("count", lambda: turn)
        made = await ctx.run("echo", {"turn": turn})
        return [found, made] if turn == 3 else await ctx.restart({"turn": turn + 1})

    def turns_in_def(ctx: SyncContext) -> list[Any]:
        turn = ctx.payload.get("turn", 1)
        found = ctx.step("count", lambda: turn)
        made = ctx.run("echo", {"turn": turn})
        return [found, made] if turn == 3 else ctx.restart({"turn": turn + 1})

    async def echo(ctx: Context) -> int:
        return ctx.payload["turn"]

    app = app_of(turns if kind == "async" else turns_in_def)
    app.handler("echo")(echo)
    job_id = await submit(lab, "odd", {}, queue=QUEUE)
    async with working(lab, app):
        assert (await ended(lab, job_id))["result"] == [3, 3]
    assert raw.fields(f"job:{job_id}:steps")["n:"] == "2"


@clause("D-24", "D-15")
async def test_d24_children_of_an_earlier_beginning_end_unheard(lab: StreamsLab, raw: Raw) -> None:
    async def turns(ctx: Context) -> Any:
        child = await ctx.submit("elsewhere", ctx.payload)
        return (await ctx.gather(child)) if ctx.payload else await ctx.restart({"turn": 2})

    worker = await lab.worker("elsewhere", queues=["elsewhere"])
    job_id = await submit(lab, "odd", {}, queue=QUEUE)
    async with working(lab, app_of(turns)):
        await until_suspended(raw, job_id)
        for leased in await worker.take(2):
            await worker.settle([(leased, Done(json.dumps(leased.job.payload)))], 0)
        assert (await ended(lab, job_id))["result"] == [{"turn": 2}]


@clause("D-11")
@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan"), 2**63, timedelta(days=3660)])
async def test_d11_a_sleep_has_a_longest_time(lab: StreamsLab, seconds: float | timedelta) -> None:
    """Regression: one beyond the server's numbers left its job running for ever."""

    async def sleeps(ctx: Context) -> None:
        await ctx.sleep(seconds)

    assert (await run_alone(lab, sleeps))["code"] == "handler_error"


@clause("D-6", "D-12")
async def test_d06_waits_for_signals_are_bounded(connection: Connection, raw: Raw) -> None:
    async def waits(ctx: Context) -> None:
        for number in range(10):
            with suppress(SignalTimeout):
                await ctx.wait_for_signal(f"s{number}", timeout_s=60)

    lab = StreamsLab(connection, max_records=4)
    job_id = await submit(lab, "odd", {}, queue=QUEUE)
    async with working(lab, app_of(waits)):
        for _ in range(4):
            await until_suspended(raw, job_id)
            make_due(raw, job_id)
            await lab.maintain("promote")
        assert (await ended(lab, job_id))["code"] == "step_too_large"


@clause("D-11", "D-12")
async def test_d11_no_sleep_has_the_time_of_a_signal(lab: StreamsLab) -> None:
    async def sleeps(ctx: Context) -> str:
        try:
            await ctx.sleep(3600, name="signal")
        except ValueError as error:
            return str(error)
        return "slept"

    assert "'signal' cannot name a sleep" in (await run_alone(lab, sleeps))["result"]


@clause("D-9")
@pytest.mark.parametrize("kind", KINDS)
async def test_d09_middleware_sees_that_the_job_is_suspended(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str
) -> None:
    seen: list[str] = []

    async def watch(ctx: Context[Any, Any], call_next: CallNext) -> object:
        try:
            return await call_next()
        except BaseException as error:
            seen.append(type(error).__name__)
            raise

    app = waiting_handlers.app.wrapped(lambda handler: handler)
    app.middleware(watch)
    work = {"path": str(tmp_path / "paid"), "signal": "approval"}
    job_id = await submit(lab, kind, work, queue=QUEUE)
    async with working(lab, app):
        await until_suspended(raw, job_id)
        assert seen == ["JobSuspended"]
        await lab.queue.signal(job_id, "approval", '{"by":"ann"}')
        assert (await ended(lab, job_id))["result"] == ["one", "ann", "two"]
    assert seen == ["JobSuspended"]


@clause("D-9")
async def test_d09_a_suspending_call_ends_all_branches(lab: StreamsLab, raw: Raw) -> None:
    ended_branches: list[str] = []

    async def branches(ctx: Context) -> None:
        async def paid() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended_branches.append("paid")

        await asyncio.gather(paid(), ctx.sleep(60))

    job_id = await submit(lab, "odd", {}, queue=QUEUE)
    async with working(lab, app_of(branches)):
        await until_suspended(raw, job_id)
        assert ended_branches == ["paid"]
    await lab.queue.cancel(job_id)


@clause("D-10")
async def test_d10_beyond_the_bound_a_job_is_delayed_and_looks_again(
    connection: Connection, raw: Raw, tmp_path: Path
) -> None:
    async with StreamsLab(connection, max_suspended=0) as lab:
        work = {"path": str(tmp_path / "paid"), "signal": "approval"}
        job_id = await submit(lab, "async", work, queue=QUEUE)
        async with working(lab):
            await wait_until(lambda: raw.members("jobs:delayed") == [job_id], "the delay")
            assert not raw.exists(SUSPENDED)
            await lab.queue.signal(job_id, "approval", '{"by":"ann"}')
            raw.call("ZADD", "jobs:delayed", 1, job_id)
            await lab.maintain("promote")
            assert (await ended(lab, job_id))["result"] == ["one", "ann", "two"]


@clause("D-24", "D-12")
async def test_d24_a_signal_that_nobody_has_read_outlives_a_restart(
    lab: StreamsLab, raw: Raw
) -> None:
    """Regression: it was acknowledged, and the new beginning waited in vain."""

    async def turns(ctx: Context) -> Any:
        if not ctx.payload:
            found = await ctx.wait_for_signal("first")
            await ctx.restart({"found": found})
        return [ctx.payload["found"], await ctx.wait_for_signal("second")]

    job_id = await submit(lab, "odd", {}, queue=QUEUE)
    for name in ("second", "first"):
        assert await lab.queue.signal(job_id, name, f'"{name}"') == "recorded"
    async with working(lab, app_of(turns)):
        assert (await ended(lab, job_id))["result"] == ["first", "second"]
    assert "g:first" not in raw.fields(f"job:{job_id}:steps"), "it can be sent anew"


@clause("D-13", "J-57")
async def test_d13_a_suspended_job_that_is_canceled_leaves_no_wait_behind(
    lab: StreamsLab, raw: Raw, tmp_path: Path
) -> None:
    """Regression: `waits_for` stayed in its hash; beside an older version, `awaits` did."""
    work = {"path": str(tmp_path / "paid"), "signal": "approval"}
    ours, theirs = [await submit(lab, "async", work, queue=QUEUE) for _ in range(2)]
    async with working(lab):
        for job_id in (ours, theirs):
            await until_suspended(raw, job_id)
    await lab.queue.cancel(ours)
    raw.call("HSET", f"job:{theirs}", "status", "canceled")
    raw.call("ZREM", "jobs:open", theirs)
    make_due(raw, theirs)
    await lab.maintain("promote")
    for job_id in (ours, theirs):
        assert "waits_for" not in raw.fields(f"job:{job_id}")
    assert not raw.exists(SUSPENDED, f"job:{ours}:awaits", f"job:{theirs}:awaits")
    assert raw.fields(f"job:{ours}:steps")["s:one"], "what was paid is kept for a retry"


@clause("D-29")
@pytest.mark.parametrize("where", ["queued", "suspended", "delayed", "running", "thread"])
async def test_d29_a_deadline_is_that_of_the_whole_job(
    lab: StreamsLab, raw: Raw, where: str
) -> None:
    begun: list[int] = []

    async def main(ctx: Context) -> None:
        begun.append(ctx.attempt)
        ctx.partial = "half"
        if where == "suspended":
            await ctx.wait_for_signal("never")
        if where == "delayed":
            raise Retry(after=3600)
        await asyncio.sleep(600)

    def main_in_def(ctx: SyncContext) -> None:
        begun.append(ctx.attempt)
        ctx.partial = "half"
        while not ctx.cancelled:
            time.sleep(0.01)

    app = app_of(main_in_def if where == "thread" else main, retries=5)
    is_running = where in ("running", "thread")
    job_id = await submit(lab, "odd", {}, queue=QUEUE, deadline_s=0.2 if is_running else 900)
    # As if the job were nearly as old as it may get.
    past = {"HSET": (f"job:{job_id}", "created_ts", raw.now_ms() - 901_000)}
    if where == "queued":
        raw.call("HSET", *past["HSET"])
    async with working(lab, app):
        if where in ("suspended", "delayed"):
            key = f"jobs:{where}"
            await wait_until(lambda: raw.members(key) == [job_id], "the wait")
            due_ms = float(cast(str, raw.call("ZSCORE", key, job_id)))
            created_ms = int(raw.field(f"job:{job_id}", "created_ts") or 0)
            assert due_ms == created_ms + 900_000, "it is woken at its deadline"
            raw.call("HSET", *past["HSET"])
            raw.call("ZADD", key, 1, job_id)
            await lab.maintain("promote")
        found = await ended(lab, job_id)
    assert found["code"] == "deadline_exceeded"
    assert begun == ([] if where == "queued" else [1])
    error = json.loads(raw.field(f"job:{job_id}", "error") or "")
    assert error.get("partial") == ("half" if is_running else None)
    assert error["retryable"] is False


@clause("D-29")
async def test_d29_a_deadline_over_http(served: ServedJobs, lab: StreamsLab) -> None:
    await lab.worker("later")
    body: dict[str, object] = {"task": "later", "payload": {}, "deadline_s": 60.5}
    job = served.client.post("/v1/jobs", json=body).json()
    assert served.client.get(f"/v1/jobs/{job['job_id']}").json()["deadline_s"] == 60.5
    refused = served.client.post("/v1/jobs", json={**body, "deadline_s": 0})
    assert refused.status_code == 422
    await lab.queue.cancel(job["job_id"])
