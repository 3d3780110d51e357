"""J-30, J-9: lost replies. The lease is longer than the test, so no job is recovered because its
lease expired."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from jobwire.local import LocalValkey
from tests.stories.site import Site
from tests.support import Proxy, clause, wait_until
from tests.support.streams import runs


@clause("J-30", "J-9", "R-5")
@pytest.mark.parametrize("verb", ["take", "settle", "report"])
async def test_j30_commands_whose_reply_was_lost_are_recovered(
    valkey: LocalValkey, tmp_path: Path, verb: str
) -> None:
    """The server has run the command, the connection breaks before the worker reads the reply."""
    async with Site(valkey.url, tmp_path, lease_s=3600) as site:
        with Proxy(valkey.port) as proxy:
            victim = await site.ready(proxy)
            proxy.cut_reply(runs(verb))
            site.gate.touch()
            job = await site.submit("gate")
            await site.until(job, "done")
            victim.wait_for_line("server available again")
            await site.check_ended_once(job)
            await site.check_at_rest()
        assert site.begun(job) == 1
        assert (await site.fields(job))["deliveries"] == "1"
        assert [kind for kind in await site.events(job) if kind in ("before", "after")] == [
            "before",
            "after",
        ]
        assert "outcome not written" not in victim.output


@clause("J-30", "R-1")
async def test_j30_a_disconnected_worker_continues_its_jobs(
    valkey: LocalValkey, tmp_path: Path
) -> None:
    """Running jobs continue; their reports and outcomes wait for the next connection."""
    async with Site(valkey.url, tmp_path, lease_s=3600) as site:
        with Proxy(valkey.port) as proxy:
            victim = await site.ready(proxy)
            jobs = [await site.submit("gate") for _ in range(3)]
            await wait_until(lambda: all(site.begun(job) == 1 for job in jobs))
            proxy.refuse()
            site.gate.touch()
            waiting = [await site.submit("quick") for _ in range(5)]
            await wait_until(lambda: "does not answer" in victim.output)
            assert {await site.status(job) for job in jobs} == {"running"}
            proxy.accept()
            await site.until_all([*jobs, *waiting], "done")
            for job in (*jobs, *waiting):
                await site.check_ended_once(job)
                assert site.begun(job) == 1
            await site.check_at_rest()


@clause("J-30")
async def test_j30_a_half_open_connection_is_detected(valkey: LocalValkey, tmp_path: Path) -> None:
    """A half-open connection: no error, and no data in either direction."""
    async with Site(valkey.url, tmp_path, lease_s=3600) as site:
        with Proxy(valkey.port) as proxy:
            victim = await site.ready(proxy)
            first = await site.submit("quick")
            await site.until(first, "done")
            proxy.silence()
            job = await site.submit("quick")
            victim.wait_for_line("does not answer")
            proxy.accept()
            proxy.cut()
            await site.until(job, "done")
            await site.check_ended_once(job)
            await site.check_at_rest()


@clause("J-30", "R-5")
async def test_r05_a_queue_loop_that_waits_for_a_slot_during_a_recovery_runs_nothing_twice(
    valkey: LocalValkey, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: the loop had seen a healthy connection and waited for a slot. The connection was
    lost, the slot became free while the recovery was in flight, and the next read began."""
    caplog.set_level("INFO", "jobwire.worker")
    async with Site(valkey.url, tmp_path, lease_s=3600) as site:
        with Proxy(valkey.port) as proxy:
            async with site.survivor(proxy.url(valkey.url)):
                gate, end = tmp_path / "first gate", tmp_path / "first end"
                jobs = [await site.submit("gate") for _ in range(3)]
                await wait_until(lambda: all(site.begun(job) == 1 for job in jobs))
                # After this recovery no slot is free, and the loop waits for one.
                proxy.cut_reply(runs("report"))
                jobs.append(await site.submit("gate", gate=str(gate), end=str(end)))
                await wait_until(lambda: "server available again" in caplog.text)
                await wait_until(lambda: site.begun(jobs[-1]) == 1)
                with proxy.hold(runs("recover_orphans")) as listing:
                    proxy.cut_reply(runs("report"))
                    gate.touch()
                    await listing.until_reached()
                    end.touch()
                    late = await site.submit("quick")
                    with contextlib.suppress(
                        AssertionError
                    ):  # a job that is not taken yet is correct
                        await wait_until(lambda: site.status_is(late, "running"), timeout_s=0.5)
                site.gate.touch()
                await site.until_all([*jobs, late], "done")
                await site.check_at_rest()
        assert {job: site.begun(job) for job in (*jobs, late)} == dict.fromkeys((*jobs, late), 1)
