"""D-1 … D-7: steps whose results are recorded, on a real server, in the three kinds of handlers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobwire import App, Context, Fail, StepInterrupted
from jobwire.job.messages import (
    RECORD_KIND,
    Done,
    JobError,
    JobId,
    LeasedJob,
    Report,
    ReportAnswer,
    RetryLater,
)
from jobwire.job.retry import fixed
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.valkey import Connection
from jobwire.worker import Worker
from tests.contracts import durable_handlers
from tests.contracts.durable_handlers import KINDS, calls
from tests.support import clause, wait_until
from tests.support.raw import Raw, Recording, foreign_job
from tests.support.streams import StreamsLab
from tests.support.workers import started, stopped


@asynccontextmanager
async def working(lab: StreamsLab, app: App) -> AsyncGenerator[Worker]:
    """A worker of the App on the queue of the lab."""
    engine = StreamsEngine(lab.connection, lab.settings)
    worker = Worker(app, [engine], slots=4)
    running = await started(worker)
    try:
        yield worker
    finally:
        await stopped(worker, running)


async def ended(lab: StreamsLab, job_id: JobId) -> dict[str, Any]:
    """The job after its end: status, result and error."""

    async def is_over() -> bool:
        return await lab.ends(job_id) > 0

    await wait_until(is_over, "the job to end")
    record = await lab.queue.record(job_id)
    assert record is not None
    error = json.loads(record.error_json or "null")
    result = json.loads(record.result_json or "null")
    return {"status": record.status, "result": result, "code": error and error["code"]}


async def submit(lab: StreamsLab, task: str, payload: object, **request: object) -> JobId:
    return await lab.submit(msgspec.json.encode(payload).decode(), task=task, **request)


def kinds_of(events: list[dict[str, str]]) -> list[str]:
    return [event["type"] for event in events]


# ── D-1, D-3 ─────────────────────────────────────────────────────────────────────────────────────


@clause("D-1", "D-2")
@pytest.mark.parametrize("kind", KINDS)
async def test_d01_results_are_recorded_in_order_with_the_reports(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str
) -> None:
    path = str(tmp_path / "calls")
    job_id = await submit(lab, kind, {"path": path})
    async with working(lab, durable_handlers.app):
        assert (await ended(lab, job_id))["result"] == [100, 100, 100]
    assert calls(path) == ["one", "two", "three"]
    record = raw.fields(f"job:{job_id}:steps")
    assert sorted(record) == ["s:one", "s:one:2", "s:two"], "a repeated name has its number"
    ended_ms, ms, bill = json.loads(record["s:one"])
    assert (0 < ended_ms <= raw.now_ms(), ms >= 0, bill) == (
        True,
        True,
        {"step": "one", "cents": 100},
    )
    assert raw.field(f"job:{job_id}", "steps") == "3"
    events = await lab.events(job_id)
    steps = ["before", "step_done", "between", "step_done", "step_done", "done"]
    assert kinds_of(events)[2:] == steps
    data = json.loads(events[3]["data"])
    bytes_of = len(record["s:one"]) - len(f"[{ended_ms},{ms},]")
    assert data == {"name": "one", "ms": ms, "bytes": bytes_of}
    assert events[3]["step"] == "worker.step"


@clause("D-1", "D-3", "D-4")
@pytest.mark.parametrize("kind", KINDS)
async def test_d01_a_recorded_step_is_not_called_again(
    lab: StreamsLab, tmp_path: Path, kind: str
) -> None:
    path = str(tmp_path / "calls")
    job_id = await submit(lab, kind, {"path": path, "fail": ["three"]})
    async with working(lab, durable_handlers.app):
        assert (await ended(lab, job_id))["result"] == [100, 100, 100]
    assert calls(path) == ["one", "two", "three", "three"]


@clause("D-3")
@pytest.mark.parametrize("kind", KINDS)
async def test_d03_nothing_is_paid_again_after_a_release(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str
) -> None:
    path = str(tmp_path / "calls")
    job_id = await submit(lab, kind, {"path": path, "stop": "three"})
    async with working(lab, durable_handlers.app):
        await wait_until((tmp_path / "waits").exists, "the handler to wait")
    assert raw.field(f"job:{job_id}", "deliveries") == "0", "the release took it back"
    (tmp_path / "go").touch()
    async with working(lab, durable_handlers.app):
        assert (await ended(lab, job_id))["result"] == [100, 100, 100]
    assert calls(path) == ["one", "two", "three"]


@clause("D-3")
async def test_d03_a_job_without_records_reads_none(lab: StreamsLab, raw: Raw) -> None:
    app, runs = App("plain"), []

    @app.handler("plain", retries=1, backoff=fixed(0))
    async def plain(ctx: Context) -> None:
        runs.append(ctx.attempt)
        if ctx.attempt == 1:
            raise RuntimeError

    with Recording(raw) as recorded:
        job_id = await submit(lab, "plain", {})
        async with working(lab, app):
            await ended(lab, job_id)
        assert recorded.on(f"job:{job_id}:steps") == [], "no command touches the record"
    assert runs == [1, 2]


@clause("D-3")
async def test_d03_a_record_of_another_type_ends_its_job_only(
    lab: StreamsLab, raw: Raw, tmp_path: Path
) -> None:
    path = str(tmp_path / "calls")
    broken, other = [await submit(lab, "async", {"path": path}) for _ in range(2)]
    raw.call("HSET", f"job:{broken}", "steps", "1", "deliveries", "1")
    raw.call("SET", f"job:{broken}:steps", "text", "EX", 60)
    async with working(lab, durable_handlers.app):
        assert (await ended(lab, broken))["code"] == "contract_violated"
        assert (await ended(lab, other))["status"] == "done"
    assert calls(path) == ["one", "two", "three"]
    raw.delete(f"job:{broken}:steps")


@clause("D-1", "D-5")
async def test_d01_the_server_has_the_record_before_the_handler_goes_on(
    lab: StreamsLab, raw: Raw
) -> None:
    app = App("order")

    @app.handler("order")
    async def order(ctx: Context) -> list[list[str]]:
        key, seen = f"job:{ctx.job.id}:steps", list[list[str]]()

        def look() -> None:  # blocks the loop: nothing can be sent meanwhile
            seen.append(sorted(raw.fields(key)))

        await ctx.step("a", look)
        look()
        await ctx.step_once("b", look)
        look()
        return seen

    job_id = await submit(lab, "order", {})
    async with working(lab, app):
        found = await ended(lab, job_id)
    assert found["result"] == [[], ["s:a"], ["o:b", "s:a"], ["s:a", "s:b"]]


# ── the script ───────────────────────────────────────────────────────────────────────────────────


def result(name: str, value: object = 1) -> Report:
    return Report(RECORD_KIND, f"[0,5,{json.dumps(value)}]", f"s:{name}")


@clause("D-1", "J-33")
async def test_d01_a_zombie_records_nothing(lab: StreamsLab, raw: Raw) -> None:
    zombie, leased = await lab.start()
    await lab.silence(zombie)
    other = await lab.worker()
    (taken,) = await other.take(1)
    assert await zombie.report([(leased, result("a"))]) == [ReportAnswer.LOST]
    assert not raw.exists(f"job:{leased.job.id}:steps")
    await other.settle([(taken, Done("1"))], 0)
    assert await other.report([(taken, result("a"))]) == [ReportAnswer.LOST], "it has ended"
    assert not raw.exists(f"job:{leased.job.id}:steps")


@clause("D-1", "J-9")
async def test_d01_a_repeated_record_changes_nothing(lab: StreamsLab, raw: Raw) -> None:
    worker, leased = await lab.start()
    batch = [(leased, Report("note", "1", number=1)), (leased, result("a"))]
    batch += [(leased, Report("note", "2", number=3)), (leased, result("b"))]
    for _ in range(2):
        assert await worker.report(batch) == [ReportAnswer.WRITTEN] * 4
    kinds = kinds_of(await lab.events(leased.job.id))
    assert kinds == ["queued", "running", "note", "step_done", "note", "step_done"]
    other = Report(RECORD_KIND, "[0,5,2]", "s:a")
    assert await worker.report([(leased, other)]) == [ReportAnswer.REFUSED]
    assert (raw.field(f"job:{leased.job.id}:steps", "s:a") or "").endswith(",5,1]")
    await worker.settle([(leased, Done("1"))], 0)


@clause("D-1", "J-53")
async def test_d01_records_of_several_jobs_and_queues_travel_together(lab: StreamsLab) -> None:
    worker = await lab.worker(queues=("default", "media"))
    ids = [await lab.submit(queue=queue) for queue in ("", "media", "", "media")]
    jobs = [await worker.take(1) for _ in ids]
    batch = [(leased, each) for (leased,) in jobs for each in (result("a"), Report("n", "1"))]
    assert await worker.report(batch) == [ReportAnswer.WRITTEN] * 8
    for (leased,) in jobs:
        kinds = kinds_of(await lab.events(leased.job.id))
        assert kinds == ["queued", "running", "step_done", "n"]
    await worker.settle([(leased, Done("1")) for (leased,) in jobs], 0)


async def record_of(worker: StreamsEngine, lab: StreamsLab) -> LeasedJob:
    (leased,) = await worker.take(1)
    await worker.report([(leased, result(f"at-{leased.job.deliveries}"))])
    return leased


@clause("D-1", "J-7")
async def test_d01_a_record_lives_as_long_as_its_job(lab: StreamsLab, raw: Raw) -> None:
    worker = await lab.worker()
    job_id = await lab.submit(ttl_s=1000)
    key, steps = f"job:{job_id}", f"job:{job_id}:steps"

    def lifetimes() -> tuple[bool, bool]:
        found = raw.ttl_s(key) > 900, raw.ttl_s(steps) > 900
        raw.expire(key, 500)
        raw.expire(steps, 500)
        return found

    leased = await record_of(worker, lab)
    assert lifetimes() == (True, True)
    raw.call("ZADD", "jobs:open", 1, job_id)
    await lab.maintain("extend_ttl")
    assert lifetimes() == (True, True)
    recorded = leased._replace(records=1)
    await worker.settle([(recorded, RetryLater(0, JobError("e", "e", True)))], 0)
    assert lifetimes() == (True, True)
    (leased,) = await worker.take(1)
    assert leased.records == 1, "the take answers it"
    await worker.settle([(leased, Done("1"))], 0)
    assert lifetimes() == (True, True)


@clause("D-13", "J-57")
async def test_j57_a_job_that_was_started_keeps_its_record_when_it_is_canceled(
    lab: StreamsLab, raw: Raw
) -> None:
    """It can be retried with its steps as long as any other."""
    worker = await lab.worker()
    job_id = await lab.submit(ttl_s=100_000)
    leased = await record_of(worker, lab)
    await worker.settle([(leased, RetryLater(60, JobError("e", "e", True)))], 0)
    assert await lab.queue.cancel(job_id) == "canceled"
    assert raw.ttl_s(f"job:{job_id}:steps") > 90_000 < raw.ttl_s(f"job:{job_id}")
    fresh = await lab.submit(ttl_s=100_000)
    assert await lab.queue.cancel(fresh) == "canceled"
    assert 0 < raw.ttl_s(f"job:{fresh}") <= 300, "it has done nothing yet"


@clause("D-7", "J-34")
async def test_d07_lost_deliveries_before_a_new_record_do_not_count(
    connection: Connection, raw: Raw
) -> None:
    async with StreamsLab(connection, max_deliveries=2) as lab:
        job_id = await lab.submit()
        for _ in range(4):
            worker = await lab.worker()
            await record_of(worker, lab)
            await lab.silence(worker)
        for _ in range(1):
            worker = await lab.worker()
            (leased,) = await worker.take(1)
            assert leased.job.deliveries == 5
            await lab.silence(worker)
        last = await lab.worker()
        assert await last.take(1) == []
        assert json.loads(raw.field(f"job:{job_id}", "error") or "")["code"] == "delivery_limit"


# ── beside programs of others ────────────────────────────────────────────────────────────────────


@clause("D-1", "J-39")
async def test_d01_a_foreign_gateways_job_records_its_steps(
    lab: StreamsLab, raw: Raw, tmp_path: Path
) -> None:
    path = str(tmp_path / "calls")
    payload = json.dumps({"path": path, "fail": ["three"]})
    job_id = JobId("foreign")
    raw.call("XDEL", "jobs:stream", foreign_job(raw, job_id, task="async", payload=payload))
    raw.add("jobs:stream", {"job_id": job_id, "task": "async", "payload": payload})
    async with working(lab, durable_handlers.app):
        assert (await ended(lab, job_id))["result"] == [100, 100, 100]
    assert calls(path) == ["one", "two", "three", "three"]


@clause("D-1", "D-18", "J-33")
async def test_d01_a_foreign_worker_takes_a_job_with_a_record_over(
    lab: StreamsLab, raw: Raw
) -> None:
    worker, leased = await lab.start()
    assert await worker.report([(leased, result("a"))]) == [ReportAnswer.WRITTEN]
    (entry,) = raw.pending("jobs:stream")
    raw.call("XCLAIM", "jobs:stream", "workers", "foreign-1", 0, entry)
    assert await worker.report([(leased, result("b"))]) == [ReportAnswer.LOST]
    key = f"job:{leased.job.id}"
    assert list(raw.fields(f"{key}:steps")) == ["s:a"]
    raw.call("HSET", key, "status", "done", "result", "1")
    raw.add(f"{key}:events", {"type": "done", "ts": "1", "step": "theirs", "data": "{}"})
    raw.call("XACK", "jobs:stream", "workers", entry)
    await lab.sweep()
    assert await lab.ends(leased.job.id) == 1
    assert raw.ttl_s(f"{key}:steps") > 0


# ── D-2, D-4 ─────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Point:
    x: int


@clause("D-2", "D-4")
async def test_d04_a_result_has_the_annotated_type_on_every_run(lab: StreamsLab) -> None:
    app, seen = App("types"), list[object]()

    async def point() -> Point:
        return Point(1)

    def pairs() -> tuple[int, ...]:
        return (1, 2)

    def anything():
        return (1, Point(2))

    def wrong() -> int:
        return "one"  # pyright: ignore[reportReturnType] - the fault under test

    @app.handler("types", retries=1, backoff=fixed(0))
    async def types(ctx: Context) -> None:
        found: list[object] = [await ctx.step("point", point), await ctx.step("pairs", pairs)]
        found += [await ctx.step("any", anything), await ctx.step("lambda", lambda: {1})]
        seen.append(found)
        if ctx.attempt == 1:
            raise RuntimeError
        await ctx.step("wrong", wrong)

    job_id = await submit(lab, "types", {})
    async with working(lab, app):
        assert (await ended(lab, job_id))["code"] == "step_invalid"
    wanted = [Point(1), (1, 2), [1, {"x": 2}], [1]]
    assert seen == [wanted, wanted]


@clause("D-2")
async def test_d02_the_number_of_a_name_is_that_of_its_call(lab: StreamsLab, raw: Raw) -> None:
    app = App("numbers")

    async def one(value: int) -> int:
        await asyncio.sleep(0.01 * (3 - value))
        return value

    @app.handler("numbers")
    async def numbers(ctx: Context) -> list[int]:
        for name in ("", "-a", "a b", "ä", "a" * 101, "a:2"):
            with pytest.raises(Fail, match="cannot name a step") as refused:
                await ctx.step(name, one, 1)
            assert refused.value.code == "step_invalid", "at once, without another attempt"
        later = ctx.step("n", one, 1)
        second = await ctx.step("n", one, 2)
        return [await later, second]

    job_id = await submit(lab, "numbers", {})
    async with working(lab, app):
        assert (await ended(lab, job_id))["result"] == [1, 2]
    record = raw.fields(f"job:{job_id}:steps")
    assert {name: json.loads(text)[2] for name, text in record.items()} == {"s:n": 1, "s:n:2": 2}


# ── D-5, D-6, D-7 ────────────────────────────────────────────────────────────────────────────────


@clause("D-5")
@pytest.mark.parametrize("kind", KINDS)
async def test_d05_a_step_that_failed_is_not_called_twice(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str
) -> None:
    path = str(tmp_path / "calls")
    job_id = await submit(lab, kind, {"path": path, "fail": ["two"]})
    async with working(lab, durable_handlers.app):
        assert (await ended(lab, job_id))["result"] == [100, -1, 100]
    assert calls(path) == ["one", "two", "three"]
    assert "o:two" in raw.fields(f"job:{job_id}:steps")


@clause("D-5")
@pytest.mark.parametrize("kind", KINDS)
async def test_d05_a_function_that_raises_retry_is_called_again(
    lab: StreamsLab, raw: Raw, tmp_path: Path, kind: str
) -> None:
    path = str(tmp_path / "calls")
    job_id = await submit(lab, kind, {"path": path, "fail": ["two"], "retry": True})
    async with working(lab, durable_handlers.app):
        assert (await ended(lab, job_id))["result"] == [100, 100, 100]
    assert calls(path) == ["one", "two", "two", "three"]
    assert "o:two" not in raw.fields(f"job:{job_id}:steps")


@clause("D-5")
async def test_d05_an_uncaught_interruption_ends_the_job(lab: StreamsLab, raw: Raw) -> None:
    app, paid = App("once"), list[int]()

    @app.handler("once", retries=5, backoff=fixed(0))
    async def once(ctx: Context) -> None:
        def charge() -> None:
            paid.append(1)
            raise RuntimeError

        mark = raw.field(f"job:{ctx.job.id}:steps", "o:charge")
        assert mark is None or ctx.attempt == 2
        await ctx.step_once("charge", charge)

    job_id = await submit(lab, "once", {})
    async with working(lab, app):
        assert (await ended(lab, job_id))["code"] == "step_interrupted"
    assert (paid, issubclass(StepInterrupted, Fail)) == ([1], True)


@clause("D-6")
async def test_d06_results_and_records_are_bounded(connection: Connection, raw: Raw) -> None:
    limits = {"max_step_bytes": 100, "max_record_bytes": 250, "max_records": 3}
    app, called = App("bounds"), list[str]()

    def text(size: int) -> str:
        called.append(f"{size}")
        return "x" * size

    @app.handler("bounds", retries=3, backoff=fixed(0))
    async def bounds(ctx: Context) -> None:
        for size in ctx.payload["sizes"]:
            await ctx.step("a", text, size)

    async with StreamsLab(connection, **limits) as lab:
        for sizes, wanted in (([99], 0), ([90, 90, 90], 2), ([1, 1, 1, 1], 3)):
            called.clear()
            job_id = await submit(lab, "bounds", {"sizes": sizes})
            async with working(lab, app):
                found = await ended(lab, job_id)
            assert found["code"] == "step_too_large"
            assert len(raw.fields(f"job:{job_id}:steps")) == wanted
            is_counted = sizes[0] == 1
            assert len(called) == wanted + (not is_counted), "nothing is paid beyond the number"


@clause("D-7")
@pytest.mark.parametrize("steps", [True, False])
async def test_d07_attempts_count_from_the_last_new_record(
    lab: StreamsLab, raw: Raw, steps: bool
) -> None:
    app, failures = App("attempts"), {"a": 1, "b": 1, "c": 1}

    @app.handler("attempts", retries=1, backoff=fixed(0))
    async def attempts(ctx: Context) -> int:
        for name, left in failures.items():
            if left and (name == "a" or steps):
                failures[name] = left - 1
                raise RuntimeError(name)
            if steps:
                await ctx.step(name, str, name)
        if not steps and ctx.attempt < 3:
            raise RuntimeError
        return ctx.attempt

    job_id = await submit(lab, "attempts", {})
    async with working(lab, app):
        found = await ended(lab, job_id)
    if steps:
        assert found["result"] == 4, "one failure between two records each"
        assert raw.field(f"job:{job_id}", "progress_attempt") == "4"
    else:
        assert (found["code"], raw.field(f"job:{job_id}", "attempt")) == ("handler_error", "2")


@clause("D-1", "J-36")
@pytest.mark.parametrize("kind", ["thread", "process"])
async def test_d01_events_after_many_steps_are_not_lost(lab: StreamsLab, kind: str) -> None:
    """Regression: each record made the window of the reports larger than their buffer."""
    job_id = await submit(lab, f"chatty-{kind}", {})
    async with working(lab, durable_handlers.app):
        assert (await ended(lab, job_id))["result"] == 500
    ticks = [event["data"] for event in await lab.events(job_id) if event["type"] == "tick"]
    assert ticks == [str(number) for number in range(500)]


@clause("D-2")
@pytest.mark.parametrize("kind", KINDS)
async def test_d02_middleware_and_handler_number_their_steps_together(
    lab: StreamsLab, kind: str
) -> None:
    """Regression: a handler in a process got the result of the middleware."""
    job_id = await submit(lab, kind, {})
    async with working(lab, durable_handlers.around):
        assert (await ended(lab, job_id))["result"] == ["before", "handler", "after"]
