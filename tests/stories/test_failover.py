"""G-13: the systems over a failover: programs that know only the sentinels."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from jobwire.local import free_port
from jobwire.objects import BucketConfig
from tests.cli.runner import clean_env, jobwire
from tests.support import Fresh, Program, clause, wait_until_sync
from tests.support.program import ROOT
from tests.support.s3 import make_bucket
from tests.support.sentinel import Replicated, Trio
from tests.support.servers import plain_client
from tests.systems.images.site import plain_photo, put

pytestmark = [clause("G-13"), pytest.mark.xdist_group("sentinel")]
Json = dict[str, Any]


class Site:
    """A gateway with jobs, queues and images, and a worker, all on the servers of the sentinels."""

    def __init__(self, trio: Trio, bucket: BucketConfig, folder: Path) -> None:
        self.port = free_port()
        self.env = {
            **{name: "" for name in os.environ if name not in clean_env()},
            "JOBWIRE_VALKEY_URL": trio.url,
            "JOBWIRE_QUEUES_URL": trio.url,
            "JOBWIRE_DATA_DIR": str(folder),
            "JOBWIRE_OBJECTS_ENDPOINT": bucket.endpoint,
            "JOBWIRE_OBJECTS_BUCKET": bucket.bucket,
            "JOBWIRE_OBJECTS_ACCESS_KEY": bucket.access_key,
            "JOBWIRE_OBJECTS_SECRET_KEY": bucket.secret_key,
            "JOBWIRE_IMAGES_DETECT": "none",
            "JOBWIRE_IMAGES_WORKERS": "1",
            "JOBWIRE_PREDICTIONS_TENANT": "acme",
            "JOBWIRE_WORKER_LEASE": "3s",
        }
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}", timeout=60, trust_env=False
        )

    @contextlib.contextmanager
    def running(self) -> Generator[None]:
        gateway = ("gateway", "--port", str(self.port))
        worker = ("worker", "tests.contracts.all_systems_app:app")
        with self._program(*gateway), self._program(*worker) as started, self.client:
            started.wait_for_line("worker with", timeout_s=60)
            wait_until_sync(self._is_ready, "the gateway")
            yield

    def _program(self, *words: str) -> Program:
        command = [sys.executable, "-m", "jobwire", *words]
        return Program(command=command, cwd=ROOT, env=self.env)

    def _is_ready(self) -> bool:
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def use_all(self) -> None:
        """One job of each system, from its submission to its end. Calls in flight when the primary
        fails are repeated, as a client does."""
        job = self._again("POST", "/v1/jobs", {"task": "echo", "payload": {"x": 1}})
        queued = self._again("POST", "/v1/queues/mail/jobs", {"name": "echo", "data": {"x": 1}})
        image = self._again("POST", "/v1/images", {"content_type": "image/jpeg"})
        wait_until_sync(lambda: put(self.client, image, plain_photo()).status_code in (202, 409))
        self._until(f"/v1/jobs/{job['job_id']}", lambda seen: seen["status"] == "done")
        (row,) = queued["jobs"]
        self._until(f"/v1/queues/mail/jobs/{row['id']}", lambda seen: seen["state"] == "completed")
        self._until(f"/v1/images/{image['image_id']}", lambda seen: seen["status"] == "ready")

    def _again(self, method: str, path: str, body: Json) -> Json:
        def accepted() -> Json | None:
            answer = self.client.request(method, path, json=body)
            assert answer.status_code in (201, 202, 503), answer.text
            return answer.json() if answer.status_code < 300 else None

        answer = wait_until_sync(accepted, path, timeout_s=60)
        assert answer is not None
        return answer

    def _until(self, path: str, condition: Callable[[Json], bool]) -> None:
        def met() -> bool:
            answer = self.client.get(path)
            return answer.status_code == 200 and condition(answer.json())

        wait_until_sync(met, path, timeout_s=60)


@pytest.fixture
def site(trio: Trio, seaweedfs: BucketConfig, fresh: Fresh, tmp_path: Path) -> Iterator[Site]:
    bucket = replace(seaweedfs, bucket=fresh("failover"))
    make_bucket(bucket)
    opened = Site(trio, bucket, tmp_path)
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
        assert answer.status_code == 200, "it serves"
        return "1 of 2 replicas are connected" in answer.text

    wait_until_sync(degraded, "the missing replica to be noticed")
