"""Programs written from the published contract alone, inside one shard with its prefix."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from jobwire.job.ids import shard_of
from jobwire.local import LocalValkey
from jobwire.systems.jobs.shard_settings import TAGS
from tests.interop.streams_site import app, node_gateway, node_worker
from tests.support import clause, wait_until
from tests.support.servers import plain_client
from tests.support.shards import ShardedGateway, sharded, sharded_worker

PREFIX = f"{{{TAGS[2]}}}:"


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalValkey]:
    with LocalValkey(tmp_path_factory.mktemp("foreign"), admin=True) as started:
        yield started


@clause("G-1")
async def test_g01_a_foreign_worker_in_one_shard_serves_its_jobs(server: LocalValkey) -> None:
    settings = sharded(server.url, 4, shard_by="job")
    with node_worker(server, "node", PREFIX), ShardedGateway(settings) as started:
        made = [await asyncio.to_thread(started.submit, payload={"n": n}) for n in range(40)]
        ids = [str(each["job_id"]) for each in made]

        def ended() -> set[str]:
            jobs = [started.client.get(f"/v1/jobs/{job_id}").json() for job_id in ids]
            return {job["job_id"] for job in jobs if job["status"] == "done"}

        expected = {job_id for job_id in ids if shard_of(job_id) == 2}
        assert expected
        await wait_until(lambda: ended() >= expected, "the jobs of its shard to end")
        assert ended() == expected
        job_id = next(iter(expected))
        events = started.client.get(f"/v1/jobs/{job_id}/events").text
        kinds = [line[7:] for line in events.splitlines() if line.startswith("event: ")]
        assert (kinds[:2], kinds[-1]) == (["hello", "queued"], "done")
        names = [each["name"] for each in started.client.get("/v1/workers").json()["workers"]]
        assert names == ["node"]


@clause("G-1")
async def test_g01_a_foreign_gateway_in_one_shard_has_its_jobs_run(server: LocalValkey) -> None:
    settings = sharded(server.url, 4, shard_by="job")
    async with node_gateway(server, PREFIX) as gateway, sharded_worker(app, settings):
        job_id = await gateway.submit({"n": 1})
        kinds = [kind for kind, _ in await gateway.watch(job_id)]
        assert kinds == ["hello", "queued", "running", "progress", "done"]
        assert (await gateway.job(job_id))["result"] == {"by": "python", "echo": {"n": 1}}
        with plain_client(server, "tests-plain") as plain:
            assert plain.hget(f"{PREFIX}job:{job_id}", "status") == "done"
