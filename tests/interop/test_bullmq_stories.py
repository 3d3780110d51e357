"""B-8, B-9: what BullMQ's documentation shows, with npm bullmq on one side and ours on the other.

Each story runs twice: the Node program produces and our worker works, and the other way round. One
Node process serves all stories.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from jobwire import App, Context
from jobwire.job.errors import Fail
from jobwire.job.messages import Json
from jobwire.local import LocalValkey
from jobwire.valkey import Config, Connection
from jobwire.wires.bullmq.admin import QueueAdmin
from jobwire.wires.bullmq.contract import Refusal, State
from jobwire.wires.bullmq.engine import BullEngine
from jobwire.wires.bullmq.flows import add_flow
from jobwire.wires.bullmq.follow import Ended, QueueFollower
from jobwire.wires.bullmq.hub import BullHub
from jobwire.wires.bullmq.queue import BullQueue
from jobwire.wires.bullmq.schedulers import Repeat, Schedulers
from jobwire.worker import Worker
from tests.interop.bullmq_jobwire import flow_tree, new_job
from tests.interop.bullmq_lab import Peer
from tests.support import clause, wait_until
from tests.support.thirdparty import NODE, NotInstalled, node_packages
from tests.support.workers import started, stopped

_HERE: Final = Path(__file__).parent
_numbers = count(1)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Peer, str]]:
    """The Node program, and the server that both sides use."""
    try:
        packages = node_packages()
    except NotInstalled as error:
        pytest.skip(f"the official BullMQ packages cannot be installed here: {error}")
    with LocalValkey(tmp_path_factory.mktemp("stories"), admin=True) as server:
        url = server.admin_url
        program = _HERE / "node" / "bullmq_stories.js"
        peer = Peer([NODE, program, packages, url.replace("valkey:", "redis:")])
        try:
            yield peer, url
        finally:
            peer.close()


NAMES: Final = ("echo", "steps", "fail", "flaky", "never", "join")


def handlers(admin: QueueAdmin) -> App:
    """The same handlers as in the Node program."""
    app = App()

    async def handle(ctx: Context) -> Json:
        match ctx.job.task:
            case "fail":
                raise OSError("no disk")
            case "never":
                raise Fail("never", "never")
            case "flaky" if ctx.attempt == 1:
                raise OSError("not yet")
            case "join":
                children = await admin.children(ctx.job.id)
                return [*sorted(map(str, children.values.values()))]
            case "steps":
                await ctx.progress(50, "half of it")
            case _:
                pass
        return ctx.payload.get("value", ctx.job.task)

    for name in NAMES:
        app.handler(name)(handle)
    return app


class Story:
    """One queue; `producer` is whose side adds and administers, the worker is the other's."""

    def __init__(self, producer: str, peer: Peer, connection: Connection) -> None:
        self.producer = producer
        self.name = f"{producer}-{next(_numbers)}"
        self._peer = peer
        self._connection = connection
        self.queue = BullQueue(connection, self.name)
        self.admin = QueueAdmin(self.queue)
        self.schedulers = Schedulers(self.queue)
        self.follower = QueueFollower("bull")

    @property
    def ours(self) -> bool:
        return self.producer == "jobwire"

    async def ask(self, op: str, **more: Any) -> Any:
        call = {"op": op, "queue": self.name, **more}
        return await asyncio.to_thread(self._peer.do, call)

    async def node(self, method: str, *args: Any) -> Any:
        return await self.ask("queue", method=method, args=args)

    async def add(self, name: str, data: Any = None, **opts: Any) -> str:
        job = {"name": name, "data": data or {}, "opts": opts}
        if not self.ours:
            return await self.node("add", name, data or {}, opts)
        answer = await self.queue.submit(*new_job(job))
        assert not isinstance(answer, Refusal)
        return answer.job_id

    async def flow(self, tree: dict[str, Any]) -> str:
        if not self.ours:
            return await self.ask("flow", tree=tree)
        made = await add_flow(self._connection, flow_tree(tree))
        assert not isinstance(made, Refusal)
        return made.job_id

    async def result(self, job_id: str) -> Any:
        """The producer's `wait until finished`."""
        if not self.ours:
            return await self.ask("wait", id=job_id)
        ended = await self.follower.wait_until_finished(self.queue, job_id, 60)
        assert isinstance(ended, Ended)
        if ended.state is State.COMPLETED:
            return {"value": json.loads(ended.value_json)}
        return {"error": ended.reason}

    async def job(self, job_id: str) -> Any:
        found = await self.queue.get(job_id)
        assert found is not None
        return found

    async def until(self, job_id: str, state: str) -> None:
        async def reached() -> bool:
            return await self.queue.state(job_id) == state

        await wait_until(reached, f"{job_id} to be {state}", timeout_s=60)

    async def pause(self) -> None:
        await (self.queue.pause() if self.ours else self.node("pause"))

    async def resume(self) -> None:
        await (self.queue.resume() if self.ours else self.node("resume"))


@pytest_asyncio.fixture(params=["node", "jobwire"])
async def story(request: pytest.FixtureRequest, node: tuple[Peer, str]) -> AsyncIterator[Story]:
    peer, url = node
    async with Connection.open(url) as connection:
        story = Story(request.param, peer, connection)
        async with story.follower.running(url):
            if story.ours:
                await story.ask("work", options={"stalledInterval": 5000})
                yield story
                return
            await story.ask("watch")
            worker = Worker(
                handlers(story.admin), [BullEngine(BullHub(Config.from_url(url)), story.name)]
            )
            running = await started(worker)
            yield story
            await stopped(worker, running)


@clause("B-8", "B-9")
async def test_b9_a_job_and_its_result(story: Story) -> None:
    job_id = await story.add("echo", {"value": {"a": [1, "é"]}})
    assert await story.result(job_id) == {"value": {"a": [1, "é"]}}


@clause("B-8", "B-9")
async def test_b9_progress_and_logs(story: Story) -> None:
    job_id = await story.add("steps")
    await story.result(job_id)
    assert (await story.job(job_id)).progress_json == "50"
    assert (await story.queue.logs(job_id)).lines == ["half of it"]
    assert (await story.node("getJobLogs", job_id))["logs"] == ["half of it"]


@clause("B-8", "B-9")
async def test_b9_failures_retries_and_unrecoverable_errors(story: Story) -> None:
    failing, flaky, never = [
        await story.add(name, attempts=2, backoff={"type": "fixed", "delay": 10})
        for name in ("fail", "flaky", "never")
    ]
    assert "no disk" in (await story.result(failing))["error"]
    assert await story.result(flaky) == {"value": "flaky"}
    assert "never" in (await story.result(never))["error"]
    made = [(await story.job(job_id)).attempts_made for job_id in (failing, flaky, never)]
    assert made == [2, 2, 1]
    # A failed job is run again by hand.
    if story.ours:
        assert await story.admin.retry(failing) is None
    else:
        await story.ask("job", id=failing, method="retry")
    await story.until(failing, "failed")
    assert (await story.job(failing)).attempts_started >= 3


@clause("B-8", "B-9")
async def test_b9_pause_priorities_and_lifo(story: Story) -> None:
    await story.pause()
    for value, opts in (("c", {"priority": 9}), ("b", {"priority": 1}), ("a", {})):
        last = await story.add("echo", {"value": value}, **opts)
    first = await story.add("echo", {"value": "first"}, lifo=True)
    assert await story.queue.state(last) == State.WAITING
    await story.resume()

    async def all_done() -> bool:
        return (await story.queue.counts())[State.COMPLETED] == 4

    await wait_until(all_done, "four jobs", timeout_s=60)
    jobs = {json.loads(job.return_json): job for job in await story.queue.list(State.COMPLETED)}
    assert jobs["first"].id == first
    started_ms = [jobs[value].processed_on_ms or 0 for value in ("first", "a", "b", "c")]
    assert started_ms == sorted(started_ms)


@clause("B-8", "B-9")
async def test_b9_delays_promotion_and_changes(story: Story) -> None:
    short = await story.add("echo", {"value": 1}, delay=20)
    far, promoted, changed = [await story.add("echo", delay=3_600_000) for _ in range(3)]
    assert await story.result(short) == {"value": 1}
    if story.ours:
        assert await story.admin.promote(promoted) is None
        assert await story.admin.change_delay(changed, 5) is None
        assert await story.admin.change_priority(far, 3) is None
    else:
        await story.ask("job", id=promoted, method="promote")
        await story.ask("job", id=changed, method="changeDelay", args=[5])
        await story.ask("job", id=far, method="changePriority", args=[{"priority": 3}])
    await story.until(promoted, "completed")
    await story.until(changed, "completed")
    assert (await story.job(far)).priority == 3
    await (story.admin.promote_all() if story.ours else story.node("promoteJobs"))
    await story.until(far, "completed")


@clause("B-8", "B-9")
async def test_b9_ids_bulk_and_deduplication(story: Story) -> None:
    await story.pause()
    assert await story.add("echo", jobId="mine") == await story.add("echo", jobId="mine") == "mine"
    owner = await story.add("echo", deduplication={"id": "x"})
    assert await story.add("echo", deduplication={"id": "x"}) == owner
    if story.ours:
        jobs = [new_job({"name": "echo", "data": {"value": n}}) for n in range(3)]
        assert len(await story.queue.submit_many(jobs)) == 3
    else:
        bulk = [{"name": "echo", "data": {"value": n}} for n in range(3)]
        assert len(await story.node("addBulk", bulk)) == 3
    assert (await story.queue.counts())[State.WAITING] == 5
    await story.resume()
    await story.until(owner, "completed")
    # The id is free again once its owner has ended.
    assert await story.add("echo", deduplication={"id": "x"}) != owner


@clause("B-8", "B-9")
async def test_b9_retention(story: Story) -> None:
    gone = await story.add("echo", removeOnComplete=True)
    kept = [await story.add("echo", removeOnComplete=1) for _ in range(3)]
    await story.until(kept[-1], "completed")
    assert await story.queue.get(gone) is None

    async def one_left() -> bool:
        return (await story.queue.counts())[State.COMPLETED] == 1

    await wait_until(one_left, "one completed job", timeout_s=60)


@clause("B-8", "B-9")
async def test_b9_flows_and_policies(story: Story) -> None:
    def child(name: str, value: str, **opts: Any) -> dict[str, Any]:
        return {"name": name, "queueName": story.name, "data": {"value": value}, "opts": opts}

    def parent(*children: dict[str, Any]) -> dict[str, Any]:
        return {"name": "join", "queueName": story.name, "data": {}, "children": list(children)}

    both = await story.flow(parent(child("echo", "a"), child("echo", "b")))
    assert await story.result(both) == {"value": ["a", "b"]}
    ignoring = child("fail", "x", ignoreDependencyOnFailure=True)
    ignored = await story.flow(parent(child("echo", "a"), ignoring))
    assert await story.result(ignored) == {"value": ["a"]}
    assert len((await story.admin.children(ignored)).ignored) == 1
    failing = await story.flow(parent(child("fail", "x", failParentOnFailure=True)))
    assert "failed" in (await story.result(failing))["error"]


@clause("B-8", "B-9")
async def test_b9_schedulers(story: Story) -> None:
    if story.ours:
        template = new_job({"name": "echo", "data": {"value": "tick"}})
        await story.schedulers.set("every", Repeat(every_ms=100, limit=2), template)
        await story.schedulers.set("cron", Repeat(pattern="0 0 3 1 1 *", tz="UTC"), template)
    else:
        template = {"name": "echo", "data": {"value": "tick"}}
        await story.node("upsertJobScheduler", "every", {"every": 100, "limit": 2}, template)
        cron = {"pattern": "0 0 3 1 1 *", "tz": "UTC"}
        await story.node("upsertJobScheduler", "cron", cron, template)

    async def two() -> bool:
        return (await story.queue.counts())[State.COMPLETED] == 2

    await wait_until(two, "two iterations", timeout_s=60)
    assert {each.id for each in await story.schedulers.list()} == {"every", "cron"}
    remove = (
        story.schedulers.remove("cron") if story.ours else story.node("removeJobScheduler", "cron")
    )
    assert await remove is True
    assert (await story.queue.counts())[State.DELAYED] == 0


@clause("B-8", "B-9")
async def test_b9_administration_of_a_queue(story: Story) -> None:
    failed = [await story.add("fail") for _ in range(2)]
    for job_id in failed:
        await story.until(job_id, "failed")
    await (story.admin.retry_all() if story.ours else story.node("retryJobs"))

    async def again() -> bool:
        jobs = [await story.job(job_id) for job_id in failed]
        return all(job.attempts_made == 2 for job in jobs)

    await wait_until(again, "both to run again", timeout_s=60)
    if story.ours:
        assert sorted(await story.admin.clean("failed")) == sorted(failed)
    else:
        assert sorted(await story.node("clean", 0, 0, "failed")) == sorted(failed)
    await story.pause()
    waiting = await story.add("echo")
    await story.add("echo", delay=60_000)
    if story.ours:
        assert await story.admin.remove(waiting) is None
        assert await story.admin.drain(delayed=True) == 1
        assert await story.admin.obliterate() is None
    else:
        assert await story.node("remove", waiting) == 1
        await story.node("drain", True)
        await story.node("obliterate")
    assert sum((await story.queue.counts()).values()) == 0
