"""A worker on BullMQ queues: features of handlers, and faults (B-11, B-14, B-15)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, Protocol, cast

import pytest
import pytest_asyncio

from jobwire import App, Context, Fail, Postpone, RateLimit, Retry, WaitForChildren
from jobwire.job.engine import Engine
from jobwire.job.messages import CancelOutcome
from jobwire.local import LocalValkey
from jobwire.systems.queues.add_batcher import Added
from jobwire.systems.queues.contract import BullState, Keys
from jobwire.systems.queues.engine import BullEngine
from jobwire.systems.queues.options import BullBackoff, BullJobOptions
from jobwire.systems.queues.queue import NewBullJob, QueueProducer
from jobwire.systems.queues.scripts import SCRIPTS
from jobwire.systems.queues.settings import BullSettings
from jobwire.systems.queues.worker_connections import WorkerConnections
from jobwire.valkey import Config, Connection
from jobwire.worker import Worker
from tests.support import Plain, clause, wait_until
from tests.support.proxy import Proxy
from tests.support.resp import Command
from tests.support.streams import StreamsLab
from tests.support.workers import started, stopped
from tests.systems.queues.conftest import OftenRenewed
from tests.worker.process_handlers import echo

QUEUE = "work"
QUIET = BullSettings(announce=False)
KEYS = Keys(QUEUE)


class Serve(Protocol):
    """Start a worker with an App on BullMQ queues, and further engines."""

    async def __call__(
        self,
        app: App,
        *queues: str,
        settings: BullSettings = QUIET,
        server: Connection | Config | None = None,
        more: tuple[Engine, ...] = (),
    ) -> BullEngine: ...


@pytest_asyncio.fixture
async def serve(connection: Connection) -> AsyncIterator[Serve]:
    running: list[tuple[Worker, asyncio.Task[None]]] = []

    async def start(
        app: App,
        *queues: str,
        settings: BullSettings = QUIET,
        server: Connection | Config | None = None,
        more: tuple[Engine, ...] = (),
    ) -> BullEngine:
        shared = WorkerConnections(server or connection, settings)
        engine = BullEngine(shared, *(queues or (QUEUE,)))
        worker = Worker(app, [engine, *more], slots=5)
        running.append((worker, await started(worker)))
        return engine

    yield start
    for worker, task in running:
        await stopped(worker, task)


@pytest.fixture
def queue(connection: Connection) -> QueueProducer:
    return QueueProducer(connection, QUEUE, QUIET)


async def add(queue: QueueProducer, name: str, data: object = None, **options: Any) -> str:
    answer = await queue.submit(name, json.dumps(data or {}), BullJobOptions(**options))
    assert isinstance(answer, Added)
    return answer.job_id


async def reached(queue: QueueProducer, job_id: str, state: BullState) -> None:
    async def is_there() -> bool:
        return await queue.state(job_id) is state

    await wait_until(is_there, f"job {job_id} to be {state}")


# ── both wires ───────────────────────────────────────────────────────────────────────────────────


@clause("B-11")
async def test_b11_one_worker_serves_both_wires_with_the_same_handler(
    connection: Connection, serve: Serve, queue: QueueProducer
) -> None:
    app = App()

    @app.handler("echo")
    @app.handler("*", queue=QUEUE, wire="bullmq")
    async def echo(ctx: Context) -> str:
        await ctx.progress(50, "half")
        return f"{ctx.job.task} on {ctx.job.source}"

    async with StreamsLab(connection) as lab:
        streams = await lab.worker()
        await serve(app, more=(streams,))
        on_streams = await lab.submit()
        on_bull = await add(queue, "anything")
        await reached(queue, on_bull, BullState.COMPLETED)

        async def is_done() -> bool:
            return (await lab.snapshot(on_streams)).result_json == '"echo on default"'

        await wait_until(is_done)
    job = await queue.get(on_bull)
    assert job is not None
    assert (job.return_json, job.progress_json) == (f'"anything on {QUEUE}"', "50")
    assert (await queue.logs(on_bull)).lines == ["half"]


@clause("J-36", "B-11")
async def test_j36_ids_that_are_not_utf8_keep_no_slot_of_a_process_handler(
    connection: Connection, serve: Serve, queue: QueueProducer, plain: Plain
) -> None:
    app = App()
    app.handler("echo", process=True)(echo)
    app.handler("*", queue=QUEUE, wire="bullmq", process=True)(echo)
    async with StreamsLab(connection) as lab:
        streams = await lab.worker()
        plain.call("HSET", b"job:\xff", "status", "queued", "ttl_s", 600, "tenant", b"\xfe")
        plain.call("EXPIRE", b"job:\xff", 600)
        plain.call("XADD", "jobs:stream", "*", "job_id", b"\xff", "task", "echo", "payload", "{}")
        key = KEYS.job("").encode() + b"\xff"
        plain.call("HSET", key, "name", b"\xfd", "data", "{}", "opts", "{}", "timestamp", 1)
        plain.call("LPUSH", KEYS.wait, b"\xff")
        await serve(app, more=(streams,))
        await wait_until(
            lambda: (
                plain.call("HGET", b"job:\xff", "result")
                == json.dumps(ascii(["\udcff", "echo", "\udcfe"]))
            ),
            "the end of the job on streams",
        )
        await wait_until(
            lambda: (
                plain.call("HGET", key, "returnvalue")
                == json.dumps(ascii(["\udcff", "\udcfd", ""]))
            ),
            "the end of the job on BullMQ's wire",
        )
        # The leak check reads keys as text.
        plain.call("DEL", b"job:\xff", b"job:\xff:events", b"jobs:index:\xfe", key)


@clause("B-23")
async def test_b23_the_attempts_of_a_job_are_not_cut(serve: Serve, queue: QueueProducer) -> None:
    """A producer's `attempts` is its own decision: `worker.max_attempts` bounds other wires."""
    app = App()

    @app.handler("fail")
    async def fail(ctx: Context) -> None:
        raise OSError("no disk")

    await serve(app.wrapped(lambda handler: replace(handler, attempt_limit=2)))
    job_id = await add(queue, "fail", attempts=30)
    await reached(queue, job_id, BullState.FAILED)
    job = await queue.get(job_id)
    assert job is not None
    assert (job.attempts_made, job.attempts_started) == (30, 30)


@clause("B-20")
async def test_b20_many_queues_share_their_sockets(
    valkey: LocalValkey, proxy: Proxy, serve: Serve, connection: Connection
) -> None:
    app = App()

    @app.handler("task")
    async def task(ctx: Context) -> str:
        return ctx.job.source

    names = [f"many-{number}" for number in range(30)]
    await serve(app, *names, server=Config.from_url(proxy.url(valkey.url)))
    queues = [QueueProducer(connection, name, QUIET) for name in names]
    jobs = [await add(queue, "task") for queue in queues]
    for queue, job_id in zip(queues, jobs, strict=True):
        await reached(queue, job_id, BullState.COMPLETED)
    # Calls, blocking reads, renewals, cancel requests.
    assert proxy.connections <= 5


@clause("B-20")
async def test_b20_a_worker_is_announced_by_two_named_sockets_per_queue(
    valkey: LocalValkey, serve: Serve, plain: Plain
) -> None:
    app = App()

    @app.handler("task")
    async def task(ctx: Context) -> None: ...

    await serve(app, settings=BullSettings(), server=Config.from_url(valkey.url))
    names = [client["name"] for client in plain.client_list()]
    assert names.count("bull:d29yaw==") == 1, "Node's name of the queue"
    assert names.count("bull:work") == 1, "the Python package's"


# ── features of handlers ─────────────────────────────────────────────────────────────────────────


async def test_a_handler_updates_data_logs_and_emits(serve: Serve, queue: QueueProducer) -> None:
    app = App()

    @app.handler("task", uses={"update_data"})
    async def task(ctx: Context) -> Any:
        if ctx.attempt == 1:
            await ctx.update_data({"step": 2})
            await ctx.log("starting")
            await ctx.log("slow", "warning", seconds=3)
            await ctx.emit("scene", {"n": 1})
            raise Retry(after=0)
        return ctx.payload

    await serve(app)
    job_id = await add(queue, "task", {"step": 1}, attempts=2)
    await reached(queue, job_id, BullState.COMPLETED)
    job = await queue.get(job_id)
    assert job is not None
    assert json.loads(job.return_json) == {"step": 2}
    assert (await queue.logs(job_id)).lines == ["starting", 'warning: slow {"seconds":3}']


async def test_postpone_and_rate_limit_count_no_attempt(serve: Serve, queue: QueueProducer) -> None:
    app, signals = App(), [Postpone(0.05), RateLimit(0.05)]

    @app.handler("task", uses={"postpone", "rate_limit"})
    async def task(ctx: Context) -> int:
        if signals:
            raise signals.pop(0)
        return ctx.attempt

    await serve(app)
    job_id = await add(queue, "task")
    await reached(queue, job_id, BullState.COMPLETED)
    job = await queue.get(job_id)
    assert job is not None
    assert (job.return_json, job.attempts_started, job.attempts_made) == ("1", 3, 1)


@clause("B-8")
async def test_b8_a_parent_waits_for_children_on_another_queue(
    serve: Serve, queue: QueueProducer, connection: Connection
) -> None:
    app = App()

    @app.handler("parent", queue=QUEUE, uses={"children", "update_data"})
    async def parent(ctx: Context) -> str:
        if ctx.payload.get("added"):
            return "all have ended"
        for number in range(3):
            await ctx.add_child("children", "child", {"n": number}, job_id=f"child-{number}")
        await ctx.update_data({"added": True})
        raise WaitForChildren

    @app.handler("child", queue="children")
    async def child(ctx: Context) -> int:
        return ctx.payload["n"]

    await serve(app, QUEUE, "children")
    job_id = await add(queue, "parent")
    await reached(queue, job_id, BullState.COMPLETED)
    values = await connection.call("HVALS", f"{KEYS.job(job_id)}:processed")
    assert sorted(values) == ["0", "1", "2"]  # pyright: ignore[reportArgumentType] - a list of texts


@clause("B-5")
@clause("B-14")
async def test_b14_an_exception_keeps_its_type_text_and_stack(
    serve: Serve, queue: QueueProducer
) -> None:
    app = App()

    @app.handler("crash")
    async def crash(ctx: Context) -> None:
        raise LookupError("no such city")

    @app.handler("final")
    async def final(ctx: Context) -> None:
        raise Fail("bad_city", "the city is closed")

    await serve(app)
    backoff = BullBackoff("fixed", 10)
    crashed = await add(queue, "crash", attempts=3, backoff=backoff)
    failed = await add(queue, "final", attempts=3, backoff=backoff)
    await reached(queue, crashed, BullState.FAILED)
    await reached(queue, failed, BullState.FAILED)
    job = await queue.get(crashed)
    assert job is not None
    assert (job.failed_reason, job.attempts_made) == ("no such city", 3)
    assert len(job.stacktrace) == 3
    assert "raise LookupError" in job.stacktrace[-1]
    job = await queue.get(failed)
    assert job is not None
    assert (job.failed_reason, job.attempts_made) == ("the city is closed", 1)


@clause("B-17")
async def test_b17_a_canceled_active_job_is_stopped_and_fails(
    serve: Serve, queue: QueueProducer
) -> None:
    app, stops = App(), list[str]()

    @app.handler("task")
    async def task(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stops.append(ctx.job.id)

    await serve(app, settings=OftenRenewed(announce=False))
    job_id = await add(queue, "task", attempts=5)
    await reached(queue, job_id, BullState.ACTIVE)
    assert await queue.cancel(job_id) is CancelOutcome.REQUESTED
    await reached(queue, job_id, BullState.FAILED)
    job = await queue.get(job_id)
    assert job is not None
    assert (job.failed_reason, stops) == ("canceled", [job_id])


@clause("B-17")
async def test_b17_unknown_names_fail_once_each(serve: Serve, queue: QueueProducer) -> None:
    """Unknown names do not cause a busy loop: each job is started once."""
    app = App()

    @app.handler("known")
    async def known(ctx: Context) -> None: ...

    answers = await queue.submit_many([NewBullJob("unknown")] * 50)
    await serve(app)
    job_id = await add(queue, "known")
    await reached(queue, job_id, BullState.COMPLETED)
    for answer in answers:
        assert isinstance(answer, Added)
        job = await queue.get(answer.job_id)
        assert job is not None
        assert (job.attempts_started, job.attempts_made) == (1, 1)
        assert "has a handler for 'unknown'" in job.failed_reason


# ── producers ────────────────────────────────────────────────────────────────────────────────────


@clause("B-1")
async def test_b1_a_job_without_a_marker_is_found(
    serve: Serve, queue: QueueProducer, plain: Plain
) -> None:
    """As a producer writes it that implements only the published contract."""
    app = App()

    @app.handler("task")
    async def task(ctx: Context) -> str:
        return "found"

    await serve(app)
    first = await add(queue, "task")
    await reached(queue, first, BullState.COMPLETED)
    plain.call(
        "HSET", KEYS.job("plain"), "name", "task", "data", "{}", "opts", "{}", "timestamp", 1
    )
    plain.call("LPUSH", KEYS.wait, "plain")
    await reached(queue, "plain", BullState.COMPLETED)


@clause("B-2")
async def test_b2_delayed_jobs_and_paused_queues(serve: Serve, queue: QueueProducer) -> None:
    app = App()

    @app.handler("task")
    async def task(ctx: Context) -> None: ...

    await serve(app)
    due_ms = time.time() * 1000 + 150
    delayed = await add(queue, "task", delay_ms=150)
    await reached(queue, delayed, BullState.COMPLETED)
    job = await queue.get(delayed)
    assert job is not None
    assert (job.processed_on_ms or 0) >= due_ms - 1
    await queue.pause()
    waiting = await add(queue, "task")
    resumed_ms = time.time() * 1000
    await queue.resume()
    await reached(queue, waiting, BullState.COMPLETED)
    job = await queue.get(waiting)
    assert job is not None
    assert (job.processed_on_ms or 0) >= resumed_ms - 1


# ── faults ───────────────────────────────────────────────────────────────────────────────────────


@clause("B-14")
async def test_b14_a_lost_lock_cancels_the_handler_and_refuses_its_result(
    serve: Serve, queue: QueueProducer, plain: Plain
) -> None:
    app, starts, gates = App(), list[int](), [asyncio.Event(), asyncio.Event()]
    gates[1].set()

    @app.handler("task")
    async def task(ctx: Context) -> str:
        starts.append(ctx.job.deliveries)
        try:
            await gates[len(starts) - 1].wait()
        except asyncio.CancelledError:
            gates[0].set()
            raise
        return f"start {ctx.job.deliveries}"

    engine = await serve(app, settings=OftenRenewed(announce=False))
    job_id = await add(queue, "task")
    await wait_until(lambda: starts == [1])
    plain.call("SET", KEYS.lock(job_id), "another worker's")
    await wait_until(gates[0].is_set, "the handler to be cancelled")
    assert await queue.state(job_id) is BullState.ACTIVE, "nothing was written"
    # That other worker dies.
    plain.call("DEL", KEYS.lock(job_id))

    async def is_moved() -> bool:
        plain.call("DEL", KEYS.stalled_check)
        moved = await engine.maintenance()[0].run()
        return moved is not None and moved.done > 0

    await wait_until(is_moved)
    await reached(queue, job_id, BullState.COMPLETED)
    job = await queue.get(job_id)
    assert job is not None
    assert (job.return_json, job.stalled) == ('"start 2"', 1)


@clause("B-6", "J-41")
async def test_b6_a_check_that_another_program_has_made_is_made_again_after_it(
    serve: Serve, plain: Plain
) -> None:
    """Else a lone worker meets its own check of the interval before, and waits for another one."""
    app = App()
    app.handler("*", queue=QUEUE, wire="bullmq")(echo)
    engine = await serve(app, settings=BullSettings(announce=False))
    (check,) = engine.maintenance()
    result = await check.run()
    assert result is not None
    assert result.guard_s == check.period_s == 30
    plain.call("PEXPIRE", KEYS.stalled_check, 20_000)
    result = await check.run()
    assert result is not None
    assert 0 < (result.guard_s or 0) <= 20
    # One with a longer interval does not keep us from our own.
    plain.call("PEXPIRE", KEYS.stalled_check, 3_600_000)
    result = await check.run()
    assert result is not None
    assert result.guard_s == 30


@clause("B-14")
async def test_b14_a_handler_that_blocks_the_loop_keeps_its_lock(
    serve: Serve, queue: QueueProducer, plain: Plain
) -> None:
    """Renewed from a thread, however long the loop is blocked."""
    app, starts = App(), list[str]()

    @app.handler("block")
    async def block(ctx: Context) -> int:
        starts.append(ctx.job.id)
        renewals, left_ms = 0, 0
        while renewals < 8:
            now_ms = cast(int, plain.call("PTTL", KEYS.lock(ctx.job.id)))
            renewals += now_ms > left_ms + 50
            left_ms = now_ms
            time.sleep(0.02)  # noqa: ASYNC251 - this is what is tested
        return renewals

    await serve(app, settings=OftenRenewed(announce=False))
    job_id = await add(queue, "block")
    await reached(queue, job_id, BullState.COMPLETED)
    assert starts == [job_id]


def _runs(name: str) -> Callable[[Command], bool]:
    def fits(command: Command) -> bool:
        return command.name == "EVALSHA" and command.words[1] == SCRIPTS[name].sha

    return fits


@clause("B-15")
async def test_b15_a_start_whose_answer_was_lost_is_recovered(
    valkey: LocalValkey, proxy: Proxy, serve: Serve, queue: QueueProducer
) -> None:
    app = App()

    @app.handler("task")
    async def task(ctx: Context) -> int:
        return ctx.job.deliveries

    await serve(app, server=Config.from_url(proxy.url(valkey.url)))
    first = await add(queue, "task")
    await reached(queue, first, BullState.COMPLETED)
    proxy.cut_reply(_runs("take"))
    job_id = await add(queue, "task")
    await reached(queue, job_id, BullState.COMPLETED)
    job = await queue.get(job_id)
    assert job is not None
    assert (job.return_json, job.attempts_started) == ("1", 1), "started once, and not stalled"


@clause("B-15")
async def test_b15_a_settle_whose_answer_was_lost_is_repeated(
    valkey: LocalValkey, proxy: Proxy, serve: Serve, queue: QueueProducer
) -> None:
    app = App()

    @app.handler("task")
    async def task(ctx: Context) -> int:
        return ctx.job.deliveries

    await serve(app, server=Config.from_url(proxy.url(valkey.url)))
    proxy.cut_reply(_runs("settle"))
    job_id = await add(queue, "task")
    await reached(queue, job_id, BullState.COMPLETED)
    second = await add(queue, "task")
    await reached(queue, second, BullState.COMPLETED)
    job = await queue.get(job_id)
    assert job is not None
    assert job.attempts_started == 1


async def test_a_worker_continues_after_a_restart_of_the_server(own_valkey: LocalValkey) -> None:
    app = App()

    @app.handler("task")
    async def task(ctx: Context) -> str:
        return "done"

    engine = BullEngine(WorkerConnections(Config.from_url(own_valkey.url), QUIET), QUEUE)
    worker = Worker(app, [engine])
    running = await started(worker)
    async with Connection.open(own_valkey.url) as connection:
        queue = QueueProducer(connection, QUEUE, QUIET)
        await reached(queue, await add(queue, "task"), BullState.COMPLETED)
        own_valkey.kill()
        own_valkey.start()

        async def is_added() -> str:
            try:
                return await add(queue, "task")
            except Exception:  # noqa: BLE001 - not connected again yet
                return ""

        await reached(queue, await wait_until(is_added), BullState.COMPLETED)
    await stopped(worker, running)
