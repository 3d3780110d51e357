"""J-34, J-39: a foreign worker that reports or updates its job is alive, and keeps it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from jobwire.job.messages import Done, LeasedJob
from jobwire.valkey import Connection
from jobwire.wires.streams.contract import StreamsKeys
from jobwire.wires.streams.engine import StreamsEngine
from tests.contracts.test_jobs_fleet import foreign_job
from tests.support import clause, wait_until
from tests.support.raw import Raw
from tests.support.streams import StreamsLab

KEYS = StreamsKeys()
JOB = "theirs"
IDLE_S = 2.0
Sign = Callable[[Raw], object]


def update(raw: Raw) -> None:
    raw.call("HSET", KEYS.job(JOB), "updated_ts", str(raw.now_ms()))


def report(raw: Raw) -> None:
    event = {"type": "progress", "ts": str(raw.now_ms()), "step": "theirs", "data": "{}"}
    raw.add(KEYS.events(JOB), event)


SIGNS = [pytest.param(update, id="updated_ts"), pytest.param(report, id="event")]


def lab_of(connection: Connection) -> StreamsLab:
    return StreamsLab(connection, lease_s=0.5, foreign_idle_s=IDLE_S)


async def reclaim(worker: StreamsEngine) -> list[LeasedJob]:
    worker.reclaim_soon()
    return await worker.take(1)


@clause("J-34", "J-39")
@pytest.mark.parametrize("sign", SIGNS)
async def test_j34_a_foreign_worker_that_reports_keeps_its_job(
    connection: Connection, raw: Raw, sign: Sign
) -> None:
    """Regression: the job was reclaimed once the delivery was `foreign_idle` old."""
    async with lab_of(connection) as lab:
        worker = await lab.worker()
        entry = foreign_job(raw, JOB)
        assert raw.read(KEYS.queue, "foreign-1") == [entry]
        raw.call("HSET", KEYS.job(JOB), "status", "running")
        until_s = time.monotonic() + 2 * IDLE_S

        async def reported_long_enough() -> bool:
            sign(raw)
            assert await reclaim(worker) == []
            assert await lab.maintain("reclaim") == 0
            return time.monotonic() > until_s

        await wait_until(reported_long_enough, "twice the idle limit to pass")
        assert raw.pending(KEYS.queue) == {entry: "foreign-1"}
        (leased,) = await wait_until(
            lambda: reclaim(worker), "the job of a worker that does not renew"
        )
        assert leased.job.id == JOB
        await worker.settle([(leased, Done("1"))], 0)


@clause("J-39", "J-42")
@pytest.mark.parametrize("sign", SIGNS)
async def test_j42_a_foreign_worker_that_acknowledged_early_and_reports_keeps_its_job(
    connection: Connection, raw: Raw, sign: Sign
) -> None:
    async with lab_of(connection) as lab:
        worker = await lab.worker()
        entry = foreign_job(raw, JOB)
        await lab.maintain("index_foreign")
        assert raw.read(KEYS.queue, "foreign-1") == [entry]
        raw.call("HSET", KEYS.job(JOB), "status", "running")
        raw.call("XACK", KEYS.queue, "workers", entry)
        until_s = time.monotonic() + 2 * IDLE_S

        async def reported_long_enough() -> bool:
            sign(raw)
            assert await lab.maintain("reconcile") == 0
            return time.monotonic() > until_s

        await wait_until(reported_long_enough, "twice the idle limit to pass")
        await wait_until(
            lambda: lab.maintain("reconcile"), "the job of a worker that does not renew"
        )
        (leased,) = await worker.take(1)
        assert leased.job.id == JOB
        await worker.settle([(leased, Done("1"))], 0)


@clause("J-34")
async def test_j34_an_update_time_in_the_future_is_not_activity(
    connection: Connection, raw: Raw
) -> None:
    """A foreign program's clock, or its mistake, must not keep a job forever."""
    async with lab_of(connection) as lab:
        worker = await lab.worker()
        foreign_job(raw, JOB)
        raw.read(KEYS.queue, "foreign-1")
        raw.call("HSET", KEYS.job(JOB), "status", "running", "updated_ts", "9" * 15)
        raw.call("XADD", KEYS.events(JOB), f"{'9' * 15}-1", "type", "progress", "ts", "x")
        (leased,) = await wait_until(lambda: reclaim(worker), "the job to be reclaimed")
        assert leased.job.id == JOB
        await worker.settle([(leased, Done("1"))], 0)
