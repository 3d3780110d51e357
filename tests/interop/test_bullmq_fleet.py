"""B-9: Node 6, Node 5, the Python package, a plain program and our worker as producers and workers
of the same queues, all pairs."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any, Final

import msgspec
import pytest
import pytest_asyncio

from jobwire import App, Context, Postpone, RateLimit, WaitForChildren
from jobwire.local import LocalValkey
from jobwire.systems.queues.add_batcher import Added
from jobwire.systems.queues.announcement import list_workers, seen_workers
from jobwire.systems.queues.contract import DEFAULT_PREFIX, BullState
from jobwire.systems.queues.engine import BullEngine
from jobwire.systems.queues.queue import NewBullJob, QueueProducer
from jobwire.systems.queues.worker_connections import WorkerConnections
from jobwire.valkey import Config, Connection
from jobwire.worker import Worker
from tests.interop.bullmq_teams import ALL, OURS, PLAIN, TEAMS, Fleet
from tests.support import clause, wait_until
from tests.support.thirdparty import node_packages, python_packages
from tests.support.workers import started, stopped

COUNT: Final = int(os.environ.get("FLEET_JOBS") or 20)
"""Jobs of each pair of producer and worker."""
_numbers = count(1)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    node_packages()
    python_packages()
    with LocalValkey(tmp_path_factory.mktemp("fleet"), admin=True) as server:
        fleet = Fleet(server.admin_url, *TEAMS, PLAIN)
        try:
            yield fleet
        finally:
            fleet.close()


class Site:
    """The queues of one test: one per kind of worker, and a shared one."""

    def __init__(self, fleet: Fleet, connection: Connection) -> None:
        self.fleet = fleet
        self._connection = connection
        number = next(_numbers)
        self.queues = {kind: f"{kind}-{number}" for kind in (*ALL, PLAIN)}
        self.shared = f"shared-{number}"

    async def seen_workers(self, *queues: str) -> object:
        return await seen_workers(self._connection, DEFAULT_PREFIX, queues)

    async def our_workers(self, queue: str) -> int:
        listed = await list_workers(self._connection, DEFAULT_PREFIX, [queue])
        return sum(worker.ours for worker in listed or ())

    def queue(self, name: str) -> QueueProducer:
        return QueueProducer(self._connection, name)

    async def work(self, *teams: str) -> None:
        """Let these teams work on their own queue and on the shared one."""
        for team in teams:
            for queue in (self.queues[team], self.shared):
                await self.fleet.ask(team, "work", queue=queue)

    async def produce(self, producer: str, queue: str, count: int = COUNT) -> list[Any]:
        """Submit as this kind of client and wait for all results."""
        if producer != OURS:
            return await self.fleet.ask(producer, "produce", queue=queue, count=count)
        ours = self.queue(queue)
        jobs = [NewBullJob("task", f'{{"n":{number}}}') for number in range(count)]
        ids = [added.job_id for added in await ours.submit_many(jobs) if isinstance(added, Added)]

        async def all_ended() -> bool:
            return all([await ours.state(job_id) is BullState.COMPLETED for job_id in ids])

        await wait_until(all_ended, f"{count} jobs of {queue}", timeout_s=60)
        found = [await ours.get(job_id) for job_id in ids]
        return [msgspec.json.decode(job.return_json) for job in found if job is not None]


@pytest_asyncio.fixture
async def site(fleet: Fleet) -> AsyncIterator[Site]:
    """Our worker runs in the test's loop."""
    app = App()

    async def task(ctx: Context) -> dict[str, Any]:
        await ctx.progress(50)
        return {"by": OURS, "n": ctx.payload.get("n")}

    async def parent(ctx: Context) -> dict[str, Any]:
        return {"by": OURS}

    async def update(ctx: Context) -> str:
        await ctx.update_data({"step": 2})
        await ctx.log("first")
        await ctx.log("second", "warning")
        return "updated"

    async def postpone(ctx: Context) -> str:
        if ctx.job.deliveries == 1:
            raise Postpone(3600)
        return "later"

    async def limit(ctx: Context) -> None:
        raise RateLimit(3600)

    async def family(ctx: Context) -> str:
        if not ctx.payload["queue"]:
            return "complete"
        for number in range(2):
            await ctx.add_child(ctx.payload["queue"], "task", {"n": number}, job_id=f"c-{number}")
        await ctx.update_data({"queue": ""})
        raise WaitForChildren

    app.handler("task")(task)
    app.handler("parent")(parent)
    app.handler("update", uses={"update_data"})(update)
    app.handler("postpone", uses={"postpone"})(postpone)
    app.handler("limit", uses={"rate_limit"})(limit)
    app.handler("family", uses={"children", "update_data"})(family)
    async with Connection.open(fleet.url) as connection:
        site = Site(fleet, connection)
        shared = WorkerConnections(Config.from_url(fleet.url))
        engines = [BullEngine(shared, queue) for queue in (site.queues[OURS], site.shared)]
        worker = Worker(app, engines, slots=5)
        running = await started(worker)
        yield site
        await stopped(worker, running)


@clause("B-9")
async def test_b9_every_producer_is_served_by_every_worker(site: Site) -> None:
    await site.work(*TEAMS)

    async def produce(producer: str) -> None:
        for worker in ALL:
            queue = site.queues[worker]
            results = await site.produce(producer, queue)
            assert [result["by"] for result in results] == [worker] * COUNT, producer
            assert [result["n"] for result in results] == list(range(COUNT))

    await asyncio.gather(*(produce(producer) for producer in ALL))
    for team in ("node6", "node5"):
        # Their QueueEvents have read all events of our worker and producer.
        seen = await site.fleet.ask(team, "seen", queue=site.queues[OURS])
        assert seen["errors"] == []
        assert seen["progress"] >= COUNT

    # One queue for all: each job is done once, by any worker.
    mixed = await asyncio.gather(*(site.produce(producer, site.shared) for producer in ALL))
    for results in mixed:
        assert [result["n"] for result in results] == list(range(COUNT))
        assert {result["by"] for result in results} <= set(ALL)


@clause("B-9", "B-1", "B-2", "B-4")
async def test_b9_a_plain_program_shares_queues_with_every_other(site: Site) -> None:
    """Its jobs run on all workers, and its worker runs the jobs of all producers."""
    fleet = site.fleet
    # Added before the workers start: without a marker an idle Node worker checks only after
    # seconds.
    added = {
        worker: await fleet.ask(PLAIN, "submit", queue=site.queues[worker], count=COUNT)
        for worker in ALL
    }
    await site.work(*TEAMS)
    for worker, ids in added.items():
        results = await fleet.ask(PLAIN, "results", queue=site.queues[worker], ids=ids)
        assert [result["by"] for result in results] == [worker] * COUNT
        assert [result["n"] for result in results] == list(range(COUNT))

    await fleet.ask(PLAIN, "work", queue=site.queues[PLAIN])
    producing = [site.produce(producer, site.queues[PLAIN]) for producer in ALL]
    for results in await asyncio.gather(*producing):
        assert [(result["by"], result["n"]) for result in results] == [
            (PLAIN, number) for number in range(COUNT)
        ]


@clause("B-9", "B-2", "B-7")
async def test_b9_a_plain_worker_and_ours_share_a_queue(site: Site) -> None:
    """With priorities, and with progress events that only our programs survive."""
    fleet, shared = site.fleet, site.queues[OURS]
    await fleet.ask(PLAIN, "work", queue=shared, progress=True)
    urgent = await fleet.ask(PLAIN, "submit", queue=shared, count=COUNT, priority=2)
    mine = await site.produce(OURS, shared)
    theirs = await fleet.ask(PLAIN, "produce", queue=shared, count=COUNT)
    first = await fleet.ask(PLAIN, "results", queue=shared, ids=urgent)
    for results in (mine, theirs, first):
        assert [result["n"] for result in results] == list(range(COUNT))
        assert {result["by"] for result in results} <= {OURS, PLAIN}
    ours = site.queue(shared)
    counts = await ours.counts()
    assert counts == {**dict.fromkeys(counts, 0), BullState.COMPLETED: 3 * COUNT}


@clause("B-9", "B-8")
async def test_b9_flows_span_our_workers_and_theirs(site: Site) -> None:
    await site.work(*TEAMS)
    ours = site.queues[OURS]
    for team in TEAMS:
        theirs = site.queues[team]
        # The parent waits on their side for children on ours, and the other way round.
        flow = await site.fleet.ask(team, "flow", parent=theirs, children=[ours, theirs, ours])
        assert flow == {"by": team, "children": sorted([OURS, team, OURS])}
        back = await site.fleet.ask(team, "flow", parent=ours, children=[theirs, theirs])
        assert back == {"by": OURS}


@clause("B-9", "B-11")
async def test_b9_node_reads_the_effects_of_our_handlers(site: Site) -> None:
    ours, theirs = site.queues[OURS], site.queues["node6"]

    async def added(name: str, data: object = None) -> str:
        answer = await site.queue(ours).submit(name, json.dumps(data or {}))
        assert isinstance(answer, Added)
        return answer.job_id

    async def seen(job_id: str, state: str) -> Any:
        async def view() -> Any:
            found = await site.fleet.ask("node6", "view", queue=ours, id=job_id)
            return found if found["state"] == state else None

        return await wait_until(view, f"Node to see job {job_id} as {state}")

    found = await seen(await added("update", {"step": 1}), "completed")
    assert (found["data"], found["logs"]) == ({"step": 2}, ["first", "warning: second"])

    postponed = await added("postpone")
    found = await seen(postponed, "delayed")
    assert (found["attemptsMade"], found["attemptsStarted"]) == (0, 1)
    await site.fleet.ask("node6", "promote", queue=ours, id=postponed)
    found = await seen(postponed, "completed")
    assert (found["attemptsMade"], found["attemptsStarted"]) == (1, 2)

    family = await added("family", {"queue": theirs})
    found = await seen(family, "waiting-children")
    assert (found["pending"], found["attemptsMade"]) == (2, 0)
    await site.work("node6")
    found = await seen(family, "completed")
    assert sorted(child["n"] for child in found["children"]) == [0, 1]
    assert (found["returnvalue"], found["attemptsMade"]) == ("complete", 1)

    # Last: it stops the queue.
    limited = await added("limit")

    async def is_limited() -> bool:
        view = await site.fleet.ask("node6", "view", queue=ours, id=limited)
        return view["limited"] and view["state"] == "waiting"

    await wait_until(is_limited, "Node to see the rate limit")
    found = await seen(limited, "waiting")
    assert (found["attemptsMade"], found["attemptsStarted"]) == (0, 1)


@clause("B-9", "B-20")
async def test_b9_get_workers_of_every_package_lists_our_worker(site: Site) -> None:
    ours = site.queues[OURS]
    for team in ("node6", "node5"):
        assert await site.fleet.ask(team, "workers", queue=ours) == 1
    assert await site.fleet.ask("py", "workers_of", queue=ours) == 1
    # And ours sees those of every package beside its own.
    await site.work(*TEAMS)
    theirs = [site.queues[team] for team in TEAMS]

    async def are_seen() -> bool:
        seen = await site.seen_workers(site.shared, *theirs, ours)
        return seen == {site.shared: 4, **dict.fromkeys(theirs, 1), ours: 1}

    await wait_until(are_seen, "the named connections")
    assert await site.our_workers(site.shared) == 1
