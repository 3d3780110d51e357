"""Slots: shared by queues, limited by handlers, never more than there are."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from jobwire.job.messages import Canceled, Done, JobId
from jobwire.worker import App, Context
from jobwire.worker.slots import Share, Slots
from tests.support import clause, wait_until
from tests.worker.conftest import StartWorker
from tests.worker.memory import MemoryEngine, MemoryServer, Record

Ended = Callable[[JobId], Awaitable[Record]]


class Meter:
    """Counts how many run at a time."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.gate = asyncio.Event()

    async def run(self, name: str) -> None:
        self.now[name] += 1
        self.most[name] = max(self.most[name], self.now[name])
        try:
            await self.gate.wait()
            await _next_tick()
        finally:
            self.now[name] -= 1


async def _next_tick() -> None:
    """Sleep about 10 ms; those that began together end together, also on a busy machine."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.call_at(math.ceil(loop.time() * 100 + 1) / 100, over.set_result, None)
    await over


async def test_running_jobs_never_exceed_the_slots(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker
) -> None:
    app, meter = App(), Meter()

    @app.handler("task")
    async def task(ctx: Context) -> None:
        await meter.run("all")

    jobs = [server.add("task") for _ in range(50)]
    await work(app, engine, slots=7)
    await wait_until(lambda: meter.now["all"] == 7)
    meter.gate.set()
    await wait_until(lambda: len(server.settles) == len(jobs))
    assert meter.most["all"] == 7


@clause("J-36")
async def test_j36_concurrency_limits_a_handler_s_slots(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app, meter = App(), Meter()

    @app.handler("narrow", concurrency=2)
    async def narrow(ctx: Context) -> None:
        await meter.run("narrow")

    @app.handler("wide")
    async def wide(ctx: Context) -> str:
        return "ran"

    jobs = [server.add("narrow") for _ in range(6)]
    await work(app, engine, slots=8)
    await wait_until(lambda: meter.now["narrow"] == 2)
    # The others wait on the server, and other tasks run.
    assert [server.jobs[job].token for job in jobs[2:]] == [None] * 4
    assert (await ended(server.add("wide"))).outcome == Done('"ran"')
    meter.gate.set()
    await wait_until(lambda: all(server.jobs[job].outcome for job in jobs))
    assert meter.most["narrow"] == 2


@clause("J-36")
async def test_j36_a_worker_at_a_handler_s_limit_takes_the_next_job_when_one_ends(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker, ended: Ended
) -> None:
    app, meter = App(), Meter()

    @app.handler("narrow", concurrency=1)
    async def narrow(ctx: Context) -> None:
        await meter.run("narrow")

    await work(app, engine, slots=4)
    first = server.add("narrow")
    await wait_until(lambda: meter.now["narrow"] == 1)
    second, third = server.add("narrow"), server.add("narrow")
    server.cancel_now(second)
    assert (await ended(second)).outcome == Canceled()
    meter.gate.set()
    assert (await ended(third)).outcome == Done("null")
    assert (await ended(first)).outcome == Done("null")
    assert meter.most["narrow"] == 1


@clause("J-36")
async def test_j36_queues_of_one_handler_share_its_limit(work: StartWorker) -> None:
    """A wait of each queue may bring a job at the same time: one of them goes back."""
    app, meter = App(), Meter()

    @app.handler("narrow", concurrency=1)
    async def narrow(ctx: Context) -> None:
        await meter.run("narrow")

    servers = [MemoryServer() for _ in range(3)]
    engines = [MemoryEngine(server, f"q{at}") for at, server in enumerate(servers)]
    await work(app, *engines, slots=6)
    jobs = [(server, server.add("narrow")) for server in servers for _ in range(4)]
    await wait_until(lambda: meter.now["narrow"] == 1)
    meter.gate.set()
    await wait_until(lambda: all(server.jobs[job].outcome == Done("null") for server, job in jobs))
    assert meter.most["narrow"] == 1


@clause("J-36")
async def test_j36_an_orphan_beyond_its_handler_s_limit_goes_back(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker
) -> None:
    app, meter = App(), Meter()

    @app.handler("narrow", concurrency=1)
    async def narrow(ctx: Context) -> None:
        await meter.run("narrow")

    jobs = [server.add("narrow") for _ in range(3)]
    server.start(engine.consumer, 3)
    server.lose_answer("wait")
    await work(app, engine, slots=6)
    await wait_until(lambda: server.settles.total() == 2, "two of the orphans to go back")
    assert meter.now["narrow"] == 1
    meter.gate.set()
    await wait_until(lambda: all(server.jobs[job].outcome == Done("null") for job in jobs))
    assert meter.most["narrow"] == 1


async def test_two_queues_share_the_slots_evenly_while_both_have_work(work: StartWorker) -> None:
    app, meter = App(), Meter()

    @app.handler("task")
    async def task(ctx: Context) -> None:
        await meter.run(ctx.payload["queue"])

    servers = {name: MemoryServer() for name in ("a", "b")}
    engines = [MemoryEngine(server, name) for name, server in servers.items()]
    for _ in range(40):
        servers["a"].add("task", {"queue": "a"})
    await work(app, *engines, slots=8)
    # No slot is kept for the quiet queue.
    await wait_until(lambda: meter.now["a"] == 8)
    for _ in range(40):
        servers["b"].add("task", {"queue": "b"})
    meter.gate.set()
    await wait_until(lambda: meter.most["b"] >= 4, "the other queue to get its share of slots")
    await wait_until(lambda: all(len(server.settles) == 40 for server in servers.values()))


@clause("G-6")
async def test_g06_shards_take_turns_with_all_free_slots(work: StartWorker) -> None:
    """With an equal part each, eight shards would take two jobs of sixteen slots at a time."""
    app, meter = App(), Meter()

    @app.handler("task")
    async def task(ctx: Context) -> None:
        await meter.run("all")

    servers = [MemoryServer() for _ in range(8)]
    engines = [MemoryEngine(server, f"shard-{n}") for n, server in enumerate(servers)]
    for engine in engines:
        engine.traits = replace(engine.traits, takes_turns=True)
    for server in servers:
        for _ in range(64):
            server.add("task")
    await work(app, *engines, slots=16)
    await wait_until(lambda: meter.now["all"] == 16)
    meter.gate.set()
    await wait_until(lambda: all(len(server.settles) == 64 for server in servers))
    assert meter.most["all"] == 16
    settles = sum(server.calls["settle"] for server in servers)
    assert settles < 8 * 64 / 6, f"{settles} calls settle 512 jobs"


async def test_g06_a_shard_that_does_not_answer_keeps_no_slot_from_the_others() -> None:
    slots, nudged = Slots(4), list[str]()

    def share(name: str, *, can_take: bool) -> Share:
        return slots.share(lambda: can_take and not nudged.append(name), "jobs")

    silent, first, second = (
        share(name, can_take=name != "silent") for name in ("silent", "first", "second")
    )

    def turn(of: Share) -> int:
        of.begin_turn()
        return of.take_turn(9)

    for each in (silent, first, second):
        each.want(True)
    assert turn(first) == 4
    first.release(4)
    assert nudged == ["second"], "its turn is next"
    first.release(0)
    assert nudged == ["second"], "once is enough"
    assert turn(first) == 0
    second.want(False)
    second.begin_turn()
    second.pass_on()
    assert (nudged[-1], turn(first)) == ("first", 4)


async def test_a_queue_that_has_its_part_passes_free_slots_on() -> None:
    """Another queue began to want some after it was nudged."""
    slots, nudged = Slots(4), list[str]()
    first = slots.share(lambda: not nudged.append("first"))
    second = slots.share(lambda: not nudged.append("second"))
    assert second.try_acquire(4) == 4
    first.want(True)
    second.release(2)
    first.begin_turn()
    assert first.take_turn(9) == 2
    second.release(2)
    second.want(True)
    nudged.clear()
    first.begin_turn()
    assert first.take_turn(9) == 0, "it has its half"
    assert nudged == ["second"]


async def test_more_queues_than_slots_are_served(work: StartWorker) -> None:
    """An idle queue holds no slot, so one slot is enough for any number of them."""
    app, ran = App(), list[str]()

    @app.handler("task")
    async def task(ctx: Context) -> None:
        ran.append(ctx.job.id)

    servers = [MemoryServer() for _ in range(5)]
    engines = [MemoryEngine(server, f"queue-{n}") for n, server in enumerate(servers)]
    await work(app, *engines, slots=1)
    jobs = [server.add("task") for server in servers for _ in range(3)]
    await wait_until(lambda: sorted(ran) == sorted(jobs))


async def test_an_idle_queue_gets_the_next_free_slot(work: StartWorker) -> None:
    """However many jobs wait in the busy queue."""
    app, gates, order = App(), asyncio.Event(), list[str]()

    @app.handler("task")
    async def task(ctx: Context) -> None:
        await gates.wait()
        order.append(ctx.payload["queue"])

    servers = {name: MemoryServer() for name in ("busy", "quiet")}
    engines = [MemoryEngine(server, name) for name, server in servers.items()]
    for _ in range(20):
        servers["busy"].add("task", {"queue": "busy"})
    await work(app, *engines, slots=2)
    await wait_until(lambda: sum(r.token is not None for r in servers["busy"].jobs.values()) == 2)
    servers["quiet"].add("task", {"queue": "quiet"})
    # It has seen the job and waits for a slot.
    await wait_until(lambda: servers["quiet"].calls["wait"] > 0)
    gates.set()
    await wait_until(lambda: len(order) == 21)
    assert order.index("quiet") < 10


async def test_a_cancelled_acquire_loses_no_slot() -> None:
    slots = Slots(1)
    share = slots.share(lambda: False)
    await share.acquire()
    waiting = asyncio.create_task(share.acquire())
    await asyncio.sleep(0)
    share.release()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (slots.free, share.held) == (1, 0)


async def test_a_forced_slot_is_repaid_first() -> None:
    slots = Slots(2)
    share = slots.share(lambda: False)
    assert share.try_acquire(5) == 2
    share.force_acquire()
    assert (slots.free, share.held) == (-1, 3)
    share.release()
    assert (slots.free, share.try_acquire(1)) == (0, 0)
    share.release(2)
    assert (slots.free, share.held) == (2, 0)


async def test_an_offered_slot_stays_free_for_other_queues() -> None:
    slots = Slots(2)
    quiet, busy = slots.share(lambda: False), slots.share(lambda: False)
    assert (quiet.offer(2), busy.offer(2)) == (2, 0), "no slot is offered twice"
    assert busy.try_acquire(5) == 2
    started = list[bool]()
    assert quiet.accept(2, 2) == 0, "the busy queue was faster"
    quiet.when_free(lambda: not started.append(True))
    busy.release()
    assert (started, slots.free, quiet.held, busy.held) == ([True], 0, 1, 1)


async def test_a_waiting_job_that_has_ended_passes_its_slot_on() -> None:
    slots = Slots(1)
    share = slots.share(lambda: False)
    assert share.try_acquire(1) == 1
    share.when_free(lambda: False)
    taken = list[bool]()
    share.when_free(lambda: not taken.append(True))
    share.release()
    assert (taken, share.held, slots.free) == ([True], 1, 0)


# ── changed at run time ──────────────────────────────────────────────────────────────────────────


@clause("B-21")
async def test_b21_a_running_worker_gets_more_and_fewer_slots(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker
) -> None:
    app, meter = App(), Meter()

    @app.handler("task")
    async def task(ctx: Context) -> None:
        await meter.run("all")

    jobs = [server.add("task") for _ in range(20)]
    worker = await work(app, engine, slots=2)
    await wait_until(lambda: meter.now["all"] == 2)
    app.worker.slots = 6
    await wait_until(lambda: meter.now["all"] == 6)
    assert worker.slots == engine.slots == 6, "the server is told as well"
    app.worker.slots = 3
    await wait_until(lambda: engine.slots == 3)
    assert meter.now["all"] == 6, "running jobs are not stopped"
    meter.most.clear()
    settled = len(server.settles)
    meter.gate.set()
    await wait_until(lambda: len(server.settles) == len(jobs))
    assert settled == 0
    assert meter.most["all"] <= 6
    assert worker.slots == 3


async def test_fewer_slots_hold_for_the_jobs_after_the_running_ones() -> None:
    slots = Slots(4)
    one, other = slots.share(lambda: False), slots.share(lambda: False)
    assert (one.try_acquire(3), other.try_acquire(1)) == (3, 1)
    slots.resize(2)
    one.release(2)
    assert other.try_acquire(1) == 0, "two are held, as many as there are"
    one.release()
    assert other.try_acquire(4) == 1
    slots.resize(3)
    assert one.try_acquire(4) == 1


@pytest.mark.parametrize("slots", [0, -1])
async def test_a_worker_needs_a_slot(work: StartWorker, engine: MemoryEngine, slots: int) -> None:
    app = App()
    app.handler("task")(lambda ctx: None)
    worker = await work(app, engine, slots=2)
    with pytest.raises(ValueError, match="at least one"):
        worker.slots = slots
    assert worker.slots == 2


@clause("B-21")
async def test_b21_a_paused_worker_takes_nothing_until_it_resumes(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker
) -> None:
    app, meter = App(), Meter()

    @app.handler("task")
    async def task(ctx: Context) -> None:
        await meter.run("all")

    for _ in range(6):
        server.add("task")
    worker = await work(app, engine, slots=2)
    await wait_until(lambda: meter.now["all"] == 2)
    worker.pause()
    assert worker.paused
    meter.gate.set()
    await worker.wait_idle()
    assert len(server.settles) == 2, "running jobs end, the others wait"
    another = MemoryEngine(server)
    await work(app, another, slots=1)
    await wait_until(lambda: len(server.settles) == 6)
    holders = [record.holder for record in server.jobs.values()]
    assert holders.count(engine.consumer) == 2
    worker.resume()
    assert not worker.paused
    server.add("task")
    await wait_until(lambda: len(server.settles) == 7)


async def test_a_paused_worker_that_waited_takes_nothing(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker
) -> None:
    app = App()
    app.handler("task")(lambda ctx: None)
    worker = await work(app, engine)
    worker.pause()
    await wait_until(lambda: engine.waits == 0, "the end of the wait")
    job = server.add("task")
    await worker.wait_idle()
    assert server.jobs[job].outcome is None
    worker.resume()
    await wait_until(lambda: server.jobs[job].outcome is not None)


async def test_a_handler_in_a_thread_pauses_its_worker(
    server: MemoryServer, engine: MemoryEngine, work: StartWorker
) -> None:
    app = App()

    @app.handler("task")
    def task(ctx: Context) -> None:
        app.worker.pause()

    jobs = [server.add("task") for _ in range(2)]
    worker = await work(app, engine, slots=1)
    await wait_until(lambda: worker.paused and len(server.settles) == 1)
    await worker.wait_idle()
    assert sum(server.jobs[job].outcome is None for job in jobs) == 1


async def test_an_app_without_a_worker_says_so(engine: MemoryEngine, work: StartWorker) -> None:
    app = App()
    app.handler("task")(lambda ctx: None)
    with pytest.raises(RuntimeError, match="no worker"):
        _ = app.worker
    assert await work(app.wrapped(lambda handler: handler), engine) is app.worker
