"""J-9, J-12: a server without memory for more is drained by workers, and /readyz reports it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from jobwire.job.errors import BackendUnavailable
from jobwire.local import LocalValkey
from tests.stories.gateways import GatewayProgram, gateway
from tests.stories.site import Site
from tests.support import clause, wait_until
from tests.support.servers import plain_client


@pytest_asyncio.fixture
async def site(own_valkey: LocalValkey, tmp_path: Path) -> AsyncIterator[Site]:
    async with Site(own_valkey.url, tmp_path / "site") as opened:
        yield opened


def ready(of: GatewayProgram) -> httpx.Response:
    return httpx.get(f"{of.url}/readyz", timeout=30, trust_env=False)


@clause("J-9", "J-30", "R-1")
async def test_j09_a_worker_starts_on_a_full_server_and_drains_it(
    own_valkey: LocalValkey, site: Site
) -> None:
    """Regression: creating the group was refused with OOM, so no worker could start and free
    memory."""
    jobs = [await site.submit("quick") for _ in range(20)]
    with plain_client(own_valkey) as plain:
        plain.config_set("maxmemory", "1")
        with pytest.raises(BackendUnavailable):
            await site.submit("quick")
        await site.ready()
        await site.until_all(jobs, "done")
        plain.config_set("maxmemory", "0")
    for job in jobs:
        await site.check_ended_once(job)
        assert site.begun(job) == 1
    await site.check_at_rest()


@clause("J-9", "J-30", "R-1")
async def test_j09_a_server_that_is_emptied_and_full_gets_its_group_back(
    own_valkey: LocalValkey, site: Site
) -> None:
    await site.ready()
    with plain_client(own_valkey) as plain:
        plain.config_set("maxmemory", "1")
        plain.flushall()

        async def has_group() -> bool:
            return await site.connection.group_exists(site.keys.queue, "workers")

        await wait_until(has_group, "the worker to create the group again")
        plain.config_set("maxmemory", "0")
    await site.until(await site.submit("quick"), "done")


@clause("J-12")
async def test_j12_readyz_reports_a_full_server(own_valkey: LocalValkey) -> None:
    """Regression: /readyz answered `ready` while every submission was refused."""
    with gateway(own_valkey.url) as served, plain_client(own_valkey) as plain:
        assert ready(served).json()["status"] == "ready"
        plain.config_set("maxmemory", "1")

        def readiness() -> dict[str, str] | None:
            parts = {part["name"]: part for part in ready(served).json()["parts"]}
            return parts["valkey"] if parts["valkey"]["state"] != "ready" else None

        part = await wait_until(readiness, "/readyz to report it")
        assert part is not None
        assert part["state"] == "degraded"
        assert "full" in part["note"]
        assert "maxmemory" in part["what_to_do"]
        assert ready(served).status_code == 200, "reads, cancels and running jobs are served"
        assert served.post('{"task":"chat","payload":{"prompt":"x"}}').status_code == 503
        plain.config_set("maxmemory", "0")
        await wait_until(lambda: readiness() is None, "/readyz to be ready again")


@clause("J-12")
async def test_j12_readyz_reports_a_read_only_server(own_valkey: LocalValkey) -> None:
    with gateway(own_valkey.url) as served, plain_client(own_valkey) as plain:
        plain.config_set("min-replicas-to-write", "1")

        def readiness() -> str:
            answer = ready(served).json()
            parts = {part["name"]: part for part in answer["parts"]}
            return parts["valkey"].get("note", "")

        await wait_until(lambda: "min-replicas-to-write" in readiness(), "/readyz to report it")
        plain.config_set("min-replicas-to-write", "0")
        await wait_until(lambda: not readiness(), "/readyz to be ready again")
