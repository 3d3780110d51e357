"""J-40: signals to a worker's process."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from jobwire.local import LocalValkey
from tests.stories.site import Site
from tests.support import Proxy, clause, wait_until
from tests.support.streams import runs


@clause("J-40")
async def test_j40_sigterm_lets_running_jobs_finish_and_takes_no_more(
    valkey: LocalValkey, tmp_path: Path
) -> None:
    async with Site(valkey.url, tmp_path) as site:
        victim = await site.ready()
        job = await site.submit("gate")
        await wait_until(lambda: site.begun(job) == 1)
        victim.terminate()
        victim.wait_for_line("stopping jobs=1")
        later = await site.submit("quick")
        site.gate.touch()
        assert victim.wait() == 0
        await site.check_ended_once(job)
        assert site.begun(later) == 0
        assert await site.status(later) == "queued"
        async with site.survivor():
            await site.until(later, "done")
        assert (await site.fields(later))["deliveries"] == "1"


@clause("J-40", "R-5")
async def test_j40_unfinished_jobs_go_to_other_workers_at_once(
    valkey: LocalValkey, tmp_path: Path
) -> None:
    """The lease is longer than the test, so no other worker can have waited for its end."""
    async with Site(valkey.url, tmp_path, lease_s=3600) as site:
        victim = await site.ready(JOBWIRE_WORKER_DRAIN="200ms")
        jobs = [await site.submit(task) for task in ("gate", "thread", "gate")]
        await wait_until(lambda: all(site.begun(job) == 1 for job in jobs))
        victim.terminate()
        victim.wait_for_line("stopping jobs=3; jobs are released")
        await site.until_all(jobs, "queued")
        async with site.survivor():
            site.gate.touch()
            await site.until_all(jobs, "done")
        for job in jobs:
            await site.check_ended_once(job)
            fields = await site.fields(job)
            assert fields["deliveries"] == "1", "the released delivery is not counted"
            assert fields.get("attempt", "1") == "1"
        assert victim.wait() == 0
        await site.check_at_rest()


@clause("J-40")
async def test_j40_a_second_signal_releases_at_once(valkey: LocalValkey, tmp_path: Path) -> None:
    async with Site(valkey.url, tmp_path, lease_s=3600) as site:
        victim = await site.ready(JOBWIRE_WORKER_DRAIN="1h")
        job = await site.submit("gate")
        await wait_until(lambda: site.begun(job) == 1)
        victim.interrupt()
        victim.wait_for_line("stopping jobs=1")
        victim.interrupt()
        await site.until(job, "queued")
        assert victim.wait() == 0


@clause("J-40")
async def test_j40_jobs_of_a_take_in_flight_are_released(
    valkey: LocalValkey, tmp_path: Path
) -> None:
    """The signal arrives when two jobs are started and a further take is in flight."""
    async with Site(valkey.url, tmp_path, lease_s=3600) as site:
        with Proxy(valkey.port) as proxy:
            victim = await site.ready(proxy)
            await proxy.until_seen(runs("take"))
            with proxy.hold(runs("take")) as hold:
                jobs = await asyncio.gather(*(site.submit("quick") for _ in range(3)))
                await hold.until_reached()
                victim.terminate()
                victim.wait_for_line("stopping jobs=")
            assert victim.wait() == 0
        assert [await site.status(job) for job in jobs] == ["queued"] * 3
        assert [site.begun(job) for job in jobs] == [0] * 3
        async with site.survivor():
            await site.until_all(jobs, "done")
        await site.check_all_ended_once(jobs)
        await site.check_at_rest()


@clause("J-40", "J-30")
async def test_j40_entries_of_a_read_in_flight_are_released(
    valkey: LocalValkey, tmp_path: Path
) -> None:
    """The signal arrives when the worker has fetched the entry and not yet started the job."""
    async with Site(valkey.url, tmp_path, lease_s=3600) as site:
        with Proxy(valkey.port) as proxy:
            victim = await site.ready(proxy)
            async with site.in_hand(proxy, partial(site.submit, "quick")) as job:
                victim.terminate()
                victim.wait_for_line("stopping jobs=")
            assert victim.wait() == 0
        assert await site.status(job) == "queued"
        assert site.begun(job) == 0
        async with site.survivor():
            await site.until(job, "done")
        await site.check_ended_once(job)
        await site.check_at_rest()
