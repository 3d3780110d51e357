"""R-1, R-2, J-31: a worker is killed after each step of a job; the job still ends once.

Each point is identified on the wire: a command that the proxy holds, or one whose reply waits in
the socket of a frozen process. All points run concurrently, each on its own
queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from jobwire.job.messages import JobId
from jobwire.local import LocalValkey
from tests.stories.site import Site
from tests.support import Program, Proxy, clause, wait_until
from tests.support.streams import runs

Point = Callable[[Site, Proxy, Program], Awaitable[JobId]]


async def entry_in_hand(site: Site, proxy: Proxy, victim: Program) -> JobId:
    """The blocking read has fetched the entry, the start has not reached the server."""
    async with site.in_hand(proxy, partial(site.submit, "quick")) as job:
        victim.kill()
        proxy.cut()
    assert await site.events(job) == ["queued"]
    return job


async def started(site: Site, proxy: Proxy, victim: Program) -> JobId:
    """The server has started the job, the worker has not read the reply."""
    async with site.in_hand(proxy, partial(site.submit, "quick")) as job:
        victim.freeze()
    await site.until(job, "running")
    victim.kill()
    assert site.begun(job) == 0
    return job


async def mid_handler(site: Site, proxy: Proxy, victim: Program) -> JobId:
    """The handler is running."""
    job = await site.submit("gate")
    await wait_until(lambda: site.begun(job) == 1)
    victim.kill()
    site.gate.touch()
    return job


async def before_report(site: Site, proxy: Proxy, victim: Program) -> JobId:
    """The handler has reported, the report has not reached the server."""
    begin = partial(site.submit, "gate")
    job = await site.kill_around("before", runs("report"), proxy, victim, begin)
    site.gate.touch()
    return job


async def before_settle(site: Site, proxy: Proxy, victim: Program) -> JobId:
    """The handler has ended, the settle has not reached the server."""
    begin = partial(site.submit, "quick")
    job = await site.kill_around("before", runs("settle"), proxy, victim, begin)
    assert site.begun(job) == 1
    assert await site.status(job) == "running"
    return job


async def settled(site: Site, proxy: Proxy, victim: Program) -> JobId:
    """The server has settled the job, the worker has not read the reply."""
    begin = partial(site.submit, "quick")
    job = await site.kill_around("after", runs("settle"), proxy, victim, begin)
    assert await site.status(job) == "done"
    return job


async def before_retry(site: Site, proxy: Proxy, victim: Program) -> JobId:
    """The attempt has failed, the retry has not reached the server."""
    begin = partial(site.submit, "flaky")
    return await site.kill_around("before", runs("retry"), proxy, victim, begin)


async def retried(site: Site, proxy: Proxy, victim: Program) -> JobId:
    """The server has scheduled the retry, the worker has not read the reply."""
    begin = partial(site.submit, "flaky")
    job = await site.kill_around("after", runs("retry"), proxy, victim, begin)
    assert await site.status(job) == "queued"
    return job


POINTS: dict[Point, tuple[int, int]] = {
    # point → (runs of the handler, attempts counted)
    entry_in_hand: (1, 1),
    started: (1, 1),
    mid_handler: (2, 1),
    before_report: (2, 1),
    before_settle: (2, 1),
    settled: (1, 1),
    before_retry: (3, 2),
    retried: (2, 2),
}


async def story(valkey: LocalValkey, folder: Path, point: Point) -> None:
    name = point.__name__
    async with Site(valkey.url, folder / name, prefix=f"{name}:") as site:
        with Proxy(valkey.port) as proxy:
            victim = await site.ready(proxy)
            job = await point(site, proxy, victim)
        async with site.survivor():
            await site.until(job, "done")
            await site.check_ended_once(job)
            await site.check_at_rest()
        begun, attempts = POINTS[point]
        assert site.begun(job) == begun, f"{name}: {site.effects.read_text()}"
        fields = await site.fields(job)
        assert fields.get("attempt", "1") == str(attempts), name


@clause("R-1", "R-2", "R-4", "R-5", "J-31", "J-34")
async def test_r1_a_worker_killed_after_any_step_loses_no_job_and_ends_none_twice(
    valkey: LocalValkey, tmp_path: Path
) -> None:
    async with asyncio.TaskGroup() as stories:
        for point in POINTS:
            stories.create_task(story(valkey, tmp_path, point), name=point.__name__)
