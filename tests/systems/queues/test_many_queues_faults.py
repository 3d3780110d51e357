"""B-27: what others wrote into one queue stops none of the other queues of a worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, cast

import pytest
import pytest_asyncio

from jobwire import App, Context, Postpone, RateLimit, Retry, WaitForChildren
from jobwire.job.engine import Use
from jobwire.job.errors import BackendUnavailable
from jobwire.local import LocalValkey
from jobwire.systems.queues.admin import QueueAdmin
from jobwire.systems.queues.contract import LOCK_MS, BullState, Keys
from jobwire.systems.queues.engine import BullEngine
from jobwire.systems.queues.idle_queues import IdleQueue, IdleQueues
from jobwire.systems.queues.options import BullJobOptions
from jobwire.systems.queues.queue import NewBullJob, QueueProducer
from jobwire.systems.queues.settings import BullSettings
from jobwire.systems.queues.worker_connections import WorkerConnections
from jobwire.valkey import Config, Connection, ValkeyError
from jobwire.worker import Worker
from tests.support import Plain, clause, wait_until
from tests.support.workers import started, stopped
from tests.systems.queues.conftest import OftenRenewed

SETTINGS = BullSettings(announce=False)
BRIEF = BullSettings(announce=False, lock_ms=1_000, stalled_interval_ms=100, max_stalled=100)
"""For jobs that are left without a lock: until they run again, others may lose theirs, too."""
Serve = Callable[..., Coroutine[Any, Any, BullEngine]]
Rights = Callable[..., None]


@pytest_asyncio.fixture
async def serve(connection: Connection) -> AsyncIterator[Serve]:
    running: list[tuple[Worker, asyncio.Task[None]]] = []

    async def start(
        app: App,
        *queues: str,
        slots: int = 10,
        server: Connection | Config | None = None,
        settings: BullSettings = SETTINGS,
    ) -> BullEngine:
        engine = BullEngine(WorkerConnections(server or connection, settings), *queues)
        worker = Worker(app, [engine], slots=slots)
        running.append((worker, await started(worker)))
        return engine

    yield start
    for worker, task in running:
        await stopped(worker, task)


@pytest.fixture
def app() -> App:
    app = App()

    @app.handler("job")
    async def job(ctx: Context) -> None: ...

    return app


async def fill(connection: Connection, queue: str, jobs: int, **options: Any) -> QueueProducer:
    producer = QueueProducer(connection, queue, SETTINGS)
    made = [NewBullJob("job", "{}", BullJobOptions(**options)) for _ in range(jobs)]
    await producer.submit_many(made)
    return producer


async def completed(
    producer: QueueProducer, jobs: int, stalled_by: BullEngine | None = None
) -> None:
    """Wait for them; with short locks, of which any may be lost, the stalled check runs beside."""

    async def is_so() -> bool:
        for task in stalled_by.maintenance() if stalled_by else ():
            with contextlib.suppress(BackendUnavailable):  # the broken queue has none
                await task.run()
        return (await producer.counts())[BullState.COMPLETED] == jobs

    await wait_until(is_so, f"{jobs} completed jobs")


@clause("B-19", "B-27")
@pytest.mark.parametrize("key", ["marker", "active", "events", "prioritized"])
async def test_b27_a_key_of_another_type_stops_no_other_queue_and_loses_no_job(
    connection: Connection,
    plain: Plain,
    serve: Serve,
    app: App,
    caplog: pytest.LogCaptureFixture,
    key: str,
) -> None:
    broken = await fill(connection, "broken", 5)
    await fill(connection, "broken", 2, priority=3)
    plain.call("DEL", f"bull:broken:{key}")
    plain.call("HSET", f"bull:broken:{key}", "no", "such type")
    engine = await serve(app, "broken", "sound", slots=3, settings=BRIEF)
    for jobs in (20, 40):
        sound = await fill(connection, "sound", 20)
        await completed(sound, jobs, engine)
    assert "server unavailable" not in caplog.text
    plain.call("DEL", f"bull:broken:{key}")
    if key == "prioritized":
        plain.call("ZADD", "bull:broken:prioritized", 3, "6", 3, "7")

    await completed(broken, 7, engine)


@clause("B-19", "B-27")
@pytest.mark.parametrize(
    ("key", "score"),
    [("marker", "+inf"), ("marker", "1e300"), ("delayed", "+inf"), ("delayed", "1e300")],
)
async def test_b27_a_time_that_is_none_stops_no_queue(
    connection: Connection,
    plain: Plain,
    serve: Serve,
    app: App,
    caplog: pytest.LogCaptureFixture,
    key: str,
    score: str,
) -> None:
    await serve(app, "odd", "sound", slots=3)
    plain.call("ZADD", f"bull:odd:{key}", score, "x")
    plain.call("ZADD", "bull:odd:marker", 0, "0")
    await wait_until(lambda: plain.zscore("bull:odd:marker", "0") is None, "a look at the queue")
    for jobs in (1, 2, 3):
        await completed(await fill(connection, "sound", 1), jobs)
        await completed(await fill(connection, "odd", 1), jobs)
    assert "server failed" not in caplog.text
    assert "server unavailable" not in caplog.text


@pytest.fixture
def rights(plain: Plain) -> Iterator[Rights]:
    """Sets the queues that the server's user `some-queues` may touch."""

    def allow(*queues: str) -> None:
        patterns = [f"~bull:{queue}:*" for queue in queues]
        rules = ("on", ">secret", "&*", "+@all", "resetkeys", *patterns)
        plain.call("ACL", "SETUSER", "some-queues", *rules)

    yield allow
    plain.call("ACL", "SETUSER", "some-queues", "~*")


@pytest.fixture
def as_user(valkey: LocalValkey) -> Config:
    return Config.from_url(f"valkey://some-queues:secret@{valkey.address}/0")


@clause("B-19", "B-27")
async def test_b27_a_queue_that_the_servers_user_may_not_read(
    connection: Connection, serve: Serve, rights: Rights, as_user: Config, app: App
) -> None:
    rights("sound")
    await fill(connection, "other", 3)
    await serve(app, "other", "sound", server=as_user)
    for jobs in (5, 10):
        sound = await fill(connection, "sound", 5)
        await completed(sound, jobs)


@clause("B-27")
async def test_b27_a_queue_is_obliterated_while_its_jobs_run(
    connection: Connection, serve: Serve
) -> None:
    app, gate, running = App(), asyncio.Event(), Counter[str]()

    @app.handler("job")
    async def job(ctx: Context) -> None:
        running[ctx.job.source] += 1
        await gate.wait()

    gone = await fill(connection, "gone", 20)
    sound = await fill(connection, "sound", 20)
    await serve(app, "gone", "sound", slots=6)
    await wait_until(lambda: running["gone"] == 3)
    await QueueAdmin(gone).obliterate(force=True)
    gate.set()
    await completed(sound, 20)
    await fill(connection, "gone", 2)
    await completed(gone, 2)


class Ending:
    """Jobs that wait for `gate`, and then end each in the way that its payload names."""

    def __init__(self) -> None:
        self.app, self.gate, self.running = App(), asyncio.Event(), Counter[str]()
        uses: list[Use] = ["postpone", "rate_limit", "children"]

        @self.app.handler("job", uses=uses)
        async def job(ctx: Context) -> str:
            self.running[ctx.job.source] += 1
            if ctx.attempt > 1 or ctx.job.deliveries > 1:
                return "again"
            await self.gate.wait()
            match ctx.payload.get("end"):
                case "progress":
                    await ctx.progress(50, "half")
                case "retry":
                    raise Retry(after=0)
                case "backoff":
                    raise Retry(after=0.01)
                case "postpone":
                    raise Postpone(after=0)
                case "rate_limit":
                    raise RateLimit(0.01)
                case "children":
                    raise WaitForChildren
                case _:
                    pass
            return "done"


ENDS = ["done", "progress", "retry", "backoff", "postpone", "rate_limit", "children"]


async def fill_ending(connection: Connection, queue: str, end: str) -> QueueProducer:
    producer = QueueProducer(connection, queue, SETTINGS)
    await producer.submit("job", f'{{"end": "{end}"}}', BullJobOptions(attempts=5))
    return producer


@clause("B-19", "B-27")
@pytest.mark.parametrize("end", ENDS)
async def test_b27_rights_that_are_taken_away_while_jobs_run_stop_no_other_queue(
    connection: Connection,
    serve: Serve,
    rights: Rights,
    as_user: Config,
    caplog: pytest.LogCaptureFixture,
    end: str,
) -> None:
    rights("other", "sound")
    jobs = Ending()
    other = await fill_ending(connection, "other", end)
    sound = await fill_ending(connection, "sound", end)
    await serve(jobs.app, "other", "sound", server=as_user)
    await wait_until(lambda: jobs.running["other"] == jobs.running["sound"] == 1, "both jobs")
    rights("sound")
    jobs.gate.set()
    await completed(sound, 1)
    for count in (6, 11):
        await fill(connection, "sound", 5)
        await completed(sound, count)
    assert "server unavailable" not in caplog.text
    rights("other", "sound")
    await completed(other, 1)


@clause("B-19", "B-27")
@pytest.mark.parametrize(
    ("end", "key"),
    [
        ("retry", "wait"),
        ("backoff", "delayed"),
        ("postpone", "delayed"),
        ("rate_limit", "wait"),
        ("progress", "events"),
    ],
)
async def test_b27_a_key_that_another_type_replaces_while_jobs_run_stops_no_other_queue(
    connection: Connection,
    plain: Plain,
    serve: Serve,
    caplog: pytest.LogCaptureFixture,
    end: str,
    key: str,
) -> None:
    jobs = Ending()
    broken = await fill_ending(connection, "broken", end)
    sound = await fill_ending(connection, "sound", end)
    engine = await serve(jobs.app, "broken", "sound", settings=BRIEF)
    await wait_until(lambda: jobs.running["broken"] == jobs.running["sound"] == 1, "both jobs")
    plain.call("DEL", f"bull:broken:{key}")
    plain.call("HSET", f"bull:broken:{key}", "no", "such type")
    jobs.gate.set()
    await completed(sound, 1, engine)
    for count in (6, 11):
        await fill(connection, "sound", 5)
        await completed(sound, count, engine)
    assert "server unavailable" not in caplog.text
    plain.call("DEL", f"bull:broken:{key}")
    await completed(broken, 1, engine)


@clause("B-3", "B-27")
async def test_b27_locks_of_the_other_queues_are_renewed(
    connection: Connection, plain: Plain, serve: Serve, rights: Rights, as_user: Config
) -> None:
    rights("other", "sound")
    jobs = Ending()
    await fill_ending(connection, "other", "done")
    sound = await fill_ending(connection, "sound", "done")
    await serve(jobs.app, "other", "sound", server=as_user, settings=OftenRenewed(announce=False))
    await wait_until(lambda: jobs.running["other"] == jobs.running["sound"] == 1, "both jobs")
    rights("sound")
    plain.call("DEL", "bull:other:1:lock")  # as when it has expired

    def renewed() -> bool:
        return cast(int, plain.call("PTTL", "bull:sound:1:lock")) > LOCK_MS // 2

    for _ in range(2):
        plain.call("PEXPIRE", "bull:sound:1:lock", LOCK_MS // 2)
        await wait_until(renewed, "a renewal of the other queue's lock")
    jobs.gate.set()
    await completed(sound, 1)
    assert jobs.running["sound"] == 1
    rights("other", "sound")


@clause("B-15", "B-27")
async def test_b27_a_release_that_is_refused_is_tried_once_at_the_end(
    connection: Connection, plain: Plain, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: an engine that left tried it again and again, with a line for each."""
    await fill(connection, "broken", 1)
    await fill(connection, "sound", 1)
    engine = BullEngine(WorkerConnections(connection, SETTINGS), "broken", "sound")
    await engine.register([], 2)
    assert len(await engine.take(2)) == 2
    plain.call("HSET", "bull:broken:wait", "no", "such type")
    leaving = asyncio.create_task(engine.deregister())
    try:
        await wait_until(leaving.done, "the end of the engine")
    finally:
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
    leaving.result()
    assert plain.call("LLEN", "bull:sound:wait") == 1
    lines = [record.getMessage() for record in caplog.records]
    assert sum("refuses to end a job queue=broken" in line for line in lines) == 1, lines


@clause("B-19", "B-27")
async def test_b27_a_queue_that_may_not_be_read_delays_no_queue_at_its_rate_limit(
    rights: Rights, as_user: Config
) -> None:
    """Regression: the refusal counted as one of the server, and the limit seemed to last."""
    rights("sound")
    found, errors = list[str](), list[ValkeyError]()
    other = IdleQueue(Keys("other"), lambda: found.append("other"), errors.append)
    sound = IdleQueue(Keys("sound"), lambda: found.append("sound"), errors.append)
    sound.is_held, sound.is_unseen, sound.due_ms = True, False, 1_000
    async with Connection.open(as_user) as connection:
        queues = IdleQueues(connection, lambda: 2_000)
        queues.watch(other)
        queues.watch(sound)
        await wait_until(lambda: found or errors, "the end of the limit")
        await queues.close()
    assert (found, errors) == (["sound"], [])
