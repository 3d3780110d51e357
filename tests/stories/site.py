"""The site of a story test: a queue with its own prefix, workers to kill, and one that survives."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self, cast

from jobwire.job.messages import JobId, JobRequest, Submitted
from jobwire.maintenance import Maintenance
from jobwire.systems.jobs import contract
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.queue import StreamsQueue
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.valkey import Connection
from jobwire.worker import Worker
from tests.stories.handlers import app
from tests.support import Program, Proxy, wait_until
from tests.support.resp import Command
from tests.support.streams import runs
from tests.support.workers import started, stopped

LEASE_S: Final = 2.0
When = Literal["before", "after"]
TERMINAL: Final = frozenset({"done", "error", "canceled"})


class Site:
    """One queue, its keys below a prefix, so that many tests can run in parallel."""

    def __init__(
        self,
        url: str,
        folder: Path,
        *,
        prefix: str = "",
        lease_s: float = LEASE_S,
        max_deliveries: int = 5,
    ) -> None:
        self.url = url
        self.folder = folder
        self.folder.mkdir(exist_ok=True)
        self.gate = folder / "gate"
        self.settings = StreamsSettings(
            key_prefix=prefix, lease_s=lease_s, max_deliveries=max_deliveries, max_queue=10**6
        )
        self.keys = StreamsKeys(prefix)
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        opening = Connection.open(self.url, name="story-site")
        self.connection = await self._stack.enter_async_context(opening)
        self.queue = StreamsQueue(self.connection, self.settings)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.settings.key_prefix and kind is None:
            for pattern in contract.permanent(self.settings.key_prefix):
                reply = await self.connection.call("SCAN", 0, "MATCH", pattern, "COUNT", 10_000)
                _, found = cast("tuple[str, list[str]]", reply)
                await self.connection.delete(*found)
        await self._stack.aclose()

    @property
    def phase(self) -> Path:
        """Which of its stops a job makes next."""
        return self.folder / "phase"

    # ── the workers ──────────────────────────────────────────────────────────────────────────────

    def victim(self, through: Proxy | None = None, *, slots: int = 4, **variables: str) -> Program:
        """A worker process that the test may kill; it ends with the site."""
        program = Program(
            *("-m", "jobwire", "worker", "tests.stories.handlers:app"),
            *("--slots", str(slots)),
            env={
                # Settings of the test run must not reach the program.
                **{name: "" for name in os.environ if name.startswith("JOBWIRE_")},
                "JOBWIRE_VALKEY_URL": through.url(self.url) if through else self.url,
                "JOBWIRE_JOBS_KEY_PREFIX": self.settings.key_prefix,
                "JOBWIRE_WORKER_LEASE": f"{self.settings.lease_s:g}s",
                "JOBWIRE_JOBS_MAX_DELIVERIES": str(self.settings.max_deliveries),
                # The tests submit to the default queue, as foreign programs do.
                "JOBWIRE_WORKER_DEFAULT_QUEUE": "true",
                **variables,
            },
        )
        self._stack.callback(program.close)
        return program

    async def ready(self, through: Proxy | None = None, **variables: str) -> Program:
        """Start a victim and wait until it takes jobs."""
        program = self.victim(through, slots=4, **variables)
        await asyncio.to_thread(program.wait_for_line, "worker with 4 slots")
        return program

    @contextlib.asynccontextmanager
    async def survivor(
        self, url: str = "", queues: Sequence[str] = (contract.DEFAULT_QUEUE,)
    ) -> AsyncGenerator[Worker]:
        """A worker in the test's process, which is never killed."""
        async with survivor_of([self], url or self.url, queues) as worker:
            yield worker

    async def kill_around(
        self,
        when: When,
        call: Callable[[Command], bool],
        proxy: Proxy,
        victim: Program,
        begin: Callable[[], Awaitable[JobId]],
    ) -> JobId:
        """Begin a job, and kill its worker around a call: `before` the call reaches the server, or
        `after` the server has answered it, with the answer unread."""
        with proxy.hold(call) as hold:
            job = await begin()
            await hold.until_reached()
            if when == "before":
                victim.kill()
                proxy.cut()
            else:
                victim.freeze()
        if when == "after":
            await hold.until_answered()
            victim.kill()
        return job

    # ── jobs ─────────────────────────────────────────────────────────────────────────────────────

    @property
    def effects(self) -> Path:
        """A line for each run of a handler."""
        return self.folder / "effects"

    async def submit(
        self,
        task: str,
        *,
        timeout_s: float | None = None,
        queue: str = contract.DEFAULT_QUEUE,
        **payload: object,
    ) -> JobId:
        """Submit a job."""
        body = {"effects": str(self.effects), "gate": str(self.gate), **payload}
        request = JobRequest(task, json.dumps(body), timeout_s=timeout_s, queue=queue)
        answer = await self.queue.submit(request)
        assert isinstance(answer, Submitted), answer
        return answer.job_id

    def begun(self, job_id: str) -> int:
        """The number of starts of a job's handler."""
        if not self.effects.exists():
            return 0
        return sum(line.startswith(job_id) for line in self.effects.read_text().splitlines())

    async def status(self, job_id: str) -> str:
        reply = await self.connection.call("HGET", self.keys.job(job_id), "status")
        return cast("str | None", reply) or "gone"

    async def status_is(self, job_id: str, status: str) -> bool:
        return await self.status(job_id) == status

    async def fields(self, job_id: str) -> dict[str, str]:
        reply = await self.connection.call("HGETALL", self.keys.job(job_id))
        return cast("dict[str, str]", reply)

    @contextlib.asynccontextmanager
    async def in_hand(
        self,
        proxy: Proxy,
        begin: Callable[[], Awaitable[JobId]],
        queue: str = contract.DEFAULT_QUEUE,
    ) -> AsyncGenerator[JobId]:
        """A job whose entry a worker's blocking read has fetched; the pipelined `take` behind it is
        held by the proxy until the block ends. The job is queued when `begin` returns."""

        async def pending() -> int:
            return (await self.connection.xpending(stream, contract.GROUP)).count

        stream = self.keys.named_queue(queue)
        with proxy.hold(runs("take")) as start:
            with proxy.hold("XREADGROUP") as read:
                await read.until_reached()
                job = await begin()
            await start.until_reached()
            await wait_until(pending, "the read to fetch the entry")
            yield job

    async def events(self, job_id: str) -> list[str]:
        """The types of a job's events, in order."""
        rows = await self.connection.call("XRANGE", self.keys.events(job_id), "-", "+")
        flat = [pairs for _, pairs in cast("list[tuple[str, list[str]]]", rows)]
        return [dict(zip(row[::2], row[1::2], strict=True))["type"] for row in flat]

    async def expire_leases(self) -> None:
        """Let the leases of all jobs that are held look expired, however long they are."""
        group = (self.keys.queue, contract.GROUP)
        rows = await self.connection.call("XPENDING", *group, "-", "+", 1000)
        for entry, consumer, *_ in cast("list[tuple[str, str, int, int]]", rows):
            idle = ("IDLE", 10**9, "JUSTID")
            await self.connection.call("XCLAIM", *group, consumer, 0, entry, *idle)

    async def until(self, job_id: str, status: str) -> None:
        """Wait for a status."""

        await wait_until(
            lambda: self.status_is(job_id, status), f"job {job_id} to be {status}", timeout_s=60
        )

    async def until_all(self, job_ids: Sequence[str], status: str, timeout_s: float = 60) -> None:
        """Wait for a status of all of them."""

        left = list(job_ids)

        async def there() -> bool:
            nonlocal left
            left = [
                job_id
                for part in _parts(left)
                for job_id, now in zip(
                    part, await asyncio.gather(*map(self.status, part)), strict=True
                )
                if now != status
            ]
            return not left

        await wait_until(there, f"{len(job_ids)} jobs to be {status}", timeout_s=timeout_s)

    async def check_ended_once(self, job_id: str, status: str = "done") -> None:
        """R-2: one terminal event, nothing after it, and it agrees with the state."""
        kinds = await self.events(job_id)
        ends = [kind for kind in kinds if kind in TERMINAL]
        assert ends == [status], f"{kinds} {(await self.fields(job_id)).get('error')}"
        assert kinds[-1] == status, kinds
        assert await self.status(job_id) == status

    async def check_all_ended_once(self, job_ids: Sequence[str]) -> None:
        """The same for many."""
        for part in _parts(job_ids):
            await asyncio.gather(*map(self.check_ended_once, part))

    async def check_at_rest(self, queue: str = contract.DEFAULT_QUEUE) -> None:
        """R-7: no job waits, is pending, delayed, suspended or open."""
        stream = self.keys.named_queue(queue)

        async def left() -> tuple[int, ...]:
            sets = (self.keys.delayed, self.keys.suspended, self.keys.open)
            sizes = [cast(int, await self.connection.call("ZCARD", name)) for name in sets]
            waiting = cast(int, await self.connection.call("XLEN", stream))
            pending = await self.connection.xpending(stream, contract.GROUP)
            return (*sizes, waiting, pending.count)

        async def nothing() -> bool:
            return not any(await left())

        await wait_until(nothing, "the queue to be idle")


@contextlib.asynccontextmanager
async def survivor_of(
    sites: Sequence[Site], url: str, queues: Sequence[str]
) -> AsyncGenerator[Worker]:
    """One worker for the queues of many sites."""
    async with Connection.open(url, name="story-survivor") as connection:
        engines = [StreamsEngine(connection, site.settings, queues=queues) for site in sites]
        worker = Worker(app, engines, slots=4)
        running = await started(worker)
        tasks = [task for engine in engines for task in engine.maintenance()]
        maintenance = asyncio.create_task(Maintenance(tasks).run())
        try:
            yield worker
        finally:
            maintenance.cancel()
            await asyncio.gather(maintenance, return_exceptions=True)
            await stopped(worker, running)


def _parts(job_ids: Sequence[str], size: int = 500) -> Iterator[Sequence[str]]:
    """Split, so that not all jobs are read at once."""
    for at in range(0, len(job_ids), size):
        yield job_ids[at : at + size]
