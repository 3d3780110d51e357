"""Handlers of named queues, features of some wires, and many queues in one worker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from jobwire import App, Context, Postpone, RateLimit, WaitForChildren
from jobwire.job.engine import Traits
from jobwire.job.messages import Done, Failed, JobId, LeasedJob, Released, RetryLater
from jobwire.testing import run
from jobwire.worker import Worker
from tests.support import wait_until
from tests.worker.conftest import StartWorker
from tests.worker.memory import MemoryEngine, MemoryServer, Record

Ended = Callable[[JobId], Awaitable[Record]]


class Plain(MemoryEngine):
    """A wire without optional features."""

    wire = "plain"
    traits = Traits(catch_all=False)


# ── routing ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_queue_with_own_handlers_uses_no_others(work: StartWorker) -> None:
    app = App()

    @app.handler("resize")
    async def plain(ctx: Context) -> str:
        return "plain"

    @app.handler("resize", queue="photos")
    async def photos(ctx: Context) -> str:
        return "photos"

    @app.handler("*", queue="photos", wire="memory")
    async def rest(ctx: Context) -> str:
        return f"any: {ctx.job.task}"

    @app.handler("resize", queue="photos", wire="other")
    async def other(ctx: Context) -> str:
        return "another wire's"

    servers = {name: MemoryServer() for name in ("main", "photos")}
    await work(app, *(MemoryEngine(server, name) for name, server in servers.items()))
    jobs = {
        "plain": servers["main"].add("resize"),
        "photos": servers["photos"].add("resize"),
        "any: blur": servers["photos"].add("blur"),
    }
    for result, job_id in jobs.items():
        server = servers["main" if result == "plain" else "photos"]
        await wait_until(lambda server=server, job=job_id: server.jobs[job].outcome is not None)
        assert server.jobs[job_id].outcome == Done(f'"{result}"')
    assert app.queues("memory") == ["photos"]


async def test_one_function_may_serve_several_queues(work: StartWorker) -> None:
    app = App()

    @app.handler("resize")
    @app.handler("*", queue="photos")
    async def resize(ctx: Context) -> str:
        return ctx.job.source

    servers = {name: MemoryServer() for name in ("memory", "photos")}
    await work(app, *(MemoryEngine(server, name) for name, server in servers.items()))
    jobs = [server.add("resize") for server in servers.values()]
    for server, job in zip(servers.values(), jobs, strict=True):
        await wait_until(lambda server=server, job=job: server.jobs[job].outcome is not None)
        assert isinstance(server.jobs[job].outcome, Done)


async def test_an_unknown_task_is_the_engine_s_decision(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()

    @app.handler("known")
    async def known(ctx: Context) -> None: ...

    await work(app, engine)
    outcome = (await ended(server.add("unknown"))).outcome
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "unknown_task"


async def test_a_handler_of_all_tasks_needs_a_queue_that_can_have_one() -> None:
    app = App()

    @app.handler("*", queue="q")
    async def rest(ctx: Context) -> None: ...

    with pytest.raises(ValueError, match=r"the queue 'q' \(plain\) takes no handler for all tasks"):
        Worker(app, [Plain(MemoryServer(), "q")])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "*"}, "name the queue whose tasks it serves"),
        ({"task": "x", "wire": "bullmq"}, "needs the name of a queue"),
        ({"task": "x", "uses": {"telepathy"}}, r"uses=\['telepathy'\] is unknown"),
    ],
)
def test_a_bad_registration_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        App().handler(**options)  # pyright: ignore[reportArgumentType] - bad on purpose


def test_two_handlers_for_one_task_of_a_queue_are_refused() -> None:
    app = App()

    @app.handler("x", queue="q")
    async def first(ctx: Context) -> None: ...

    with pytest.raises(ValueError, match="has a handler already on the queue 'q'"):
        app.handler("x", queue="q")(first)


# ── features of some wires ───────────────────────────────────────────────────────────────────────


async def test_a_use_that_the_queue_lacks_is_an_error_at_start() -> None:
    app = App()

    @app.handler("task", uses={"children", "rate_limit"})
    async def task(ctx: Context) -> None: ...

    with pytest.raises(ValueError, match="'task' uses children, rate_limit, which the queue 'q'"):
        Worker(app, [Plain(MemoryServer(), "q")])


UNDECLARED: dict[str, tuple[str, Callable[[Context], object]]] = {
    "postpone": ("postpone", lambda _: _raise(Postpone(1))),
    "rate limit": ("rate_limit", lambda _: _raise(RateLimit(1))),
    "wait for children": ("children", lambda _: _raise(WaitForChildren())),
    "add a child": ("children", lambda ctx: ctx.add_child("q", "task")),
    "update data": ("update_data", lambda ctx: ctx.update_data({})),
}


@pytest.mark.parametrize("what", UNDECLARED)
async def test_an_undeclared_use_fails_the_job(what: str) -> None:
    app, (use, act) = App(), UNDECLARED[what]

    @app.handler("task", retries=3)
    async def task(ctx: Context) -> None:
        act(ctx)

    ran = await run(app, "task")
    assert ran.error is not None
    assert (ran.error.code, ran.runs) == ("unsupported", 1)
    assert f"uses={{'{use}'}}" in ran.error.message


def _raise(signal: Exception) -> None:
    raise signal


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_signals_run_the_job_again_without_an_attempt(kind: str) -> None:
    app = App()
    signals = [Postpone(timedelta(0)), RateLimit(0), WaitForChildren()]

    def act(ctx: Context) -> str:
        if signals:
            raise signals.pop(0)
        return f"attempt {ctx.attempt}"

    if kind == "thread":
        app.handler("task", uses={"postpone", "rate_limit", "children"})(act)
    else:

        @app.handler("task", uses={"postpone", "rate_limit", "children"})
        async def task(ctx: Context) -> str:
            return act(ctx)

    ran = await run(app, "task")
    assert (ran.result, ran.runs, ran.attempts) == ("attempt 1", 4, 1)


async def test_children_and_data_reach_the_engine_before_the_outcome(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()

    @app.handler("parent", uses={"children", "update_data"})
    async def parent(ctx: Context) -> str:
        if ctx.payload.get("step") == 2:
            return "children have ended"
        await ctx.add_child("memory", "child", {"n": 1}, job_id="child-1")
        await ctx.update_data({"step": 2})
        raise WaitForChildren

    @app.handler("child")
    async def child(ctx: Context) -> int:
        return ctx.payload["n"]

    await work(app, engine)
    record = await ended(server.add("parent"))
    await wait_until(lambda: record.outcome == Done('"children have ended"'))
    assert server.jobs[JobId("child-1")].outcome == Done("1")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Postpone(),
        lambda: Postpone(1, until=datetime.now(UTC)),
        lambda: Postpone(until=datetime(2030, 1, 1)),  # noqa: DTZ001 - without a zone on purpose
        lambda: Postpone(-1),
        lambda: RateLimit(float("nan")),
    ],
)
def test_a_signal_with_invalid_arguments_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"Postpone|RateLimit"):
        make()


async def test_the_error_of_a_crash_keeps_its_cause(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app = App()

    @app.handler("task", retries=1)
    async def task(ctx: Context) -> None:
        raise LookupError("no such city")

    await work(app, engine)
    record = await ended(server.add("task"))
    first = record.first_outcome
    assert isinstance(first, RetryLater)
    assert (first.error.cause_type, first.error.cause_text) == ("LookupError", "no such city")
    assert "no such city" not in first.error.message, "public on some wires"


# ── many queues ──────────────────────────────────────────────────────────────────────────────────


async def test_one_thread_renews_the_leases_of_all_queues(work: StartWorker) -> None:
    app, gate = App(), asyncio.Event()

    @app.handler("task")
    async def task(ctx: Context) -> None:
        await gate.wait()

    servers = [MemoryServer(lease_s=lease_s) for lease_s in (0.3, 0.6, 30)]
    engines = [MemoryEngine(server, f"q{n}") for n, server in enumerate(servers)]
    jobs = [server.add("task") for server in servers]
    await work(app, *engines)
    # Longer than the shortest lease: each is renewed in its own period.
    await wait_until(lambda: servers[0].calls["renew"] >= 6 and servers[1].calls["renew"] >= 3)
    assert [thread.name for thread in threading.enumerate()].count("jobwire-renew") == 1
    gate.set()
    await wait_until(lambda: all(s.jobs[job].outcome for s, job in zip(servers, jobs, strict=True)))
    assert {server.jobs[job].deliveries for server, job in zip(servers, jobs, strict=True)} == {1}


async def test_an_unavailable_server_does_not_stop_the_renewal_of_other_queues(
    work: StartWorker,
) -> None:
    app, gate = App(), asyncio.Event()

    @app.handler("task")
    async def task(ctx: Context) -> None:
        await gate.wait()

    away, well = MemoryServer(lease_s=30), MemoryServer(lease_s=0.3)
    jobs = [away.add("task"), well.add("task")]
    await work(app, MemoryEngine(away, "away"), MemoryEngine(well, "well"))
    await wait_until(lambda: all(s.jobs[j].token for s, j in zip((away, well), jobs, strict=True)))
    away.down = True
    before = well.calls["renew"]
    await wait_until(lambda: well.calls["renew"] >= before + 5)
    away.down = False
    gate.set()
    await wait_until(lambda: well.jobs[jobs[1]].outcome is not None)
    assert well.jobs[jobs[1]].deliveries == 1


class Prefetching(MemoryEngine):
    """Its waits start jobs, as many as slots are offered, when the test lets one arrive."""

    traits = Traits(prefetches=True)

    def __init__(self, server: MemoryServer, name: str) -> None:
        super().__init__(server, name)
        self.offers: list[int] = []
        self.arrival = asyncio.Event()
        self._ahead: list[LeasedJob] = []

    async def wait(self, timeout_s: float, room: int = 1) -> bool:
        self.offers.append(room)
        await self.arrival.wait()
        self.arrival.clear()
        self._ahead = self.server.start(self.consumer, room) if room else []
        return bool(self._ahead)

    async def wake(self) -> None:
        self.arrival.set()

    async def take(self, limit: int) -> list[LeasedJob]:
        ahead, self._ahead = self._ahead, []
        return ahead


class TwoQueues:
    """One slot; a wait of `quiet` has offered it, and a job of `busy` holds it."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.busy, self.quiet = MemoryServer(), MemoryServer()
        self.engine = Prefetching(self.quiet, "quiet")
        self.running = self.most = 0

    async def start(self, work: StartWorker) -> JobId:
        app = App()

        @app.handler("task")
        async def task(ctx: Context) -> None:
            self.running += 1
            self.most = max(self.most, self.running)
            await self.gate.wait()
            self.running -= 1

        await work(app, MemoryEngine(self.busy, "busy"), self.engine, slots=1)
        await wait_until(lambda: self.engine.offers == [1])
        self.busy.add("task")
        await wait_until(lambda: self.running == 1)
        job = self.quiet.add("task")
        self.engine.arrival.set()
        await wait_until(lambda: self.quiet.jobs[job].token is not None)
        return job


async def test_a_job_whose_offered_slot_was_acquired_by_another_waits_for_the_next(
    work: StartWorker,
) -> None:
    """Never more jobs run than there are slots, and none is lost."""
    queues = TwoQueues()
    job = await queues.start(work)
    assert queues.running == 1
    queues.gate.set()
    await wait_until(lambda: queues.quiet.jobs[job].outcome is not None)
    assert queues.quiet.jobs[job].first_outcome == Done("null")
    assert queues.most == 1


async def test_a_job_that_waits_too_long_for_a_slot_is_released(
    work: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobwire.worker.queue_loop._IN_LINE_S", 0.01)
    queues = TwoQueues()
    job = await queues.start(work)
    await wait_until(lambda: queues.quiet.jobs[job].outcome == Released())
    assert queues.quiet.jobs[job].deliveries == 0
    queues.gate.set()
    await wait_until(lambda: queues.running == 0)


async def test_a_job_that_a_wait_has_started_runs_in_a_paused_worker(work: StartWorker) -> None:
    """Its lease would run out otherwise."""
    app, server = App(), MemoryServer()
    app.handler("task")(lambda ctx: None)
    engine = Prefetching(server, "quiet")
    worker = await work(app, engine, slots=1)
    await wait_until(lambda: engine.offers == [1])
    first, second = server.add("task"), server.add("task")
    worker.pause()  # ends the wait, which starts the first job
    await wait_until(lambda: server.jobs[first].outcome is not None)
    await worker.wait_idle()
    assert server.jobs[second].outcome is None
    assert engine.offers == [1], "a paused worker does not wait for jobs"
