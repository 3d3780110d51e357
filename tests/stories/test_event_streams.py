"""J-17, R-8: a thousand event streams; lost connections of clients, gateways and servers."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from typing import Final

import httpx
import pytest

from jobwire.local import LocalValkey
from tests.stories.gateways import Watcher, gateway
from tests.support import Plain, Proxy, clause, wait_until
from tests.support.machine import needs_open_files
from tests.support.raw import Raw

CUT_FOR_S: Final = float(os.environ.get("CHAOS_WATCH_S", "4"))
# However busy the machine is: entries of each job, and connections of a reader on average.
ENTRIES: Final = 20
CONNECTS: Final = 3
JOBS: Final = 250
A_JOB: Final = 4


@pytest.fixture
def raw(plain: Plain) -> Raw:
    return Raw(plain)


def submit(url: str, count: int) -> list[str]:
    """Submit jobs that only the test runs, as a foreign worker."""
    jobs = [{"task": "chat", "payload": {"n": number}} for number in range(count)]
    answer = httpx.post(f"{url}/v1/jobs/batch", json={"jobs": jobs}, timeout=30, trust_env=False)
    return [result["job_id"] for result in answer.json()["results"]]


def append_event(raw: Raw, job_ids: list[str], kind: str) -> None:
    """An event of each job, as a foreign worker writes them."""
    with raw.plain.pipeline(transaction=False) as many:
        for job_id in job_ids:
            fields = ("type", kind, "ts", "1", "step", "foreign", "data", '{"a":1}')
            many.execute_command("XADD", f"job:{job_id}:events", "*", *fields)
            many.expire(f"job:{job_id}:events", 600)
        many.execute()


def written(raw: Raw, job_id: str) -> list[str]:
    return [entry for entry, _ in raw.entries(f"job:{job_id}:events")]


@clause("J-17", "R-8")
@needs_open_files(2048)
async def test_j17_a_thousand_streams_use_few_connections(valkey: LocalValkey, raw: Raw) -> None:
    with gateway(valkey.url) as started:
        job_ids = submit(started.url, JOBS)
        watchers = [Watcher(started.port, job_id) for job_id in job_ids for _ in range(A_JOB)]
        async with asyncio.TaskGroup() as group:
            for watcher in watchers:
                group.create_task(watcher.read_to_the_end())
            await wait_until(
                lambda: all(watcher.seen for watcher in watchers), "a thousand first events"
            )
            ours = [
                client["name"]
                for client in raw.plain.client_list()
                if client["name"].startswith("jobwire-gateway")
            ]
            assert len(ours) <= 4, ours
            for _ in range(5):
                await asyncio.to_thread(append_event, raw, job_ids, "log")
            await asyncio.to_thread(append_event, raw, job_ids, "done")
        truth = {job_id: written(raw, job_id) for job_id in job_ids}
        for number, watcher in enumerate(watchers):
            assert [event.id for event in watcher.seen] == truth[job_ids[number // A_JOB]]
        assert all(watcher.connects == 1 for watcher in watchers)


@clause("J-15", "J-17", "R-8")
@pytest.mark.timeout(CUT_FOR_S + 180)
async def test_r08_readers_cut_at_random_miss_and_repeat_nothing(
    valkey: LocalValkey, proxy: Proxy, raw: Raw
) -> None:
    """Connections to the gateway and to the server break, and the gateway is killed meanwhile."""
    with gateway(proxy.url(valkey.url)) as started:
        job_ids = submit(started.url, 12)
        watchers = [Watcher(started.port, job_id) for job_id in job_ids for _ in range(5)]
        over = False
        appended = Counter[str]()

        async def work() -> None:
            while not over:
                some = random.sample(job_ids, 6)
                await asyncio.to_thread(append_event, raw, some, "log")
                appended.update(some)
                await asyncio.sleep(random.uniform(0, 0.02))

        async def cut_readers() -> None:
            while not over:
                for watcher in random.sample(watchers, 6):
                    watcher.cut()
                await asyncio.sleep(random.uniform(0, 0.1))

        async def cut_the_gateway() -> None:
            while not over:
                await asyncio.sleep(random.uniform(0.2, 1.0))
                await asyncio.to_thread(proxy.cut)

        async with asyncio.TaskGroup() as group:
            for watcher in watchers:
                group.create_task(watcher.read_to_the_end())
            troubles = [group.create_task(each()) for each in (work, cut_readers, cut_the_gateway)]
            deadline_s = time.monotonic() + CUT_FOR_S
            while (
                time.monotonic() < deadline_s
                or min(appended[job_id] for job_id in job_ids) < ENTRIES
                or sum(watcher.connects for watcher in watchers) <= CONNECTS * len(watchers)
            ):
                await asyncio.sleep(CUT_FOR_S / 2)
                await asyncio.to_thread(started.kill_and_start)
            over = True
            await asyncio.wait(troubles, timeout=60)
            await asyncio.to_thread(append_event, raw, job_ids, "done")

        truth = {job_id: written(raw, job_id) for job_id in job_ids}
        for number, watcher in enumerate(watchers):
            assert [event.id for event in watcher.seen] == truth[job_ids[number // 5]]
