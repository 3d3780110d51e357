"""R-3, J-33: a worker that is suspended past its lease and resumes changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from jobwire.local import LocalValkey
from tests.stories.site import Site
from tests.support import Plain, Proxy, clause, wait_until
from tests.support.raw import Raw
from tests.support.streams import runs

LEASE_S: Final = 12.0
"""Where two workers live: not lost by one that stands still for some seconds."""


@clause("R-3", "R-2", "J-33")
async def test_r3_a_worker_that_resumes_after_its_lease_changes_nothing(
    valkey: LocalValkey, tmp_path: Path
) -> None:
    async with Site(valkey.url, tmp_path, lease_s=LEASE_S) as site:
        victim = await site.ready()
        job = await site.submit("gate")
        await wait_until(lambda: site.begun(job) == 1)

        async def has_reported(times: int) -> bool:
            return (await site.events(job)).count("before") == times

        await wait_until(lambda: has_reported(1))
        victim.freeze()
        await site.expire_leases()
        async with site.survivor():
            await wait_until(lambda: has_reported(2), "the job to be reclaimed")
            # Both run the job now; the reports and the outcome of the zombie come first.
            survivor_events = await site.events(job)
            victim.thaw()
            victim.wait_for_line("belongs to another worker now")
            assert await site.events(job) == survivor_events
            assert await site.status(job) == "running"
            site.gate.touch()
            await site.until(job, "done")
            await site.check_ended_once(job)
        # One run of each, and the end is the survivor's.
        assert json.loads((await site.fields(job))["result"]) != victim.pid
        assert (await site.events(job)).count("after") == 1
        await site.check_at_rest()


@clause("R-3", "J-33")
async def test_r3_a_settle_after_the_lease_is_refused(valkey: LocalValkey, tmp_path: Path) -> None:
    """The outcome was sent when the worker froze; another worker has ended the job meanwhile."""
    async with Site(valkey.url, tmp_path) as site:
        with Proxy(valkey.port) as proxy:
            victim = await site.ready(proxy)
            with proxy.hold(runs("settle")) as hold:
                job = await site.submit("quick")
                await hold.until_reached()
                victim.freeze()
                async with site.survivor():
                    await site.until(job, "done")
                before, fields = await site.events(job), await site.fields(job)
            victim.thaw()
            victim.wait_for_line("outcome not written outcome=Done")
            assert await site.events(job) == before
            assert await site.fields(job) == fields
            await site.check_ended_once(job)


@clause("R-3", "J-33")
async def test_r3_a_foreign_worker_that_claimed_the_entry_is_not_disturbed(
    valkey: LocalValkey, plain: Plain, tmp_path: Path
) -> None:
    """A foreign worker has no owner token: it claims the entry, as the published contract says."""
    raw = Raw(plain)
    async with Site(valkey.url, tmp_path, lease_s=LEASE_S) as site:
        queue, key = site.keys.queue, ""
        victim = await site.ready()
        job = await site.submit("gate")
        await wait_until(lambda: site.begun(job) == 1)

        async def has_reported() -> bool:
            return "before" in await site.events(job)

        await wait_until(has_reported)
        victim.freeze()
        await site.expire_leases()
        key, events = site.keys.job(job), site.keys.events(job)
        (entry,) = raw.pending(queue)

        def claimed() -> bool:
            idle_ms = round(LEASE_S * 1000)
            raw.call("XAUTOCLAIM", queue, "workers", "foreign-1", idle_ms, "0")
            return raw.pending(queue) == {entry: "foreign-1"}

        await wait_until(claimed, "the entry to be idle for a lease")
        raw.write(key, {"status": "running"})
        raw.add(events, {"type": "running", "ts": "1", "step": "foreign", "data": "{}"})
        before, hash_before = await site.events(job), await site.fields(job)
        victim.thaw()
        victim.wait_for_line("belongs to another worker now")
        site.gate.touch()
        assert await site.events(job) == before
        assert await site.fields(job) == hash_before
        assert raw.pending(queue) == {entry: "foreign-1"}

        raw.write(key, {"status": "done", "result": '"foreign"'})
        raw.add(events, {"type": "done", "ts": "2", "step": "foreign", "data": "{}"})
        raw.call("XACK", queue, "workers", entry)
        await site.check_ended_once(job)
        assert victim.exit_code is None
        # The resumed worker serves jobs again.
        after = await site.submit("quick")
        await site.until(after, "done")


@clause("R-3", "R-5", "J-33")
async def test_r03_a_start_older_than_its_lease_is_not_run(
    valkey: LocalValkey, plain: Plain, tmp_path: Path
) -> None:
    """Regression: a worker froze while it waited for work. The server started a job for it; the
    worker found the answer in its socket when the job had long ended elsewhere, and ran it
    again."""
    raw = Raw(plain)
    async with Site(valkey.url, tmp_path) as site:
        with Proxy(valkey.port) as proxy:
            victim = await site.ready(proxy)
            # Right after the beginning of a read, so that the read outlasts the freeze.
            await proxy.until_seen("XREADGROUP", len(proxy.seen("XREADGROUP")) + 1)
            await proxy.until_seen(runs("take"), len(proxy.seen("XREADGROUP")))
            await wait_until(raw.blocked)
            victim.freeze()
            job = await site.submit("quick")
            await site.until(job, "running")
            async with site.survivor():
                await site.until(job, "done")
            victim.thaw()

            def noticed() -> bool:
                expected_logs = ("job lost", "outcome not written outcome=Done")
                return any(line in victim.output for line in expected_logs)

            await wait_until(noticed)
            assert site.begun(job) == 1
            await site.check_ended_once(job)
            after = await site.submit("quick")
            await site.until(after, "done")
        assert (await site.fields(after))["result"] == str(victim.pid), "it continues to work"
