"""J-34, J-39: a foreign worker that reports or updates its job is alive, and keeps it.

Deliveries, updates and events are made older by command, as the time that they are compared with is
the server's.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobwire.job.messages import Done, LeasedJob
from jobwire.systems.jobs.contract import StreamsKeys
from jobwire.systems.jobs.engine import StreamsEngine
from jobwire.valkey import Connection
from tests.contracts.test_jobs_fleet import foreign_job
from tests.support import clause
from tests.support.raw import Raw
from tests.support.streams import StreamsLab

KEYS = StreamsKeys()
JOB = "theirs"
IDLE_S = 600.0
LONG_MS = int(4 * IDLE_S * 1000)
Sign = Callable[[Raw], object]


def update(raw: Raw) -> None:
    raw.call("HSET", KEYS.job(JOB), "updated_ts", str(raw.now_ms()))


def report(raw: Raw) -> None:
    event = {"type": "progress", "ts": str(raw.now_ms()), "step": "theirs", "data": "{}"}
    raw.add(KEYS.events(JOB), event)


def grow_old(raw: Raw) -> None:
    """Make the last update and all events older than the idle limit."""
    long_ago_ms, events = raw.now_ms() - LONG_MS, raw.entries(KEYS.events(JOB))
    raw.call("HSET", KEYS.job(JOB), "updated_ts", str(long_ago_ms))
    raw.delete(KEYS.events(JOB))
    for number, (_, event) in enumerate(events, 1):
        pairs = [part for pair in event.items() for part in pair]
        raw.call("XADD", KEYS.events(JOB), f"{long_ago_ms}-{number}", *pairs)
    raw.expire(KEYS.events(JOB), 600)


def deliver_earlier(raw: Raw, entry: str, idle_ms: float) -> None:
    """The delivery is so old from here on; its worker and its number stay."""
    claim = ("XCLAIM", KEYS.queue, "workers", "foreign-1", 0, entry, "IDLE", int(idle_ms))
    raw.call(*claim, "JUSTID")


SIGNS = [pytest.param(update, id="updated_ts"), pytest.param(report, id="event")]


def lab_of(connection: Connection) -> StreamsLab:
    return StreamsLab(connection, lease_s=60.0, foreign_idle_s=IDLE_S)


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
        grow_old(raw)
        for idle_ms in (1500 * IDLE_S, 2500 * IDLE_S, LONG_MS):
            sign(raw)
            deliver_earlier(raw, entry, idle_ms)
            assert await reclaim(worker) == []
            assert await lab.maintain("reclaim") == 0
        assert raw.pending(KEYS.queue) == {entry: "foreign-1"}
        grow_old(raw)
        (leased,) = await reclaim(worker)
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
        grow_old(raw)
        for _ in range(3):
            sign(raw)
            assert await lab.maintain("reconcile") == 0
        grow_old(raw)
        assert await lab.maintain("reconcile") == 1
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
        entry = foreign_job(raw, JOB)
        raw.read(KEYS.queue, "foreign-1")
        deliver_earlier(raw, entry, LONG_MS)
        raw.call("HSET", KEYS.job(JOB), "status", "running", "updated_ts", "9" * 15)
        raw.call("XADD", KEYS.events(JOB), f"{'9' * 15}-1", "type", "progress", "ts", "x")
        (leased,) = await reclaim(worker)
        assert leased.job.id == JOB
        await worker.settle([(leased, Done("1"))], 0)
