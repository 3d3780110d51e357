"""J-34, G-27: stalls, outages and clock jumps of the server are not charged to workers.

Idle times grow while the server does not serve, and jump with its clock: leases look expired
although every worker is alive.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, cast

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

LEASE_S: Final = 15.0
"""A live worker that stands still for some seconds renews in the half of it that follows an
outage."""
STALL_S: Final = 20


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


async def stall(server: LocalValkey, clock: ServerClock) -> None:
    """Freeze the server for longer than a lease, by its clock; connections stay open, and commands
    queue up."""
    os.kill(server.pid, signal.SIGSTOP)
    clock.jump(STALL_S)
    await asyncio.sleep(0.5)
    os.kill(server.pid, signal.SIGCONT)


async def idle_s(connection: Connection, queue: str) -> list[float]:
    """The idle time of each pending entry."""
    rows = await connection.call("XPENDING", queue, GROUP, "-", "+", 100)
    return [row[2] / 1000 for row in cast("list[tuple[str, str, int, int]]", rows)]


async def are_renewed(site: Site, jobs: Sequence[str]) -> bool:
    idle = await idle_s(site.connection, site.keys.queue)
    return len(idle) == len(jobs) and max(idle) < site.settings.lease_s


async def taken_over(by: StreamsEngine, clock: ServerClock) -> LeasedJob:
    """The job that a worker reclaims as soon as its lease has expired."""

    async def taken() -> list[LeasedJob]:
        by.reclaim_soon()
        if not (leased := await by.take(1)):
            clock.jump(round(0.4 * by.settings.lease_s))  # half of it is an outage
        return leased

    (leased,) = await wait_until(taken, "the job to be reclaimed")
    return leased


@clause("J-34")
async def test_j34_a_stall_of_the_server_takes_no_job_from_a_live_worker(
    clocked: LocalValkey, clock: ServerClock, tmp_path: Path
) -> None:
    """Regression: after the stall, the queued commands of a worker with a free slot ran before the
    renewals of the others."""
    async with Site(clocked.url, tmp_path / "site", lease_s=LEASE_S) as site:
        await site.ready()
        jobs = [await site.submit("gate") for _ in range(4)]
        await wait_until(lambda: all(site.begun(job) == 1 for job in jobs))
        async with site.survivor():
            for _ in range(2):
                await stall(clocked, clock)
                await wait_until(lambda: are_renewed(site, jobs), "the leases to be renewed")
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
        StreamsLab(connection) as near,
        StreamsLab(cut) as far,
    ):
        holder, leased = await near.start()
        other = await far.worker()
        assert await other.take(1) == []
        proxy.refuse()
        await wait_until(lambda: not cut.connected, "the connection to be lost")
        # Other clients are connected all the time: the server did not stall.
        await near.maintain("reclaim")
        group, idle_ms = (near.keys.queue, GROUP), round(1.5 * near.lease_s * 1000)
        ((entry, *_),) = cast(
            "list[tuple[str, str, int, int]]",
            await connection.call("XPENDING", *group, "-", "+", 10),
        )
        await connection.call("XCLAIM", *group, holder.consumer, 0, entry, "IDLE", idle_ms)
        proxy.heal()
        await wait_until(lambda: cut.connected and proxy.connections > 0, "the reconnect")
        other.reclaim_soon()
        assert await other.take(1) == []
        renewer = holder.lease_renewer()
        assert renewer.renew([leased]) == [RenewAnswer.RENEWED]
        renewer.close()
        assert (await holder.settle([(leased, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]


@clause("J-34")
async def test_j34_the_first_reclaim_after_a_stall_takes_nothing(
    clocked: LocalValkey, clock: ServerClock
) -> None:
    """Story: a worker with a free slot came before the renewals of the others, and took their
    jobs."""
    async with (
        Connection.open(clocked.url) as connection,
        StreamsLab(connection, lease_s=LEASE_S) as lab,
    ):
        holder, leased = await lab.start()
        other = await lab.worker()
        await lab.maintain("reclaim")
        await stall(clocked, clock)
        other.reclaim_soon()
        assert await other.take(1) == []
        renewer = holder.lease_renewer()
        assert renewer.renew([leased]) == [RenewAnswer.RENEWED]
        renewer.close()
        assert (await holder.settle([(leased, Done("1"))], 0)).answers == [SettleAnswer.SETTLED]


@clause("J-34")
async def test_j34_a_delivery_that_was_lost_over_a_stall_is_not_counted(
    clocked: LocalValkey, clock: ServerClock
) -> None:
    """Regression: jobs ended as `delivery_limit` although no worker had died while it ran them."""
    async with (
        Connection.open(clocked.url) as connection,
        StreamsLab(connection, lease_s=LEASE_S, max_deliveries=2) as lab,
    ):
        _, leased = await lab.start()
        for start in (2, 3):
            await lab.maintain("reclaim")
            await stall(clocked, clock)
            worker = await lab.worker()
            leased = await taken_over(worker, clock)
            assert leased.job.deliveries == start, "a handler sees that the job was started before"
        worker = await lab.worker()
        leased = await taken_over(worker, clock)
        assert leased.job.deliveries == 4, "the limit of 2 counts one lost worker so far"
        await worker.settle([(leased, Done("1"))], 0)


@clause("J-34")
async def test_j34_a_stall_delays_the_jobs_of_a_dead_worker_and_loses_nothing(
    clocked: LocalValkey, clock: ServerClock, tmp_path: Path
) -> None:
    async with Site(clocked.url, tmp_path / "site", lease_s=1.0) as site:
        worker = await site.ready()
        job = await site.submit("gate")
        await wait_until(lambda: site.begun(job) == 1)
        worker.kill()
        site.gate.touch()
        async with site.survivor():
            await stall(clocked, clock)
            await site.until(job, "done")
        await site.check_ended_once(job)


# ── the server's clock ───────────────────────────────────────────────────────────────────────────


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
    async with Site(clocked.url, tmp_path / "site", lease_s=LEASE_S) as site:
        await site.ready()
        jobs = [await site.submit("gate") for _ in range(4)]
        await wait_until(lambda: all(site.begun(job) == 1 for job in jobs))
        async with site.survivor():
            for _ in range(2):
                clock.jump(60)
                await wait_until(lambda: are_renewed(site, jobs), "the leases to be renewed")
            site.gate.touch()
            await site.until_all(jobs, "done")
        for job in jobs:
            assert site.begun(job) == 1
            await site.check_ended_once(job)
