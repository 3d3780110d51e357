"""G-22: what an accepted job survives, and what becomes of it if the server changes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from jobwire.job.ids import shard_of
from jobwire.local import LocalValkey
from jobwire.local.valkey import PASSWORD_FILE
from jobwire.systems.jobs.settings import StreamsSettings
from jobwire.systems.jobs.shard_settings import ShardList
from tests.cli.runner import Up, jobwire
from tests.support import Proxy, clause, wait_until_sync
from tests.support.jobs_http import ServedJobs, problem
from tests.support.servers import plain_client
from tests.support.shards import ShardedGateway, sharded

pytestmark = [clause("G-22"), pytest.mark.xdist_group("durability")]
DISK = StreamsSettings(durability="disk")
JOB = {"task": "chat", "payload": {"prompt": "hi"}}


@pytest.fixture(scope="module")
def synced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalValkey]:
    """A server that syncs each write before it answers."""
    folder = tmp_path_factory.mktemp("synced")
    with LocalValkey(folder, admin=True, extra=["appendfsync always"]) as server:
        yield server


@pytest.fixture
def disk(synced: LocalValkey) -> Iterator[ServedJobs]:
    with ServedJobs(synced.url, DISK) as served:
        yield served
    with plain_client(synced) as plain:
        plain.config_set("appendfsync", "always")
        plain.config_set("no-appendfsync-on-rewrite", "no")
        plain.flushall()


def _levels(served: ServedJobs) -> list[object]:
    """The levels of all answers to submissions: new, repeated, awaited, in a batch."""
    keyed = {"idempotency-key": "order-1"}
    headers: list[dict[str, str]] = [{}, keyed, keyed, {"prefer": "wait=1"}]
    answers = [served.client.post("/v1/jobs", json=JOB, headers=each) for each in headers]
    assert [answer.status_code for answer in answers] == [202, 202, 200, 202]
    results = served.client.post("/v1/jobs/batch", json={"jobs": [JOB]}).json()["results"]
    return [each["durability"] for each in (*(answer.json() for answer in answers), *results)]


def _job_count(server: LocalValkey) -> int:
    with plain_client(server) as plain:
        return int(str(plain.call("ZCARD", "jobs:index")))


def test_g22_an_answer_says_what_the_job_survives(served: ServedJobs, disk: ServedJobs) -> None:
    assert set(_levels(served)) == {"memory"}
    assert set(_levels(disk)) == {"disk"}
    assert "durability" not in disk.job(disk.submit()["job_id"]), "GET does not know it"


@pytest.mark.parametrize(
    ("name", "value"), [("appendfsync", "everysec"), ("no-appendfsync-on-rewrite", "yes")]
)
def test_g22_a_server_that_does_not_sync_gets_no_jobs(
    synced: LocalValkey, disk: ServedJobs, name: str, value: str
) -> None:
    disk.submit()
    stored = _job_count(synced)
    with plain_client(synced) as plain:
        plain.config_set(name, value)

        def readiness() -> httpx.Response:
            return disk.client.get("/readyz")

        wait_until_sync(lambda: "new jobs are refused" in readiness().text, "it to be noticed")
        assert readiness().status_code == 200, "reads are served"
        refused = disk.client.post("/v1/jobs", json=JOB)
        assert f"{name} of the server is {value}" in str(
            problem(refused, 503, "not_durable")["detail"]
        )
        assert refused.headers["retry-after"]
        assert "job_id" not in refused.json()
        problem(disk.client.post("/v1/jobs/batch", json={"jobs": [JOB]}), 503, "not_durable")
        assert _job_count(synced) == stored, "nothing was written"
        plain.config_set(name, "always" if name == "appendfsync" else "no")
    assert disk.submit()["durability"] == "disk", "without a new socket"


def test_g22_each_new_socket_is_checked(synced: LocalValkey, tmp_path: Path) -> None:
    """The next primary is another server, with settings of its own."""
    (tmp_path / PASSWORD_FILE).write_text(synced.password)
    (tmp_path / PASSWORD_FILE).chmod(0o600)
    with (
        LocalValkey(tmp_path, admin=True) as successor,
        Proxy(synced.port) as proxy,
        ServedJobs(proxy.url(synced.url), DISK) as served,
        ThreadPoolExecutor(1) as threads,
    ):
        served.submit()
        proxy.refuse()
        proxy.cut()
        # It waits for a connection: the check before it was made with the former server.
        waiting = threads.submit(served.client.post, "/v1/jobs", json=JOB)
        wait_until_sync(lambda: served.under_way, "the request")
        proxy.upstream = successor.port
        proxy.accept()
        document = problem(waiting.result(), 503, "not_durable")
        assert _job_count(successor) == 1
        found = served.job(document["job_id"])
        assert found["status"] == "queued", "the caller knows which job may be lost"
        problem(served.client.post("/v1/jobs", json=JOB), 503, "not_durable")
        assert _job_count(successor) == 1, "the next one was refused before it was written"


def test_g22_up_starts_a_server_of_the_level(tmp_path: Path) -> None:
    env = {"JOBWIRE_JOBS_DURABILITY": "disk"}
    with Up(tmp_path, "--only", "jobs", env=env).wait_until_up() as up:
        answer = httpx.post(f"{up.url}/v1/jobs", json=JOB, timeout=30, trust_env=False)
        assert (answer.status_code, answer.json()["durability"]) == (202, "disk")


def test_g22_doctor_knows_the_level(synced: LocalValkey, tmp_path: Path) -> None:
    env = {
        "JOBWIRE_DATA_DIR": str(tmp_path),
        "JOBWIRE_JOBS_DURABILITY": "disk",
        "JOBWIRE_VALKEY_URL": synced.url,
    }
    assert "the server syncs each write" in jobwire("doctor", cwd=tmp_path, env=env).stdout
    with plain_client(synced) as plain:
        plain.config_set("appendfsync", "everysec")
        found = jobwire("doctor", cwd=tmp_path, env=env).stdout
        plain.config_set("appendfsync", "always")
    assert "appendfsync of the server is everysec, not always" in found
    wrong = jobwire("config", cwd=tmp_path, env={**env, "JOBWIRE_JOBS_DURABILITY": "replica"})
    assert wrong.returncode == 2
    assert "durability" in wrong.stderr


@clause("G-4")
@pytest.mark.usefixtures("product_limits")
def test_g22_a_silent_shard_does_not_keep_the_others_from_the_level(
    synced: LocalValkey, tmp_path: Path
) -> None:
    second = LocalValkey(tmp_path / "second", admin=True, extra=["appendfsync always"])
    with second, Proxy(second.port) as proxy, plain_client(second) as plain:
        urls = ShardList(0, {0: synced.url, 1: proxy.url(second.url)})
        settings = sharded(synced.url, urls, shard_by="job", durability="disk")
        patient = replace(settings.valkey, failover_timeout=timedelta(minutes=2))
        with ShardedGateway(replace(settings, valkey=patient)) as started:
            assert {shard_of(str(started.submit()["job_id"])) for _ in range(20)} == {0, 1}
            # It is asked for its settings, and does not answer.
            proxy.silence()
            started.client.get("/readyz")
            proxy.refuse()
            wait_until_sync(
                lambda: started.client.get("/v1/jobs").json().get("incomplete") == [1],
                "the shard to be named",
            )
            made = [started.submit() for _ in range(5)]
            assert {each["durability"] for each in made} == {"disk"}
            plain.config_set("appendfsync", "everysec")
            proxy.heal()
            wait_until_sync(
                lambda: "incomplete" not in started.client.get("/v1/jobs").json(), "its answer"
            )
            refused = started.client.post("/v1/jobs", json={"task": "echo", "payload": {}})
            assert (refused.status_code, refused.json()["code"]) == (503, "not_durable")


@clause("G-4")
def test_g22_a_shard_that_came_back_and_died_does_not_keep_the_others_from_the_level(
    synced: LocalValkey, tmp_path: Path
) -> None:
    """Regression: each submission to another shard waited for its settings, and was refused."""
    second = LocalValkey(tmp_path / "second", admin=True, extra=["appendfsync always"])
    with second, Proxy(second.port) as proxy:
        urls = ShardList(0, {0: synced.url, 1: proxy.url(second.url)})
        settings = sharded(synced.url, urls, shard_by="job", durability="disk")
        with ShardedGateway(settings) as started:

            def incomplete() -> object:
                return started.client.get("/v1/jobs").json().get("incomplete")

            assert {shard_of(str(started.submit()["job_id"])) for _ in range(20)} == {0, 1}
            for _ in range(2):
                proxy.refuse()
                proxy.cut()
                wait_until_sync(lambda: incomplete() == [1], "the shard to be named")
                made = [started.submit() for _ in range(5)]
                assert {each["durability"] for each in made} == {"disk"}
                many = started.client.post("/v1/jobs/batch", json={"jobs": [JOB] * 5}).json()
                assert {each["status"] for each in many["results"]} == {202}
                # Nothing is submitted until it is gone again.
                proxy.heal()
                wait_until_sync(lambda: incomplete() is None, "its answer")
