"""J-32: what renews a lease and what does not."""

from __future__ import annotations

import itertools
from pathlib import Path

from jobwire.local import LocalValkey
from tests.stories.site import Site
from tests.support import clause, wait_until


@clause("J-32")
async def test_j32_a_handler_that_blocks_the_event_loop_keeps_its_job(
    valkey: LocalValkey, tmp_path: Path
) -> None:
    # Not lost by a worker that stands still for some seconds.
    async with Site(valkey.url, tmp_path, lease_s=9.0) as site:
        victim = await site.ready()
        job = await site.submit("blocks")
        await wait_until(lambda: site.begun(job) == 1)
        async with site.survivor():
            # More than a lease passes, and the other worker runs its reclaim all the time.
            others = [await site.submit("quick") for _ in range(3)]
            await site.until_all(others, "done")
            idle: list[int] = []

            async def kept_for_long() -> bool:
                info = await site.connection.call(
                    "XPENDING", site.keys.queue, "workers", "-", "+", 10
                )
                assert isinstance(info, list)
                (row,) = info
                assert isinstance(row, list)
                idle.append(int(str(row[2])))
                # Each decrease of the idle time is a renewal.
                return sum(a > b for a, b in itertools.pairwise(idle)) >= 4

            await wait_until(kept_for_long, "four renewals")
            site.gate.touch()
            await site.until(job, "done")
        assert site.begun(job) == 1
        assert (await site.fields(job))["result"] == str(victim.pid)
        await site.check_ended_once(job)


@clause("J-32", "R-3")
async def test_j32_c_code_that_holds_the_interpreter_past_the_lease_is_fenced(
    valkey: LocalValkey, tmp_path: Path
) -> None:
    async with Site(valkey.url, tmp_path, lease_s=1.0) as site:
        victim = await site.ready()
        job = await site.submit("holds", seconds=4)
        await wait_until(lambda: site.begun(job) == 1)
        async with site.survivor():
            await site.until(job, "done")
            victim.wait_for_line("outcome not written outcome=Done")
        assert site.begun(job) == 2
        assert (await site.fields(job))["result"] != str(victim.pid)
        await site.check_ended_once(job)
