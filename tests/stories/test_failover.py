"""G-13: the systems over a failover: programs that know only the sentinels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jobwire.objects import BucketConfig
from tests.cli.runner import jobwire
from tests.stories.all_systems import Site
from tests.support import Fresh, clause, wait_until_sync
from tests.support.s3 import make_bucket
from tests.support.sentinel import Replicated, Trio
from tests.support.servers import plain_client

pytestmark = [clause("G-13"), pytest.mark.xdist_group("sentinel")]


@pytest.fixture
def site(trio: Trio, seaweedfs: BucketConfig, fresh: Fresh, tmp_path: Path) -> Iterator[Site]:
    bucket = replace(seaweedfs, bucket=fresh("failover"))
    make_bucket(bucket)
    opened = Site(trio.url, bucket, tmp_path)
    with opened.running():
        yield opened


@pytest.mark.parametrize("fault", [Replicated.kill, Replicated.pause])
def test_g13_every_system_goes_on_after_a_failover(
    site: Site, trio: Trio, fault: Callable[[Replicated], None]
) -> None:
    site.use_all()
    former = trio.primary
    fault(former)
    site.use_all()
    assert trio.primary is not former


def test_g13_the_command_line_finds_the_primary(trio: Trio, tmp_path: Path) -> None:
    env = {"JOBWIRE_VALKEY_URL": trio.url, "JOBWIRE_DATA_DIR": str(tmp_path)}
    asked = jobwire("valkey", "CONFIG", "GET", "port", cwd=tmp_path, env=env)
    assert str(trio.primary.port) in asked.stdout, asked.stderr
    examined = jobwire("doctor", cwd=tmp_path, env=env)
    assert f"at {trio.primary.address}" in examined.stdout, examined.stdout


@clause("G-21")
def test_g21_settings_that_lose_writes_are_named(trio: Trio, tmp_path: Path) -> None:
    env = {"JOBWIRE_VALKEY_URL": trio.url, "JOBWIRE_DATA_DIR": str(tmp_path)}

    def replication() -> list[str]:
        lines = jobwire("doctor", cwd=tmp_path, env=env).stdout.splitlines()
        return [line for line in lines if "valkey replication" in line]

    (found,) = replication()
    assert "fit for a failover" in found
    with plain_client(trio.primary) as plain:
        plain.config_set("min-replicas-max-lag", 10)
        (found,) = replication()
        assert "min-replicas-max-lag is 10" in found
        plain.config_set("min-replicas-to-write", 0)
        (found,) = replication()
        assert "min-replicas-to-write is 0" in found
        plain.config_set("min-replicas-to-write", 1)
        plain.config_set("min-replicas-max-lag", 2)


@clause("G-21")
def test_g21_a_missing_replica_degrades_readiness(site: Site, trio: Trio) -> None:
    assert site.client.get("/readyz").json()["status"] == "ready"
    trio.replicas[0].kill()

    def degraded() -> bool:
        answer = site.client.get("/readyz")
        return answer.status_code == 200 and "1 of 2 replicas are connected" in answer.text

    wait_until_sync(degraded, "the missing replica to be noticed")
