"""J-7, J-34, J-39, J-52: jumps of the server's clock, on a real server whose clock is set."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from jobwire.job.messages import Done, JobId
from jobwire.local import LocalValkey
from jobwire.maintenance import Maintenance
from jobwire.systems.jobs.contract import Counter
from jobwire.systems.jobs.cron_store import StreamsCronStore
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.systems.jobs.stats import LastHour
from jobwire.valkey import Connection
from jobwire.worker.scheduler import CronEntry, CronScheduler
from tests.fleet.cron_app import EverySecond
from tests.support import clause, wait_until
from tests.support.faketime import ServerClock, server_clock
from tests.support.raw import Raw, foreign_job
from tests.support.servers import plain_client
from tests.support.streams import StreamsLab

HOUR_S = 3600
QUEUE = "jobs:stream"


@pytest.fixture
def clock(tmp_path: Path) -> ServerClock:
    """The clock of the server of this test."""
    found = server_clock(tmp_path)
    if found is None:
        pytest.skip("libfaketime is not installed (Debian: apt-get install faketime)")
    return found


@pytest_asyncio.fixture
async def clocked(clock: ServerClock, tmp_path: Path) -> AsyncIterator[tuple[Connection, Raw]]:
    """A server that uses this clock: the product's connection, and a raw client for the keys."""
    with contextlib.ExitStack() as stack:
        folder = tmp_path / "valkey"
        server = stack.enter_context(LocalValkey(folder, admin=True, program=clock.program))
        raw = Raw(stack.enter_context(plain_client(server)))
        async with Connection.open(server.url, name="tests-clock") as connection:
            yield connection, raw


async def jumped(raw: Raw, clock: ServerClock, offset_s: int) -> None:
    """Set the clock; return when the server uses it."""
    clock.set(offset_s)
    wanted_s = time.time() + offset_s
    await wait_until(lambda: abs(raw.now_ms() / 1000 - wanted_s) < 60, "the clock to jump")


@contextlib.asynccontextmanager
async def running(program: Maintenance | CronScheduler) -> AsyncGenerator[None]:
    """Run it inside of the block."""
    task = asyncio.create_task(program.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@clause("J-7", "R-1")
async def test_j07_forward_jumps_shorter_than_half_a_ttl_lose_nothing(
    clock: ServerClock, clocked: tuple[Connection, Raw]
) -> None:
    connection, raw = clocked
    async with StreamsLab(connection) as lab:
        job_id = await lab.submit(ttl_s=600, idempotency_key="once")
        worker, leased = await lab.start(ttl_s=600)
        keys = (f"job:{job_id}", f"job:{job_id}:events", "idempotency:once")
        for offset_s in (290, 580, 870):
            await jumped(raw, clock, offset_s)
            await lab.maintain("extend_ttl")
            assert raw.exists(*keys) == 3, f"after {offset_s} s"
        assert [one.job.id for one in await worker.recover_orphans(frozenset())] == [leased.job.id]


@clause("J-34", "J-41")
async def test_j34_a_clock_that_is_set_back_does_not_stop_reclaim(
    clock: ServerClock, clocked: tuple[Connection, Raw]
) -> None:
    """A worker dies before the clock goes back by an hour; another worker reclaims its job within
    leases."""
    connection, raw = clocked
    async with (
        StreamsLab(connection, lease_s=2.0) as lab,
        running(Maintenance(lab.sweeper.maintenance())),
    ):
        job_ids = [await lab.submit() for _ in range(3)]
        dead = await lab.worker()
        assert len(await dead.take(3)) == 3
        await lab.sweep()
        await jumped(raw, clock, -HOUR_S)
        other = StreamsEngine(connection, lab.settings)
        found: set[JobId] = set()

        async def all_taken() -> bool:
            other.reclaim_soon()
            taken = await other.take(3)
            found.update(one.job.id for one in taken)
            await other.settle([(one, Done("1")) for one in taken], 0)
            return found == set(job_ids)

        await wait_until(all_taken, "the dead worker's jobs")


@clause("J-34")
async def test_j34_a_clock_that_is_set_back_reclaims_nothing_from_live_workers(
    clock: ServerClock, clocked: tuple[Connection, Raw]
) -> None:
    connection, raw = clocked
    async with StreamsLab(connection) as lab:
        worker, leased = await lab.start()
        await lab.sweep()
        await jumped(raw, clock, -HOUR_S)
        before = raw.fields(f"job:{leased.job.id}")
        await lab.sweep()
        assert raw.fields(f"job:{leased.job.id}") == before
        assert raw.pending(QUEUE) == {leased.wire: worker.consumer}
        await worker.settle([(leased, Done("1"))], 0)


@clause("J-39")
async def test_j39_foreign_jobs_of_an_emptied_server_whose_clock_is_set_back_are_indexed(
    clock: ServerClock, clocked: tuple[Connection, Raw]
) -> None:
    """Entry ids begin with the time: those of the new stream are smaller than the old ones."""
    connection, raw = clocked
    async with StreamsLab(connection) as lab:
        foreign_job(raw, "before")
        assert await lab.maintain("index_foreign") == 1
        raw.call("FLUSHALL")
        await jumped(raw, clock, -HOUR_S)
        foreign_job(raw, "after")
        found = await lab.maintain("index_foreign") + await lab.maintain("index_foreign")
        assert found == 1
        assert raw.members("jobs:open") == ["after"]


@clause("O-11")
async def test_o11_an_emptied_server_has_no_minutes_of_before(
    clock: ServerClock, clocked: tuple[Connection, Raw]
) -> None:
    """A gateway remembers minutes that have ended; the server is emptied between two of them."""
    connection, raw = clocked
    async with StreamsLab(connection) as lab:
        hour = LastHour(connection, lab.keys)

        async def submitted_in_next_minute() -> int:
            minute = raw.now_ms() // 60_000
            clock.jump(60)
            await wait_until(lambda: raw.now_ms() // 60_000 > minute, "the next minute")
            return sum(each.count(Counter.SUBMISSIONS) for each in await hour.read())

        await lab.submit()
        assert await submitted_in_next_minute() == 1
        assert await submitted_in_next_minute() == 1
        raw.call("FLUSHALL")
        assert await submitted_in_next_minute() == 0
        await lab.submit()
        assert await submitted_in_next_minute() == 1


@clause("J-52")
async def test_j52_cron_continues_after_clock_jumps(
    clock: ServerClock, clocked: tuple[Connection, Raw]
) -> None:
    connection, raw = clocked
    entry = CronEntry("tick", EverySecond(), "UTC every second", "tick", "{}")

    async def more() -> None:
        """Two more runs are submitted."""
        wanted = raw.length(QUEUE) + 2
        await wait_until(lambda: raw.length(QUEUE) >= wanted, "two more runs")

    async with running(CronScheduler([entry], StreamsCronStore(connection))):
        await more()
        await jumped(raw, clock, 25 * HOUR_S)
        await more()
        await jumped(raw, clock, 0)
        await more()
