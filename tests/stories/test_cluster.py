"""G-7: the systems on a Cluster: programs that know some of its nodes and tagged prefixes."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from jobwire.objects import BucketConfig
from jobwire.systems.jobs.shard_overview import read_shards
from jobwire.systems.jobs.shard_settings import ShardList
from jobwire.valkey.cluster import hash_tag, slot_of
from tests.cli.runner import jobwire
from tests.stories.all_systems import Site
from tests.support import Fresh, clause, wait_until_sync
from tests.support.cluster import Cluster
from tests.support.s3 import make_bucket
from tests.support.sentinel import PATIENT_MS
from tests.support.servers import plain_client
from tests.support.shards import sharded

pytestmark = [clause("G-7"), pytest.mark.xdist_group("cluster")]

TAGS: Final = ("jobs", "bull", "images")
PREFIXES: Final = {
    "JOBWIRE_JOBS_KEY_PREFIX": "{jobs}:",
    "JOBWIRE_QUEUES_PREFIX": "{bull}",
    "JOBWIRE_IMAGES_KEY_PREFIX": "{images}:",
}


@pytest.fixture
def site(cluster: Cluster, seaweedfs: BucketConfig, fresh: Fresh, tmp_path: Path) -> Iterator[Site]:
    bucket = replace(seaweedfs, bucket=fresh("cluster"))
    make_bucket(bucket)
    for tag, primary in zip(TAGS, cluster.primaries, strict=True):
        cluster.move_slot(tag, primary)
    env = {**PREFIXES, "JOBWIRE_QUEUES_URL": "", "JOBWIRE_WORKER_LEASE": "6s"}
    opened = Site(cluster.url, bucket, tmp_path, env)
    with opened.running():
        yield opened


@clause("G-10", "G-11", "G-12", "G-14", "G-15")
def test_g07_every_system_runs_while_slots_move(site: Site, cluster: Cluster) -> None:
    """Three systems on three nodes; each slot is moved, and every replica is promoted."""
    site.use_all()
    for tag in TAGS:
        cluster.move_slot(tag)
    site.use_all()
    for primary in cluster.primaries:
        cluster.fail_over(primary)
    site.use_all()


@clause("G-11")
def test_g11_every_system_goes_on_after_a_primary_was_killed(site: Site, cluster: Cluster) -> None:
    site.use_all()
    killed = cluster.primary_of("jobs")
    cluster.kill(killed)
    site.use_all()
    assert cluster.primary_of("jobs") is not killed


def test_g01_shards_are_slots_of_the_cluster(
    cluster: Cluster, seaweedfs: BucketConfig, fresh: Fresh, tmp_path: Path
) -> None:
    """Jobs of every shard end, also after the slot of one has moved."""
    bucket = replace(seaweedfs, bucket=fresh("cluster"))
    make_bucket(bucket)
    env = {
        **PREFIXES,
        "JOBWIRE_JOBS_KEY_PREFIX": "",
        "JOBWIRE_JOBS_SHARDS": "4",
        "JOBWIRE_JOBS_SHARD_BY": "job",
        "JOBWIRE_QUEUES_URL": "",
    }
    site = Site(cluster.url, bucket, tmp_path, env)
    tag = hash_tag(ShardList.from_setting("4").prefix(1, ""))
    with site.running():
        for _ in range(2):
            jobs = [site.submit("echo") for _ in range(12)]
            for job in jobs:
                site.until(f"/v1/jobs/{job}", lambda seen: seen["status"] == "done")
            cluster.move_slot(tag)


def hold(site: Site) -> str:
    """Submit a job that runs until it is canceled."""
    return site.submit("hold")


@clause("G-5")
def test_g05_no_shard_is_to_be_moved_to_a_node_that_is_down(cluster: Cluster) -> None:
    """Regression: a primary that was killed is listed as one without slots, and was a target."""
    settings = sharded(cluster.url, 16)
    killed = cluster.primaries[0]
    cluster.kill(killed)
    found = asyncio.run(read_shards(settings))
    assert len(found.rows) == 16
    assert killed.address not in {move.target for move in found.moves}


@clause("G-14")
def test_g14_a_cancel_reaches_the_worker_after_its_slot_has_moved(
    site: Site, cluster: Cluster
) -> None:
    """By SPUBLISH, at the node that has the slot; leases are renewed there meanwhile."""
    for move in (lambda: None, lambda: cluster.move_slot("jobs")):
        job = hold(site)
        site.until(f"/v1/jobs/{job}", lambda seen: seen["status"] == "running")
        move()
        assert site.client.delete(f"/v1/jobs/{job}").status_code == 202
        site.until(f"/v1/jobs/{job}", lambda seen: seen["status"] == "canceled")


@clause("G-15")
def test_g15_a_watcher_sees_the_end_of_a_job_whose_slot_moved(site: Site, cluster: Cluster) -> None:
    job = hold(site)
    with site.client.stream("GET", f"/v1/jobs/{job}/events") as events:
        lines = events.iter_lines()
        assert any("event: running" in line for line in lines)
        cluster.move_slot("jobs")
        site.client.delete(f"/v1/jobs/{job}")
        assert any("event: canceled" in line for line in lines)


@clause("G-16")
def test_g16_a_small_tracking_table_is_reported_and_refuses_watchers(
    site: Site, cluster: Cluster
) -> None:
    job = hold(site)
    events = f"/v1/jobs/{job}/events"
    with plain_client(cluster.primary_of("jobs")) as plain, contextlib.ExitStack() as stack:
        stack.callback(plain.call, "CONFIG", "SET", "tracking-table-max-keys", 1_000_000)
        stack.enter_context(site.client.stream("GET", events))
        plain.config_set("tracking-table-max-keys", 1)

        def degraded() -> bool:
            answer = site.client.get("/readyz")
            return answer.status_code == 200 and "of the server's tracking table" in answer.text

        wait_until_sync(degraded, "the small table to be noticed")
        refused = site.client.get(events)
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
        assert refused.headers["retry-after"]
    site.client.delete(f"/v1/jobs/{job}")


@clause("G-21")
def test_g21_what_is_wrong_with_a_cluster_is_named(cluster: Cluster, tmp_path: Path) -> None:
    env = {**PREFIXES, "JOBWIRE_VALKEY_URL": cluster.url, "JOBWIRE_DATA_DIR": str(tmp_path)}

    def replication() -> str:
        lines = jobwire("doctor", cwd=tmp_path, env=env).stdout.splitlines()
        return "\n".join(line for line in lines if "valkey replication" in line)

    assert replication().count("fit for a failover") == 1
    primary = cluster.primary_of("jobs")
    with plain_client(primary) as plain, cluster.half_moved("jobs"):
        plain.config_set("cluster-require-full-coverage", "yes")
        plain.config_set("cluster-node-timeout", 60_000)
        try:
            found = replication()
        finally:
            plain.config_set("cluster-require-full-coverage", "no")
            cluster.set_node_timeout(PATIENT_MS)
    assert f"slots that are moved key by key: {slot_of('jobs')}" in found
    assert f"{primary.address}: cluster-require-full-coverage is yes" in found
    assert f"{primary.address}: cluster-node-timeout is 60 s" in found


@clause("G-21")
def test_g21_doctor_checks_all_shards_of_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    env = {
        "JOBWIRE_VALKEY_URL": cluster.url,
        "JOBWIRE_DATA_DIR": str(tmp_path),
        "JOBWIRE_SYSTEMS": "jobs",
        "JOBWIRE_JOBS_SHARDS": "4",
        "JOBWIRE_JOBS_DURABILITY": "disk",
    }
    *_, last = (ShardList(4).prefix(number, "") for number in range(4))
    primary = cluster.primary_of(hash_tag(last))
    with plain_client(primary) as plain, cluster.half_moved(hash_tag(last)):
        for node in cluster.nodes:
            with plain_client(node) as each:
                each.config_set("appendfsync", "everysec" if node is primary else "always")
        plain.config_set("maxmemory", "3mb")
        try:
            found = jobwire("doctor", cwd=tmp_path, env=env).stdout
        finally:
            plain.config_set("maxmemory", 0)
            for node in cluster.nodes:
                with plain_client(node) as each:
                    each.config_set("appendfsync", "everysec")
    assert f"slots that are moved key by key: {slot_of(last)}" in found
    assert "shard 3: appendfsync of the server is everysec" in found
    assert re.search(rf"{primary.address}: \d+ of 3 MiB used", found)
    assert "all queues with jobs have a worker" in found


def test_g07_a_prefix_without_a_hash_tag_is_a_settings_error(
    cluster: Cluster, tmp_path: Path
) -> None:
    env = {"JOBWIRE_VALKEY_URL": cluster.url, "JOBWIRE_DATA_DIR": str(tmp_path)}
    refused = jobwire("gateway", "--port", "0", cwd=tmp_path, env=env)
    assert refused.returncode != 0
    assert "jobs.key_prefix: needs a hash tag on a Cluster; set it to '{jobs}:'" in refused.stderr
    assert "queues.prefix: needs a hash tag on a Cluster; set it to '{bull}'" in refused.stderr
    own = {**env, **PREFIXES, "JOBWIRE_QUEUES_URL": cluster.url, "JOBWIRE_QUEUES_PREFIX": "bull"}
    refused = jobwire("gateway", "--port", "0", cwd=tmp_path, env=own)
    assert "queues.prefix: needs a hash tag on a Cluster" in refused.stderr
    examined = jobwire("doctor", cwd=tmp_path, env=env)
    assert "needs a hash tag on a Cluster; set it to '{jobs}:'" in examined.stdout


def test_g07_the_command_line_finds_the_node_of_a_key(
    cluster: Cluster, fresh: Fresh, tmp_path: Path
) -> None:
    env = {"JOBWIRE_VALKEY_URL": cluster.url, "JOBWIRE_DATA_DIR": str(tmp_path)}
    for primary in cluster.primaries:
        tag = fresh("tag")
        cluster.move_slot(tag, primary)
        with plain_client(primary) as plain:
            plain.set(f"{{{tag}}}:key", tag)
        asked = jobwire("valkey", "GET", f"{{{tag}}}:key", cwd=tmp_path, env=env)
        assert asked.stdout.strip() == tag, asked.stderr
    looked = jobwire("look", cluster.url, "--prefix", "{bull}", cwd=tmp_path, env=env)
    assert looked.returncode == 0, looked.stderr
