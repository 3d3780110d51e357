"""D-21: a worker is killed before and after each call that records a step; what was recorded is not
paid again, and what may run once never runs twice.

All points run concurrently, each on its own queue. `make chaos` kills at random (CHAOS_STEP_KILLS).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from jobwire.local import LocalValkey
from tests.stories.site import TERMINAL, Site
from tests.support import Proxy, clause, wait_until
from tests.support.resp import Command
from tests.support.streams import runs

ALL = ["one", "two", "three"]
INTERRUPTED = ["one", "interrupted", "three"]


class Point(NamedTuple):
    kind: str
    when: str
    """`before` the call reaches the server, or `after` it, with the reply unread."""
    field: str
    paid: tuple[int, int, int]
    result: list[str] = ALL


POINTS = [
    Point("async", "before", "s:one", (2, 1, 1)),
    Point("async", "after", "s:one", (1, 1, 1)),
    Point("async", "before", "o:two", (1, 1, 1)),
    Point("async", "after", "o:two", (1, 0, 1), INTERRUPTED),
    Point("async", "before", "s:two", (1, 1, 1), INTERRUPTED),
    Point("async", "after", "s:two", (1, 1, 1)),
    Point("async", "before", "s:three", (1, 1, 2)),
    Point("async", "after", "s:three", (1, 1, 1)),
    Point("thread", "after", "s:one", (1, 1, 1)),
    Point("thread", "before", "s:two", (1, 1, 1), INTERRUPTED),
    Point("process", "after", "s:one", (1, 1, 1)),
    Point("process", "before", "s:two", (1, 1, 1), INTERRUPTED),
]


def records(field: str) -> Callable[[Command], bool]:
    """A condition for the proxy: this field is recorded."""
    is_record = runs("record")
    return lambda command: is_record(command) and field in command.words


async def story(valkey: LocalValkey, folder: Path, point: Point) -> None:
    name = "-".join(point[:3]).replace(":", "-")
    async with Site(valkey.url, folder / name, prefix=f"{name}:") as site:
        paid = site.folder / "paid"
        with Proxy(valkey.port) as proxy:
            victim = await site.ready(proxy)
            with proxy.hold(records(point.field)) as hold:
                job = await site.submit(f"steps-{point.kind}", paid=str(paid))
                await hold.until_reached()
                if point.when == "before":
                    victim.kill()
                    proxy.cut()
                else:
                    victim.freeze()
            if point.when == "after":
                key = (site.keys.steps(job), point.field)
                await wait_until(lambda: site.connection.call("HEXISTS", *key), f"{name}: a record")
                victim.kill()
        async with site.survivor():
            await site.until(job, "done")
            await site.check_ended_once(job)
            await site.check_at_rest()
        found = Counter(line.split()[1] for line in paid.read_text().splitlines())
        assert tuple(found[step] for step in ALL) == point.paid, name
        assert json.loads((await site.fields(job))["result"]) == point.result, name


async def has_ended(site: Site, job: str) -> bool:
    return await site.status(job) in TERMINAL


@clause("D-21", "D-1", "D-5", "R-1", "R-2")
async def test_d21_a_worker_killed_around_any_record_pays_nothing_twice(
    valkey: LocalValkey, tmp_path: Path
) -> None:
    async with asyncio.TaskGroup() as stories:
        for point in POINTS:
            stories.create_task(story(valkey, tmp_path, point), name=str(point))


@pytest.mark.timeout(1800)
@pytest.mark.skipif(not os.environ.get("CHAOS_STEP_KILLS"), reason="expected: part of `make chaos`")
async def test_d21_workers_killed_at_random(valkey: LocalValkey, tmp_path: Path) -> None:
    rounds, seed = int(os.environ["CHAOS_STEP_KILLS"]), os.environ.get("CHAOS_SEED", "1")
    chance = random.Random(seed)
    async with Site(valkey.url, tmp_path / "random", prefix="random:", lease_s=1) as site:
        paid, kills, jobs = site.folder / "paid", Counter[str](), list[str]()

        def lines() -> list[str]:
            return paid.read_text().splitlines() if paid.exists() else []

        for _ in range(rounds):
            victim = await site.ready()
            kinds = ("async", "thread", "process")
            new = [await site.submit(f"steps-{kind}", paid=str(paid)) for kind in kinds]
            jobs += new
            # Jobs of earlier rounds wait for their leases: only the new ones are certain to pay.
            target = len(lines()) + chance.randint(1, 9)
            await wait_until(lambda target=target: len(lines()) >= target, "some steps")
            victim.kill()
            kills.update(jobs)
        async with site.survivor():
            for job in jobs:
                await wait_until(partial(has_ended, site, job), "the job to end", timeout_s=60)
                await site.check_ended_once(job, await site.status(job))
        found = Counter(lines())
        for job in jobs:
            assert found[f"{job} two"] <= 1, f"seed {seed}: {job} ran its step twice"
            for step in ("one", "three"):
                assert found[f"{job} {step}"] <= 1 + kills[job], f"seed {seed}: {job} {step}"
