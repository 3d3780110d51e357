"""R-1, R-7, J-30: the server is restarted, emptied, full or read-only under working workers."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from jobwire.job.errors import BackendUnavailable
from jobwire.job.messages import JobId
from jobwire.local import LocalValkey
from jobwire.valkey import ValkeyError
from tests.stories.site import Site
from tests.support import Program, clause, wait_until
from tests.support.raw import Raw
from tests.support.servers import plain_client

RESTARTS: Final = int(os.environ.get("CHAOS_RESTARTS", "10"))
LIMIT_S: Final = float(os.environ.get("CHAOS_LIMIT_S", "60"))


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[LocalValkey]:
    """A server that may be killed, with every answered write on disk: with the usual `everysec` the
    server itself may lose a second of writes."""
    extra = ["appendfsync always"]
    with LocalValkey(tmp_path / "valkey", admin=True, extra=extra) as server:
        yield server


@pytest_asyncio.fixture
async def site(own_valkey: LocalValkey, tmp_path: Path) -> AsyncIterator[Site]:
    async with Site(own_valkey.url, tmp_path / "site") as opened:
        yield opened


async def submit_until_accepted(site: Site, task: str) -> JobId:
    """A producer that repeats a submission until it has a response. An accepted job must never be
    lost; a submission without a response may exist twice."""

    async def accepted() -> JobId | None:
        try:
            return await site.submit(task)
        except (BackendUnavailable, ValkeyError):
            return None

    job_id = await wait_until(accepted, f"a {task} to be accepted", timeout_s=60)
    assert job_id is not None
    return job_id


@clause("R-1", "R-2", "R-7", "J-30")
@pytest.mark.timeout(LIMIT_S + 240)
async def test_j30_workers_survive_repeated_restarts_of_the_server(
    own_valkey: LocalValkey, site: Site
) -> None:
    """A common bug of job queues: after the server restarted, a worker is connected and looks
    healthy, but takes nothing. So each worker has to take a job after each restart."""
    workers = [await site.ready() for _ in range(2)]
    jobs: list[JobId] = []
    loading = True

    async def load() -> None:
        while loading:
            jobs.append(await submit_until_accepted(site, "quick"))
            await asyncio.sleep(0.002)

    producer = asyncio.create_task(load())
    deadline_s = time.monotonic() + LIMIT_S
    restarts = 0
    while restarts < RESTARTS and time.monotonic() < deadline_s:
        before = taken_by(site, workers)
        await asyncio.to_thread(own_valkey.kill if restarts % 2 else own_valkey.stop)
        await asyncio.to_thread(own_valkey.start)
        restarts += 1
        await wait_until(
            lambda before=before: all(
                now > then for now, then in zip(taken_by(site, workers), before, strict=True)
            ),
            f"every worker to take jobs after restart {restarts}",
            timeout_s=60,
        )
    loading = False
    await producer
    print(f"{restarts} restarts, {len(jobs)} jobs accepted")
    await site.until_all(jobs, "done", timeout_s=120)
    await site.check_all_ended_once(jobs)
    await site.check_at_rest()
    assert [worker.exit_code for worker in workers] == [None, None]


def taken_by(site: Site, workers: list[Program]) -> list[int]:
    """How many runs each worker has begun, from the file that the handlers write."""
    lines = site.effects.read_text().splitlines() if site.effects.exists() else []
    return [sum(line.endswith(f" {worker.pid}") for line in lines) for worker in workers]


@clause("J-30")
async def test_j30_a_worker_survives_an_emptied_server(own_valkey: LocalValkey, site: Site) -> None:
    worker = await site.ready()
    job = await site.submit("gate")
    await wait_until(lambda: site.begun(job) == 1)
    with plain_client(own_valkey) as plain:
        plain.flushall()
        # The job is gone; the next renewal cancels its handler, which frees the slot.
        line = worker.wait_for_line("job lost")
        # By the renewal; or by a report before it, which does not tell the two cases apart.
        reasons = (
            "it has ended, or is gone from the server",
            "another worker has it, or it has ended",
        )
        assert any(reason in line for reason in reasons), line
        after = await site.submit("quick")
        await site.until(after, "done")
        assert Raw(plain).find(f"*{job}*") == []
    await site.check_at_rest()


@clause("R-1", "J-9")
async def test_j09_on_a_full_server_jobs_start_and_end_without_reports(
    own_valkey: LocalValkey, site: Site
) -> None:
    worker = await site.ready()
    waiting = await site.submit("gate")
    await wait_until(lambda: site.begun(waiting) == 1)
    delayed = [await site.submit("gate") for _ in range(2)]
    with plain_client(own_valkey) as plain:
        plain.config_set("maxmemory", "1")
        await wait_until(lambda: all(site.begun(job) == 1 for job in delayed))
        with pytest.raises(BackendUnavailable):
            await site.submit("quick")
        site.gate.touch()
        jobs = [waiting, *delayed]
        await site.until_all(jobs, "done")
        plain.config_set("maxmemory", "0")
    for job in jobs:
        await site.check_ended_once(job)
        assert site.begun(job) == 1
    worker.wait_for_line("dropped")
    await site.until(await site.submit("quick"), "done")
    await site.check_at_rest()


@clause("R-1", "J-30")
async def test_r1_outcomes_wait_while_the_server_is_read_only(
    own_valkey: LocalValkey, site: Site
) -> None:
    """The server is a replica for a while, as in a failover: outcomes wait, no job starts again."""
    worker = await site.ready()
    job = await site.submit("gate")
    await wait_until(lambda: site.begun(job) == 1)
    with plain_client(own_valkey) as plain:
        plain.replicaof("127.0.0.1", "1")  # no such primary: the server refuses writes
        site.gate.touch()
        worker.wait_for_line("refuses to write")
        assert await site.status(job) == "running"
        plain.replicaof("NO", "ONE")
    await site.until(job, "done")
    await site.check_ended_once(job)
    assert site.begun(job) == 1
    await site.until(await site.submit("quick"), "done")
    await site.check_at_rest()


@clause("R-1", "J-30")
async def test_r1_an_outage_longer_than_the_lease_loses_nothing(
    own_valkey: LocalValkey, tmp_path: Path
) -> None:
    async with Site(own_valkey.url, tmp_path / "site", lease_s=1.0) as site:
        worker = await site.ready()
        jobs = [await site.submit("gate") for _ in range(3)]
        await wait_until(lambda: all(site.begun(job) == 1 for job in jobs))
        await asyncio.to_thread(own_valkey.stop)
        site.gate.touch()
        worker.wait_for_line("does not answer")
        await asyncio.sleep(2 * site.settings.lease_s)  # the server is down for this time
        await asyncio.to_thread(own_valkey.start)
        await site.until_all(jobs, "done")
        for job in jobs:
            await site.check_ended_once(job)
        await site.check_at_rest()
