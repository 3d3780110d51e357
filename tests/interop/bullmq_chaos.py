"""A mixed fleet on one queue under faults: load, faults and checks.

Producers and workers of every kind share a queue while programs are killed and frozen, connections
are cut, the queue is paused and the server is restarted. A seed determines all of it. The checker
reads the queue as any client does: every job must end as it does without faults.

The Python package takes a connection that is cut while it completes a job for a failure of the job
and counts an attempt. The checker counts these separately, by their stack; none may be of our
workers. Jobs have spare attempts for them.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import redis

from jobwire.local import LocalValkey
from jobwire.systems.queues.contract import BullState
from jobwire.systems.queues.metrics import measure
from jobwire.systems.queues.options import BullJobOptions
from jobwire.systems.queues.queue import NewBullJob, QueueProducer
from jobwire.valkey import Connection, ValkeyError
from tests.interop.bullmq_lab import PeerFailed
from tests.interop.bullmq_teams import OURS, TEAMS, Fleet
from tests.support import Program
from tests.support.program import ROOT
from tests.support.servers import plain_from_url

QUEUE: Final = "chaos"
KINDS: Final = ("kill_ours", "kill_team", "cut", "pause_or_resume", "freeze_ours", "restart")
_EVENTS: Final = 10_000_000
"""The events stream is never trimmed: the checker reads all of it."""
_LOCK_S: Final = 1
_STALLED_S: Final = 1
_MAX_STALLED: Final = 10_000
_OPTIONS: Final = {
    "lockDuration": _LOCK_S * 1000,
    "stalledInterval": _STALLED_S * 1000,
    "maxStalledCount": _MAX_STALLED,
    "concurrency": 20,
}
_WORKERS: Final = 2
_CHUNK: Final = 250
_RETRY_S: Final = 0.2
_TERMINAL: Final = ("completed", "failed")
_FIELDS: Final = ("atm", "returnvalue", "failedReason", "stc", "stacktrace")
_IN_PACKAGE: Final = "/redis/"
"""In the stack of an error of the Python package's own client."""


class Spec(NamedTuple):
    """A job as its producer adds it; the id makes a repeated add harmless."""

    id: str
    name: str
    data: dict[str, Any]
    opts: dict[str, Any]

    @property
    def end(self) -> tuple[str, int]:
        """Expected final state, and the number of failures before it."""
        return ("failed", 2) if self.name == "broken" else ("completed", self.name == "flaky")


@dataclass
class Outcome:
    seed: int
    jobs: int
    faults: list[str] = field(default_factory=list[str])
    stalled: int = 0
    cut_attempts: int = 0
    """Attempts that the Python package counted because its connection was cut."""
    by: Counter[str] = field(default_factory=Counter[str])
    violations: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}: {self.jobs} jobs, {len(self.faults)} faults, {self.stalled} stalls",
            f"attempts of the Python package failed by a cut connection: {self.cut_attempts}",
            f"faults: {dict(Counter(self.faults))}",
            f"ended by: {dict(self.by)}",
            *self.violations[:20],
        ]
        return "\n".join(lines)


def specs(producer: str, count: int, rng: random.Random) -> list[Spec]:
    """The jobs of one producer. Some take long enough to be hit by a fault; among few jobs a larger
    share."""
    slow = 0.05 if count > _CHUNK else 0.5
    made: list[Spec] = []
    for number in range(count):
        name = rng.choices(("task", "flaky", "broken"), (90, 7, 3))[0]
        opts: dict[str, Any] = {"jobId": f"{producer}-{number}"}
        opts["attempts"] = 2 if name == "broken" else 20
        if rng.random() < 0.1:
            opts["priority"] = rng.randint(1, 5)
        if rng.random() < 0.1:
            opts["delay"] = rng.randint(1, 1_500)
        data = {"n": number, "ms": 200 if rng.random() < slow else 0}
        made.append(Spec(opts["jobId"], name, data, opts))
    return made


class Chaos:
    def __init__(
        self,
        folder: Path,
        seed: int,
        jobs: int,
        *,
        teams: Sequence[str] = TEAMS,
        preloaded: bool = False,
    ) -> None:
        self._folder = folder
        self._rng = random.Random(seed)
        self._preloaded = preloaded
        self._teams = tuple(teams)
        producers = (*teams, OURS)
        share = max(1, jobs // len(producers))
        self._specs = {producer: specs(producer, share, self._rng) for producer in producers}
        self.outcome = Outcome(seed, share * len(producers))
        self._server = LocalValkey(folder / "valkey", admin=True)
        self._workers: list[Program] = []
        self._is_paused = False

    async def run(
        self, faults: int, spread_s: float, timeout_s: float, kinds: Sequence[str] = KINDS
    ) -> Outcome:
        """One run: `faults` of these kinds while jobs are produced over about `spread_s`."""
        self._kinds = list(kinds)
        async with AsyncExitStack() as stack:
            stack.enter_context(self._server)
            self._fleet = await asyncio.to_thread(Fleet, self._server.admin_url, *self._teams)
            stack.callback(self._fleet.close)
            stack.callback(lambda: [worker.close() for worker in self._workers])
            self._connection = await Connection.open(self._server.url)
            stack.push_async_callback(self._connection.close)
            self._queue = QueueProducer(self._connection, QUEUE)
            self._plain().hset(self._queue.keys.meta, "opts.maxLenEvents", _EVENTS)
            if self._preloaded:
                await self._produce_all(0)
                await self._start()
                await self._strike(faults, spread_s)
            else:
                await self._start()
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._produce_all(spread_s))
                    group.create_task(self._strike(faults, spread_s))
            await self._until_ended(timeout_s)
            self._judge()
        return self.outcome

    def _plain(self) -> Any:
        return plain_from_url(self._server.admin_url)

    # Producing and working

    async def _produce_all(self, spread_s: float) -> None:
        async with asyncio.TaskGroup() as group:
            for producer, made in self._specs.items():
                group.create_task(self._produce(producer, made, spread_s))

    async def _produce(self, producer: str, made: Sequence[Spec], spread_s: float) -> None:
        chunks = [made[at : at + _CHUNK] for at in range(0, len(made), _CHUNK)]
        if spread_s and len(chunks) == 1:
            chunks = [made[at::8] for at in range(8)]
        for chunk in chunks:
            await self._repeat(lambda chunk=chunk: self._add(producer, chunk))
            await asyncio.sleep(spread_s / len(chunks))

    async def _add(self, producer: str, chunk: Sequence[Spec]) -> None:
        if producer == OURS:
            await self._queue.submit_many([_new_job(spec) for spec in chunk])
            return
        jobs = [{"name": each.name, "data": each.data, "opts": each.opts} for each in chunk]
        await self._fleet.ask(producer, "add", queue=QUEUE, jobs=jobs, events=_EVENTS)

    async def _start(self) -> None:
        for team in self._teams:
            await self._work(team)
        self._workers.extend(self._new_worker() for _ in range(_WORKERS))

    async def _work(self, team: str) -> None:
        await self._repeat(lambda: self._fleet.ask(team, "work", queue=QUEUE, options=_OPTIONS))

    def _new_worker(self) -> Program:
        env = {
            "CHAOS_QUEUE": QUEUE,
            "JOBWIRE_VALKEY_URL": self._server.url,
            "JOBWIRE_SYSTEMS": "queues",
            "JOBWIRE_QUEUES_LOCK": f"{_LOCK_S}s",
            "JOBWIRE_QUEUES_STALLED_INTERVAL": f"{_STALLED_S}s",
            "JOBWIRE_QUEUES_MAX_STALLED": str(_MAX_STALLED),
            "JOBWIRE_WORKER_SLOTS": "20",
        }
        command = [sys.executable, "-m", "jobwire", "worker", "tests.interop.chaos_app:app"]
        return Program(command=command, env=env, cwd=ROOT)

    @staticmethod
    async def _repeat(call: Callable[[], Awaitable[object]]) -> None:
        """Repeat until it succeeds: its program may be killed, and the server may be
        unavailable."""
        while True:
            try:
                await call()
            except (PeerFailed, AssertionError, OSError, ValueError, ValkeyError):
                await asyncio.sleep(_RETRY_S)
            else:
                return

    # Faults

    async def _strike(self, faults: int, spread_s: float) -> None:
        for name in itertools.islice(self._plan(), faults):
            await asyncio.sleep(spread_s / max(1, faults))
            await getattr(self, f"_{name}")()
            self.outcome.faults.append(name)
        if self._is_paused:
            await self._pause_or_resume()

    def _plan(self) -> Iterator[str]:
        """Every kind in turn, each turn in another order."""
        while True:
            self._rng.shuffle(self._kinds)
            yield from self._kinds

    async def _kill_ours(self) -> None:
        at = self._rng.randrange(_WORKERS)
        await asyncio.to_thread(self._workers[at].kill)
        self._workers[at].close()
        self._workers[at] = self._new_worker()

    async def _kill_team(self) -> None:
        team = self._rng.choice(self._teams)
        await self._fleet.kill(team)
        await self._work(team)

    async def _freeze_ours(self) -> None:
        """Freeze a worker for longer than the lock: its later settles must be refused."""
        worker = self._rng.choice(self._workers)
        worker.freeze()
        await asyncio.sleep(_LOCK_S + 2 * _STALLED_S)
        worker.thaw()

    async def _cut(self) -> None:
        with suppress(redis.ConnectionError):
            self._plain().execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    async def _pause_or_resume(self) -> None:
        verb = self._queue.resume if self._is_paused else self._queue.pause
        await self._repeat(verb)
        self._is_paused = not self._is_paused

    async def _restart(self) -> None:
        await asyncio.to_thread(self._server.stop)
        await asyncio.to_thread(self._server.start)

    # The end

    async def _until_ended(self, timeout_s: float) -> None:
        """Wait until no job is unfinished; after the timeout the checker reports those that are."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while await self._unfinished():
                    await asyncio.sleep(0.1)

    async def _unfinished(self) -> int:
        try:
            figures = (await measure(self._connection, "bull", [QUEUE]))[QUEUE]
        except ValkeyError:
            return 1
        return self.outcome.jobs - sum(figures.jobs[BullState(end)] for end in _TERMINAL)

    def _judge(self) -> None:
        plain, base = self._plain(), self._queue.keys.base
        violate = self.outcome.violations.append
        every = {spec.id: spec for made in self._specs.values() for spec in made}
        ends = {job_id: end for end in _TERMINAL for job_id in plain.zrange(f"{base}{end}", 0, -1)}
        for name in ("wait", "active", "paused"):
            if left := plain.lrange(f"{base}{name}", 0, -1):
                violate(f"{len(left)} jobs are left in {name}, such as {left[0]}")
        for name in ("delayed", "prioritized", "waiting-children"):
            if left := plain.zrange(f"{base}{name}", 0, -1):
                violate(f"{len(left)} jobs are left in {name}, such as {left[0]}")
        if locks := list(plain.scan_iter(f"{base}*:lock", count=10_000)):
            violate(f"{len(locks)} locks are left, such as {locks[0]}")
        if foreign := ends.keys() - every.keys():
            violate(f"jobs that no producer added: {sorted(foreign)[:5]}")
        for spec, row in _rows(plain, base, list(every.values())):
            self._judge_job(spec, ends.get(spec.id), row)
        self._judge_events(plain, every)

    def _judge_job(self, spec: Spec, end: str | None, row: Sequence[str | None]) -> None:
        made, value, reason, stalled, stacks = row
        violate = self.outcome.violations.append
        self.outcome.stalled += int(stalled or 0)
        traces: list[str] = msgspec.json.decode(stacks or "[]")
        cut = [each for each in traces if _IN_PACKAGE in each]
        self.outcome.cut_attempts += len(cut)
        failures = len(traces) - len(cut)
        if (end, failures) != spec.end or int(made or 0) != len(traces) + (end == "completed"):
            violate(f"{spec.id} ({spec.name}): {end}, {made} attempts, {reason}: {traces}")
        elif end == "completed":
            result = msgspec.json.decode(value or "null")
            self.outcome.by[result["by"]] += 1
            if result["n"] != spec.data["n"]:
                violate(f"{spec.id} has the result of {result['n']}")
        elif not (reason or "").endswith(spec.name):
            violate(f"{spec.id} failed with {reason}")

    def _judge_events(self, plain: Any, every: dict[str, Spec]) -> None:
        """One terminal event for each job, and no start after it."""
        ended: dict[str, str] = {}
        for fields in _entries(plain, self._queue.keys.events):
            name, job_id = fields.get("event", ""), fields.get("jobId", "")
            if job_id in ended and name in ("active", *_TERMINAL):
                self.outcome.violations.append(f"{job_id}: {name} after {ended[job_id]}")
            if name in _TERMINAL:
                ended[job_id] = name
        for job_id, spec in every.items():
            if ended.get(job_id) != spec.end[0]:
                self.outcome.violations.append(f"{job_id} has the event {ended.get(job_id)}")


def _new_job(spec: Spec) -> NewBullJob:
    options = BullJobOptions(
        job_id=spec.id,
        attempts=spec.opts.get("attempts", 0),
        priority=spec.opts.get("priority", 0),
        delay_ms=spec.opts.get("delay", 0),
    )
    return NewBullJob(spec.name, msgspec.json.encode(spec.data).decode(), options)


def _rows(
    plain: Any, base: str, found: Sequence[Spec]
) -> Iterator[tuple[Spec, Sequence[str | None]]]:
    for at in range(0, len(found), 1_000):
        batch = found[at : at + 1_000]
        pipeline = plain.pipeline(transaction=False)
        for spec in batch:
            pipeline.hmget(f"{base}{spec.id}", *_FIELDS)
        yield from zip(batch, pipeline.execute(), strict=True)


def _entries(plain: Any, key: str) -> Iterator[dict[str, str]]:
    last = "-"
    while rows := plain.xrange(key, last, "+", count=5_000):
        for _, fields in rows:
            yield fields
        last = f"({rows[-1][0]}"
