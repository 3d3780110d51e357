"""D-21: the crash table of a durable job, in each kind of handler.

The job has three steps, one of which may run once, a sleep, a signal and two children. Its worker
is killed before and after each call that it makes for the job: nothing is paid twice but what was
interrupted, the job ends once, and nothing of it stays after its lifetime. An undisturbed run makes
exactly the calls of the table.

Each point has a worker to kill and its own prefix; afterwards one worker serves all of them.
`make chaos` kills at random (CHAOS_KILLS); CHAOS_SEED repeats it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import json
import os
import random
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, cast, get_args

import pytest

from jobwire.job.messages import JobId
from jobwire.local import LocalValkey
from jobwire.systems.jobs import contract
from jobwire.systems.jobs.scripts import SCRIPTS
from tests.stories.handlers import WAITS, app
from tests.stories.site import TERMINAL, Site, When, survivor_of
from tests.support import Plain, Program, Proxy, clause, wait_until
from tests.support.raw import Raw
from tests.support.resp import Command
from tests.support.streams import runs

KINDS = ("async", "thread", "process")
ALL_S = 180.0
"""One worker ends the jobs of all points: the first that is looked at may be the last."""
QUEUES = (WAITS, contract.DEFAULT_QUEUE)
PAID = ("one", "two", "left", "right", "three")
RESULT = ["one", "two", "yes", "left", "right", "three"]
INTERRUPTED = ["one", "interrupted", *RESULT[2:]]

TAKES = {"take 1": "", "take 2": "sleep", "take 3": "signal", "take 4": "children"}
"""What the job has waited for. Whether a take starts it is only in the answer."""
CALLS = (
    *("record s:one", "extend 1", "suspend sleep"),
    *("read 1", "record o:two", "record s:two", "extend 2", "suspend signal"),
    *("read 2", "submit left@part", "submit right@part", "extend 3", "suspend children"),
    *("settle left", "settle right"),
    *("read 3", "record s:three", "extend 4", "settle done"),
)
WITH_CHILDREN = {*CALLS[CALLS.index("submit left@part") :], "take 4"}
"""From here on the worker may have a child in hand, which has no steps."""

_SCRIPT_NAMES = {script.sha: name for name, script in SCRIPTS.items()}


class Point(NamedTuple):
    kind: str
    call: str
    when: When

    @property
    def name(self) -> str:
        return "-".join(self).translate(str.maketrans(" :@", "---"))


def table(kind: str) -> list[Point]:
    return [Point(kind, call, when) for call in (*TAKES, *CALLS) for when in get_args(When)]


SAGA: Final = (
    *("record s:book-flight", "record s:book-hotel", "record e:book-car"),
    *("record s:cancel-hotel", "record s:cancel-flight", "suspend sleep", "read 1"),
    *("record s:mail", "settle done"),
)
"""The calls of a job that books, finds no car, cancels and sleeps, without `extend` and `take`."""


class CallNames:
    """Names the calls of one worker; repeated ones get a number."""

    def __init__(self) -> None:
        self._counts = Counter[str]()

    def of(self, command: Command) -> set[str]:
        words = command.words
        if command.name == "HGETALL" and words[1].endswith(contract.STEPS_SUFFIX):
            return {self._numbered("read")}
        match _SCRIPT_NAMES.get(words[1]) if command.name == "EVALSHA" else None:
            case "record":
                # Behind the arguments of the call: job, entry, token, field and value of each.
                fields = [words[at + 3] for at in range(7, len(words), 5) if words[at + 1]]
                return {f"record {each}" if each else self._numbered("extend") for each in fields}
            case "submit_child":
                return {f"submit {word}" for word in words if word.endswith("@part")}
            case "suspend":
                kinds = {"sleep", "signal", "children"}
                return {f"suspend {kind}" for kind in kinds.intersection(words)}
            case "settle":
                ends = {'"left"', '"right"', "done"}.intersection(words)
                return {f"settle {json.loads(end) if end != 'done' else end}" for end in ends}
            case _:
                return set()

    def _numbered(self, name: str) -> str:
        self._counts[name] += 1
        return f"{name} {self._counts[name]}"


class IsCall:
    """A condition for the proxy."""

    def __init__(self, name: str) -> None:
        self._name, self._names = name, CallNames()

    def __call__(self, command: Command) -> bool:
        return self._name in self._names.of(command)

    def __repr__(self) -> str:
        return self._name


END_SLEEP = """
-- The job may wait for something else by now.
if string.find(redis.call('HGET', KEYS[1], 'waits_for') or '', '"for":"sleep"', 1, true) then
  redis.call('HSET', KEYS[2], 't:sleep', 1)
  redis.call('ZADD', KEYS[3], 'XX', 1, ARGV[1])
end
"""


class World:
    """Time passes for jobs that sleep, and somebody answers those that wait for a signal."""

    def __init__(self) -> None:
        self.jobs: dict[JobId, Site] = {}
        self.stops_at: dict[Site, str] = {}
        """What is not helped with."""

    async def submit(self, site: Site, kind: str) -> JobId:
        paid = str(site.folder / "paid")
        job = await site.submit(f"waits-{kind}", queue=WAITS, paid=paid)
        self.jobs[job] = site
        return job

    @contextlib.asynccontextmanager
    async def going_on(self) -> AsyncGenerator[None]:
        async def go_on() -> None:
            while True:
                await asyncio.gather(*(self._help(*each) for each in list(self.jobs.items())))
                await asyncio.sleep(0.05)

        going = asyncio.create_task(go_on())
        try:
            yield
        finally:
            going.cancel()
            (ended,) = await asyncio.gather(going, return_exceptions=True)
            assert isinstance(ended, asyncio.CancelledError), ended

    async def _help(self, job: JobId, site: Site) -> None:
        match await waits_for(site, job):
            case wait if wait == self.stops_at.get(site):
                return
            case "signal":
                await site.queue.signal(job, "approval", '"yes"')
            case "sleep":
                keys = (site.keys.job(job), site.keys.steps(job), site.keys.suspended)
                await site.connection.call("EVAL", END_SLEEP, 3, *keys, job)
            case _:
                pass


async def waits_for(site: Site, job: JobId) -> str:
    found = await site.connection.call("HGET", site.keys.job(job), "waits_for")
    return json.loads(cast(str, found))["for"] if found else ""


async def is_waiting(site: Site, job: JobId, wait: str) -> bool:
    """Whether it is suspended for this; and if for its children, whether those run."""
    if await waits_for(site, job) != wait:
        return False
    states = [await site.status(child) for child in await children(site, job)]
    return set(states) <= {"running"}


async def children(site: Site, job: JobId) -> list[str]:
    record = cast("dict[str, str]", await site.connection.call("HGETALL", site.keys.steps(job)))
    return [json.loads(value)[0] for field, value in record.items() if field.startswith("k:")]


async def has_ended(site: Site, job: str) -> bool:
    return await site.status(job) in TERMINAL


# ── the workers that are killed ──────────────────────────────────────────────────────────────────


async def kill_at(point: Point, site: Site, world: World, proxy: Proxy) -> JobId:
    victim = await site.ready(proxy)
    if point.call in TAKES:
        return await kill_at_take(point, site, world, proxy, victim)
    site.gate.touch()
    begin = partial(world.submit, site, point.kind)
    return await site.kill_around(point.when, IsCall(point.call), proxy, victim, begin)


async def kill_at_take(
    point: Point, site: Site, world: World, proxy: Proxy, victim: Program
) -> JobId:
    """The entry is in the worker's hands, and the job is started, or not."""
    wait = TAKES[point.call]
    jobs: list[JobId] = []
    if wait:
        world.stops_at[site] = wait
        jobs.append(await world.submit(site, point.kind))
        await wait_until(partial(is_waiting, site, jobs[0], wait), f"{point.name}: the wait")

    async def begin() -> JobId:
        """Let the job be queued for the run of this point."""
        job = jobs[0] if wait else await world.submit(site, point.kind)
        world.stops_at.pop(site, None)
        site.gate.touch()
        key = site.keys.job(job)
        await wait_until(lambda: site.connection.call("HGET", key, "entry_id"), "an entry")
        return job

    async with site.in_hand(proxy, begin, WAITS) as job:
        if point.when == "before":
            victim.kill()
            proxy.cut()
        else:
            victim.freeze()
    if point.when == "after":
        await site.until(job, "running")
        victim.kill()
    return job


# ── what must be true afterwards ─────────────────────────────────────────────────────────────────


async def check(site: Site, job: JobId, point: Point) -> None:
    """The job has ended once, with all results, and paid for each once more than interrupted."""
    name, at = point.name, (point.when, point.call)
    await site.check_ended_once(job)
    for child in (found := await children(site, job)):
        await site.check_ended_once(child)
    assert len(found) == 2, name
    paid = Counter(line.split()[1] for line in (site.folder / "paid").read_text().splitlines())
    is_interrupted = at in {("after", "record o:two"), ("before", "record s:two")}
    result = json.loads((await site.fields(job))["result"])
    assert result == (INTERRUPTED if is_interrupted else RESULT), (
        f"{name}: {site.effects.read_text()}"
    )
    assert [paid[step] for step in ("one", "two", "three")] == [
        1 + (at == ("before", "record s:one")),
        int(at != ("after", "record o:two")),
        1 + (at == ("before", "record s:three")),
    ], f"{name}: {site.effects.read_text()}"
    for part in ("left", "right"):
        assert 1 <= paid[part] <= 1 + (point.call in WITH_CHILDREN), f"{name}: {part} {paid}"


def check_nothing_left(site: Site, raw: Raw) -> None:
    """All keys expire as much sooner as a job lives: then none is there that has a lifetime."""
    prefix = site.settings.key_prefix
    for key in raw.find(f"{prefix}*"):
        at_ms = cast(int, raw.call("PEXPIRETIME", key))
        if at_ms > 0:
            raw.call("PEXPIREAT", key, at_ms - site.settings.job_ttl_s * 1000)
    permanent = contract.permanent(prefix)
    left = [
        key
        for key in raw.find(f"{prefix}*")
        if not any(fnmatch.fnmatch(key, pattern) for pattern in permanent)
    ]
    assert left == [], f"{prefix} left {left}"


@pytest.mark.timeout(ALL_S + 240)
@pytest.mark.parametrize("kind", KINDS)
@clause("D-21", "D-1", "D-5", "D-8", "D-14", "D-15", "R-1", "R-2", "R-7")
async def test_d21_a_worker_killed_around_any_call_loses_and_repeats_nothing(
    kind: str, valkey: LocalValkey, plain: Plain, tmp_path: Path
) -> None:
    await kill_all(table(kind), valkey, plain, tmp_path, check)


async def kill_all(
    points: Sequence[Point],
    valkey: LocalValkey,
    plain: Plain,
    tmp_path: Path,
    check: Callable[[Site, JobId, Point], Awaitable[None]],
) -> None:
    gate, world = asyncio.Semaphore(8), World()

    async def one(point: Point, site: Site) -> JobId:
        async with gate:
            with Proxy(valkey.port) as proxy:
                return await kill_at(point, site, world, proxy)

    async with contextlib.AsyncExitStack() as stack:
        sites = [
            await stack.enter_async_context(
                Site(valkey.url, tmp_path / point.name, prefix=f"{point.name}:", lease_s=6)
            )
            for point in points
        ]
        async with world.going_on():
            async with asyncio.TaskGroup() as killing:
                tasks = [
                    killing.create_task(one(*each), name=each[0].name)
                    for each in zip(points, sites, strict=True)
                ]
            jobs = [task.result() for task in tasks]
            async with survivor_of(sites, valkey.url, QUEUES):
                for point, site, job in zip(points, sites, jobs, strict=True):
                    await wait_until(partial(has_ended, site, job), point.name, timeout_s=ALL_S)
                    await check(site, job, point)
                    await site.check_at_rest(WAITS)
        for site in sites:
            check_nothing_left(site, Raw(plain))


async def check_saga(site: Site, job: JobId, point: Point) -> None:
    """What is interrupted is paid for twice; nothing is booked that was canceled."""
    await site.check_ended_once(job)
    result = json.loads((await site.fields(job))["result"])
    assert result == ["no car is left", "mail"], f"{point.name}: {site.effects.read_text()}"
    paid = Counter(line.split()[1] for line in (site.folder / "paid").read_text().splitlines())
    steps = [call[9:] for call in SAGA if call.startswith("record ")]
    assert paid == {
        step: 1 + (point[1:] in {(f"record s:{step}", "before"), (f"record e:{step}", "before")})
        for step in steps
    }, point.name


@pytest.mark.timeout(ALL_S + 240)
@clause("D-21", "D-4a", "R-1")
async def test_d21_a_saga_killed_around_any_call_cancels_what_it_has_booked(
    valkey: LocalValkey, plain: Plain, tmp_path: Path
) -> None:
    points = [Point("saga", call, when) for call in SAGA for when in get_args(When)]
    await kill_all(points, valkey, plain, tmp_path, check_saga)


@pytest.mark.parametrize("kind", KINDS)
@clause("D-21")
async def test_d21_the_table_has_every_call_of_an_undisturbed_run(
    kind: str, valkey: LocalValkey, tmp_path: Path
) -> None:
    async with Site(valkey.url, tmp_path, prefix=f"{kind}:") as site:
        world, names = World(), CallNames()
        site.gate.touch()
        with Proxy(valkey.port) as proxy:
            victim = await site.ready(proxy)
            async with world.going_on():
                job = await world.submit(site, kind)
                await site.until(job, "done")
            victim.terminate()
            assert victim.wait() == 0
            found = [name for command in proxy.commands for name in names.of(command)]
        assert sorted(found) == sorted(CALLS)
        assert site.begun(job) == len(TAKES)


@pytest.mark.timeout(1800)
@pytest.mark.skipif(not os.environ.get("CHAOS_KILLS"), reason="expected: part of `make chaos`")
async def test_d21_workers_killed_at_random(
    valkey: LocalValkey, plain: Plain, tmp_path: Path
) -> None:
    rounds, seed = int(os.environ["CHAOS_KILLS"]), os.environ.get("CHAOS_SEED", "1")
    chance, world = random.Random(seed), World()
    folder = tmp_path / "random"
    # However many workers a job loses: it is not to blame.
    async with Site(valkey.url, folder, prefix="random:", lease_s=1, max_deliveries=10**6) as site:
        site.gate.touch()
        paid, interrupted, jobs = site.folder / "paid", Counter[str](), list[JobId]()
        unfinished: list[JobId] = []

        def lines() -> list[str]:
            return paid.read_text().splitlines() if paid.exists() else []

        async with world.going_on():
            for _ in range(rounds):
                victim = await site.ready()
                new = [await world.submit(site, kind) for kind in KINDS]
                jobs += new
                # Jobs of earlier rounds wait for their leases: only new ones surely pay.
                target = len(lines()) + chance.randint(1, 12)
                await wait_until(lambda target=target: len(lines()) >= target, "some steps")
                unfinished = [job for job in (*unfinished, *new) if not await has_ended(site, job)]
                victim.kill()
                interrupted.update(unfinished)
            async with site.survivor(queues=QUEUES):
                for job in jobs:
                    await wait_until(partial(has_ended, site, job), "the end", timeout_s=120)
                    await site.check_ended_once(job)
                await site.check_at_rest(WAITS)
        found = Counter(lines())
        for job in jobs:
            assert found[f"{job} two"] <= 1, f"seed {seed}: {job} ran its step twice"
            for step in PAID:
                assert found[f"{job} {step}"] <= 1 + interrupted[job], f"seed {seed}: {job} {step}"
        check_nothing_left(site, Raw(plain))


# ── failures ─────────────────────────────────────────────────────────────────────────────────────


async def failure_story(valkey: LocalValkey, folder: Path, when: When) -> None:
    name = f"fails-{when}"
    async with Site(valkey.url, folder / name, prefix=f"{name}:") as site:
        told = site.folder / "told"
        begin = partial(site.submit, "fails", told=str(told))
        with Proxy(valkey.port) as proxy:
            victim = await site.ready(proxy)
            job = await site.kill_around(when, runs("settle"), proxy, victim, begin)
        # The victim has its tasks in the queue of its App.
        async with site.survivor(queues=(contract.DEFAULT_QUEUE, app.name)):
            await site.until(job, "error")
            await site.check_ended_once(job, "error")
            following = (await site.fields(job))["on_failure"]
            await site.until(following, "done")
            await site.check_ended_once(following)
            await site.check_at_rest()
        assert site.begun(job) == (2 if when == "before" else 1)
        assert told.read_text() == f"{job} no_audio\n", name


@clause("D-23", "R-1")
async def test_d23_a_worker_killed_around_the_end_of_a_failed_job_tells_it_once(
    valkey: LocalValkey, tmp_path: Path
) -> None:
    async with asyncio.TaskGroup() as stories:
        for when in get_args(When):
            stories.create_task(failure_story(valkey, tmp_path, when), name=when)
