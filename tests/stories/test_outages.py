"""J-34, G-27: stalls, outages and clock jumps of the server are not charged to workers.

Idle times grow while the server does not serve, and jump with its clock: leases look expired
although every worker is alive.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from jobwire.job.messages import Done, LeasedJob, RenewAnswer, SettleAnswer
from jobwire.local import LocalValkey
from jobwire.systems.jobs.contract import GROUP
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.valkey import Connection
from tests.stories.site import Site
from tests.support import Proxy, clause, wait_until
from tests.support.faketime import ServerClock, server_clock
from tests.support.streams import StreamsLab


async def stall(server: LocalValkey, seconds: float) -> None:
    """Freeze the server for some seconds; connections stay open."""
    os.kill(server.pid, signal.SIGSTOP)
    await asyncio.sleep(seconds)
    os.kill(server.pid, signal.SIGCONT)


async def idle_s(connection: Connection, queue: str) -> list[float]:
    """The idle time of each pending entry."""
    rows = await connection.call("XPENDING", queue, GROUP, "-", "+", 100)
    return [row[2] / 1000 for row in cast("list[tuple[str, str, int, int]]", rows)]


async def taken_over(by: StreamsEngine, timeout_s: float = 30) -> LeasedJob:
    """The job that a worker reclaims as soon as its lease has expired."""

    async def taken() -> list[LeasedJob]:
        by.reclaim_soon()
        return await by.take(1)

    (leased,) = await wait_until(taken, "the job to be reclaimed", timeout_s=timeout_s)
    return leased


@clause("J-34")
async def test_j34_a_stall_of_the_server_takes_no_job_from_a_live_worker(
    own_valkey: LocalValkey, tmp_path: Path
) -> None:
    """Regression: after the stall, the queued commands of a worker with a free slot ran before the
    renewals of the others."""
    async with Site(own_valkey.url, tmp_path / "site", lease_s=2.0) as site:
        await site.ready()
        jobs = [await site.submit("gate") for _ in range(4)]
        await wait_until(lambda: all(site.begun(job) == 1 for job in jobs))

        async def renewed() -> bool:
            idle = await idle_s(site.connection, site.keys.queue)
            return len(idle) == len(jobs) and max(idle) < 1.0

        async with site.survivor():
            for _ in range(3):
                await stall(own_valkey, 2.5)
                await wait_until(renewed, "the leases to be renewed")
            site.gate.touch()
            await site.until_all(jobs, "done")
        for job in jobs:
            assert site.begun(job) == 1
            assert (await site.fields(job))["deliveries"] == "1"
            await site.check_ended_once(job)


@clause("J-34", "G-27")
async def test_g27_after_a_reconnect_a_process_reclaims_nothing_for_a_third_of_the_lease(
    valkey: LocalValkey, connection: Connection, proxy: Proxy
) -> None:
    """Regression: a reclaimer reconnected and took jobs that others were about to renew."""
    async with (
        Connection.open(proxy.url(valkey.url)) as cut,
        StreamsLab(connection, lease_s=3.0) as near,
        StreamsLab(cut, lease_s=3.0) as far,
    ):
        holder, leased = await near.start()
        other = await far.worker()
        assert await other.take(1) == []
        proxy.refuse()

        # Other clients are connected all the time: the server did not stall.
        async def expired() -> bool:
            await near.maintain("reclaim")
            return min(await idle_s(connection, near.keys.queue)) > near.lease_s

        async def reconnected() -> bool:
            await near.maintain("reclaim")
            return cut.connected and proxy.connections > 0

        await wait_until(expired, "the lease to expire")
        proxy.heal()
        await wait_until(reconnected, "the reconnect")
        other.reclaim_soon()
        assert await other.take(1) == []
        renewer = holder.lease_renewer()
        assert renewer.renew([leased]) == [RenewAnswer.RENEWED]
        renewer.close()
        assert (await holder.settle([(leased, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]


@clause("J-34")
async def test_j34_the_first_reclaim_after_a_stall_takes_nothing(own_valkey: LocalValkey) -> None:
    """Story: a worker with a free slot came before the renewals of the others, and took their
    jobs."""
    async with (
        Connection.open(own_valkey.url) as connection,
        StreamsLab(connection, lease_s=2.0) as lab,
    ):
        holder, leased = await lab.start()
        other = await lab.worker()
        await lab.maintain("reclaim")
        await stall(own_valkey, 2.5)
        other.reclaim_soon()
        assert await other.take(1) == []
        renewer = holder.lease_renewer()
        assert renewer.renew([leased]) == [RenewAnswer.RENEWED]
        renewer.close()
        assert (await holder.settle([(leased, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]


@clause("J-34")
async def test_j34_a_delivery_that_was_lost_over_a_stall_is_not_counted(
    own_valkey: LocalValkey,
) -> None:
    """Regression: jobs ended as `delivery_limit` although no worker had died while it ran them."""
    async with (
        Connection.open(own_valkey.url) as connection,
        StreamsLab(connection, lease_s=2.0, max_deliveries=2) as lab,
    ):
        _, leased = await lab.start()
        for start in (2, 3):
            await lab.maintain("reclaim")
            await stall(own_valkey, 2.5)
            worker = await lab.worker()
            leased = await taken_over(worker)
            assert leased.job.deliveries == start, "a handler sees that the job was started before"
        worker = await lab.worker()
        leased = await taken_over(worker)
        assert leased.job.deliveries == 4, "the limit of 2 counts one lost worker so far"
        await worker.settle([(leased, Done("1"))], 0)


@clause("J-34")
async def test_j34_a_stall_delays_the_jobs_of_a_dead_worker_and_loses_nothing(
    own_valkey: LocalValkey, tmp_path: Path
) -> None:
    async with Site(own_valkey.url, tmp_path / "site", lease_s=1.0) as site:
        worker = await site.ready()
        job = await site.submit("gate")
        await wait_until(lambda: site.begun(job) == 1)
        worker.kill()
        site.gate.touch()
        async with site.survivor():
            await stall(own_valkey, 1.5)
            await site.until(job, "done")
        await site.check_ended_once(job)


# ── the server's clock ───────────────────────────────────────────────────────────────────────────


@pytest.fixture
def clock(tmp_path: Path) -> ServerClock:
    found = server_clock(tmp_path)
    if found is None:
        pytest.skip("libfaketime is not installed (Debian: apt-get install libfaketime)")
    return found


@pytest.fixture
def clocked(tmp_path: Path, clock: ServerClock) -> Iterator[LocalValkey]:
    """A server that uses this clock."""
    with LocalValkey(tmp_path / "valkey", admin=True, program=clock.program) as server:
        yield server


@clause("J-34")
async def test_j34_a_clock_set_back_delays_reclaim_by_a_lease_only(
    clocked: LocalValkey, clock: ServerClock, tmp_path: Path
) -> None:
    """Regression: deliveries lay in the future, so their idle time was 0 until the clock had caught
    up; and the guards of the maintenance tasks stayed as long."""
    async with Site(clocked.url, tmp_path / "site", lease_s=1.0) as site:
        worker = await site.ready()
        job = await site.submit("gate")
        await wait_until(lambda: site.begun(job) == 1)
        worker.freeze()
        site.gate.touch()
        async with site.survivor():
            clock.jump(-3600)
            await site.until(job, "done")
        worker.kill()
        await site.check_ended_once(job)


@clause("J-34")
async def test_j34_a_clock_set_forward_takes_no_job_from_a_live_worker(
    clocked: LocalValkey, clock: ServerClock, tmp_path: Path
) -> None:
    async with Site(clocked.url, tmp_path / "site", lease_s=3.0) as site:
        await site.ready()
        jobs = [await site.submit("gate") for _ in range(4)]
        await wait_until(lambda: all(site.begun(job) == 1 for job in jobs))

        async def renewed() -> bool:
            idle = await idle_s(site.connection, site.keys.queue)
            return len(idle) == len(jobs) and max(idle) < 1.0

        async with site.survivor():
            for _ in range(5):
                clock.jump(60)
                await wait_until(renewed, "the leases to be renewed")
            site.gate.touch()
            await site.until_all(jobs, "done")
        for job in jobs:
            assert site.begun(job) == 1
            await site.check_ended_once(job)
