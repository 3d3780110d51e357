"""Both sides of the scenarios: a Node program with npm bullmq, and our producer and worker.

`Story` is one queue; its producer is one side's, its worker the other's.
"""

from __future__ import annotations

import asyncio
import json
from itertools import count
from typing import Any, Final

from jobwire import App, Context, Postpone, RateLimit, WaitForChildren
from jobwire.job.errors import Fail
from jobwire.job.messages import Json
from jobwire.systems.queues.admin import QueueAdmin
from jobwire.systems.queues.codec import JobHash
from jobwire.systems.queues.contract import BullState, Refusal
from jobwire.systems.queues.engine import BullEngine
from jobwire.systems.queues.events import QueueEvent, read_events
from jobwire.systems.queues.flows import add_flow
from jobwire.systems.queues.follow import FinishedJob, QueueFollower
from jobwire.systems.queues.queue import QueueProducer
from jobwire.systems.queues.schedulers import Schedulers
from jobwire.systems.queues.settings import BullSettings
from jobwire.systems.queues.worker_connections import WorkerConnections
from jobwire.valkey import Config, Connection
from jobwire.valkey.stream_ids import START
from jobwire.worker import Worker
from tests.interop.bullmq_jobwire import flow_tree, new_job
from tests.interop.bullmq_lab import Peer
from tests.support import wait_until
from tests.support.workers import started, stopped

LIMIT_MS: Final = 250
"""For how long the handler `limited` limits its queue."""
_METRICS_MINUTES: Final = 60
_SLOTS: Final = 5
_numbers = count(1)


def handlers(admin: QueueAdmin) -> App:
    """The same handlers as in the Node program."""
    app = App()

    async def children(ctx: Context) -> Json:
        return [*sorted(map(str, (await admin.children(ctx.job.id)).values.values()))]

    async def plain(ctx: Context) -> Json:
        match ctx.job.task:
            case "fail":
                raise OSError("no disk")
            case "never":
                raise Fail("never", "never")
            case "flaky" if ctx.attempt == 1:
                raise OSError("not yet")
            case "steps":
                await ctx.progress(50, "half of it")
            case "slow":
                await asyncio.sleep(0.02)
            case "announce":
                await ctx.emit("scene", {"n": 1})
            case _:
                pass
        return ctx.payload.get("value", ctx.job.task)

    async def postponed(ctx: Context) -> Json:
        if ctx.job.deliveries == 1:
            raise Postpone(0.03)
        return "later"

    async def limited(ctx: Context) -> Json:
        if ctx.job.deliveries == 1:
            raise RateLimit(LIMIT_MS / 1000)
        return "later"

    async def saved(ctx: Context) -> Json:
        if "step" not in ctx.payload:
            await ctx.update_data({"step": 2})
            raise OSError("interrupted")
        return ctx.payload["step"]

    async def family(ctx: Context) -> Json:
        if "waited" in ctx.payload:
            return await children(ctx)
        for value in ("a", "b"):
            child = f"{ctx.job.id}-{value}"
            await ctx.add_child(ctx.job.source, "echo", {"value": value}, job_id=child)
        await ctx.update_data({"waited": True})
        raise WaitForChildren

    for name in ("echo", "steps", "fail", "flaky", "never", "slow", "announce"):
        app.handler(name)(plain)
    app.handler("join")(children)
    app.handler("postponed", uses={"postpone"})(postponed)
    app.handler("limited", uses={"rate_limit"})(limited)
    app.handler("saved", uses={"update_data"})(saved)
    app.handler("family", uses={"children", "update_data"})(family)
    return app


class Story:
    """One queue; `producer` is whose side adds and administers, the worker is the other's."""

    def __init__(self, producer: str, peer: Peer, url: str, connection: Connection) -> None:
        self.ours = producer == "jobwire"
        """Whether our side is the producer."""
        self.name = f"{producer}-{next(_numbers)}"
        self.connection = connection
        self.queue = QueueProducer(connection, self.name)
        self.admin = QueueAdmin(self.queue)
        self.schedulers = Schedulers(self.queue)
        self.follower = QueueFollower("bull")
        self._peer = peer
        self._url = url
        self._worker: tuple[Worker, asyncio.Task[None]] | None = None

    async def ask(self, op: str, **more: Any) -> Any:
        call = {"op": op, "queue": self.name, **more}
        return await asyncio.to_thread(self._peer.do, call)

    async def node(self, method: str, *args: Any) -> Any:
        """A method of Node's Queue."""
        return await self.ask("queue", method=method, args=args)

    # The worker's side

    async def work(self, *, limit: tuple[int, int] = (0, 0)) -> None:
        """Start the worker; `limit` is its own rate limit: jobs, milliseconds."""
        most, ms = limit
        if self.ours:
            limiter = {"limiter": {"max": most, "duration": ms}} if most else {}
            metrics = {"metrics": {"maxDataPoints": _METRICS_MINUTES}}
            options = {"stalledInterval": 5000, "concurrency": _SLOTS, **metrics, **limiter}
            await self.ask("work", options=options)
            return
        settings = BullSettings(limit_max=most, limit_ms=ms, metrics_points=_METRICS_MINUTES)
        shared = WorkerConnections(Config.from_url(self._url), settings)
        worker = Worker(handlers(self.admin), [BullEngine(shared, self.name)], slots=_SLOTS)
        self._worker = worker, await started(worker)

    async def stop(self) -> None:
        """Stop the worker."""
        if self.ours:
            await self.ask("stop")
        elif self._worker is not None:
            await stopped(*self._worker)
            self._worker = None

    # The producer's side

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
        made = await add_flow(self.connection, flow_tree(tree))
        assert not isinstance(made, Refusal)
        return made.job_id

    async def result(self, job_id: str) -> Any:
        """The producer's `wait until finished`."""
        if not self.ours:
            return await self.ask("wait", id=job_id)
        ended = await self.follower.wait_until_finished(self.queue, job_id, 60)
        assert isinstance(ended, FinishedJob)
        if ended.state is BullState.COMPLETED:
            return {"value": json.loads(ended.value_json)}
        return {"error": ended.reason}

    async def pause(self) -> None:
        await (self.queue.pause() if self.ours else self.node("pause"))

    async def resume(self) -> None:
        await (self.queue.resume() if self.ours else self.node("resume"))

    # What is on the server

    async def job(self, job_id: str) -> JobHash:
        found = await self.queue.get(job_id)
        assert found is not None
        return found

    async def attempts(self, job_id: str) -> tuple[int, int]:
        """The number of starts of the job, and of counted attempts."""
        job = await self.job(job_id)
        return job.attempts_started, job.attempts_made

    async def until(self, job_id: str, state: str) -> None:
        async def reached() -> bool:
            return await self.queue.state(job_id) == state

        await wait_until(reached, f"{job_id} to be {state}", timeout_s=60)

    async def until_count(self, state: BullState, count: int) -> None:
        async def reached() -> bool:
            return (await self.queue.counts())[state] == count

        await wait_until(reached, f"{count} jobs to be {state}", timeout_s=60)

    async def events(self, *names: str) -> list[QueueEvent]:
        """The events of these names so far; their ids have the server's time."""
        reply = await self.connection.call("XRANGE", self.queue.keys.events, "-", "+")
        return [event for event in read_events(reply) if event.name in names]

    async def start_times_ms(self) -> list[int]:
        """When jobs were started, by the server's clock."""
        return [event.position.ms for event in await self.events("active")]


class Collector:
    """A reader of our follower that keeps all events."""

    closed = False

    def __init__(self) -> None:
        self.events: list[QueueEvent] = []

    def push(self, event: QueueEvent) -> bool:
        self.events.append(event)
        return True

    def send_gap(self) -> bool:
        raise AssertionError("no event is missing")

    def end(self) -> None:
        return

    async def wait_writable(self) -> None:
        return


async def watched(story: Story) -> Collector:
    """Our QueueEvents: all events of the queue from the first."""
    collector = Collector()
    story.follower.watch(story.name, collector, START)
    return collector
