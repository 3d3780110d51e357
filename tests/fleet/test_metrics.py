"""The values of /metrics after known jobs (O-5)."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from pathlib import Path
from typing import cast

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from bench.slow_disk import slow_disk
from jobwire.local import free_port
from jobwire.systems.jobs.contract import StreamsKeys
from tests.fleet.runner import APP, Fleet
from tests.support import clause, wait_until_sync
from tests.support.servers import plain_client

KEYS = StreamsKeys()


class Scrape:
    """One reading of a /metrics."""

    def __init__(self, url: str) -> None:
        answer = httpx.get(
            f"{url}/metrics", trust_env=False, verify=False, timeout=30
        ).raise_for_status()
        self.families: dict[str, Metric] = {
            family.name: family for family in text_string_to_metric_families(answer.text)
        }

    def value(self, name: str, **labels: str) -> float:
        """One sample's value; 0 where there is none."""
        found = self._values(name, labels)
        assert len(found) <= 1, f"{name} {labels} is not one sample"
        return found[0] if found else 0.0

    def total(self, name: str, **labels: str) -> float:
        """The sum over all queues."""
        return sum(self._values(name, labels))

    def _values(self, name: str, labels: dict[str, str]) -> list[float]:
        return [
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]


def scrape(fleet: Fleet) -> Scrape:
    """A reading of the gateway's metrics with all values: on a busy machine a system may answer too
    late and is then omitted."""
    scrapes: list[Scrape] = []

    def whole() -> bool:
        scrapes.append(Scrape(fleet.url))
        return scrapes[-1].value("jobwire_readings_ok", system="jobs") == 1

    wait_until_sync(whole, "all numbers")
    return scrapes[-1]


@clause("O-5")
def test_o5_metrics_match_the_jobs_that_ran(own_fleet: Fleet, tmp_path: Path) -> None:
    own_fleet.start_gateway()
    port = free_port()
    with own_fleet.client() as jobs:
        # No worker runs yet.
        waiting = [jobs.submit("chat", {"prompt": "x"}).job_id for _ in range(3)]
        delayed = jobs.submit("chat", {"prompt": "x"}, delay_s=3600)
        before = scrape(own_fleet)
        assert before.total("jobwire_jobs", state="waiting") == 3
        assert before.total("jobwire_jobs", state="delayed") == 1
        assert before.value("jobwire_jobs_unfinished") == 4
        wait_until_sync(lambda: scrape(own_fleet).total("jobwire_jobs_oldest_waiting_seconds") > 0)
        for job_id in (*waiting, delayed.job_id):
            jobs.cancel(job_id)

        own_fleet.start_worker(JOBWIRE_WORKER_METRICS_PORT=str(port))
        for _ in range(5):
            jobs.run("count", {"to": 1})
        jobs.run("shaky")
        failed = jobs.submit("fail")
        jobs.wait(failed.job_id)
        running = jobs.submit("forever")
        events = jobs.events(running.job_id)
        assert next(event for event in events if event.type == "progress")

        gateway, worker = scrape(own_fleet), Scrape(f"http://127.0.0.1:{port}")
        assert gateway.total("jobwire_jobs", state="running") == 1
        assert gateway.total("jobwire_jobs", state="waiting") == 0
        assert gateway.value("jobwire_streams_open") == 1, "one watcher"
        assert gateway.value("jobwire_jobs_watched") >= 1
        assert gateway.value("jobwire_workers") == 1
        assert gateway.value("jobwire_workers_slots") == 10
        made = gateway.value("jobwire_http_requests_total", route="POST /v1/jobs", status="202")
        ended = gateway.value("jobwire_http_requests_total", route="POST /v1/jobs", status="200")
        assert made + ended == 12, "those that waited for the end were answered with 200"

        assert _jobs(worker, "count", "done") == 5
        assert _jobs(worker, "shaky", "retried") == 2
        assert _jobs(worker, "shaky", "done") == 1
        assert _jobs(worker, "fail", "failed") == 1
        assert _jobs(worker, "forever", "done") == 0
        assert worker.value("jobwire_worker_held") == 1
        assert worker.value("jobwire_worker_slots") == 10
        assert _times(worker, "jobwire_worker_job_seconds", "count") == (5, 5)
        assert _times(worker, "jobwire_worker_job_seconds", "shaky") == (3, 3)
        assert _times(worker, "jobwire_worker_wait_seconds", "shaky") == (1, 1)
        jobs.cancel(running.job_id)
        assert jobs.wait(running.job_id).status == "canceled"
        wait_until_sync(
            lambda: _jobs(Scrape(f"http://127.0.0.1:{port}"), "forever", "canceled") == 1
        )
    assert _last_minute(own_fleet) == {
        "submitted": 12,
        "done": 6,
        "failed": 1,
        "canceled": 5,
        "retried": 2,
        "released": 0,
        "reclaimed": 0,
        "reconciled": 0,
    }
    after = scrape(own_fleet)
    for name in ("latency", "duration"):
        shares = [
            after.value(f"jobwire_jobs_{name}_seconds", quantile=share)
            for share in ("0.5", "0.9", "0.99")
        ]
        assert shares == sorted(shares)
        assert name == "latency" or shares[-1] > 0, "one ran until it was canceled"


def _last_minute(fleet: Fleet) -> dict[str, float]:
    """The gateway's counts of the last full minute, if it contains all jobs of the test."""
    with plain_client(fleet.valkey, "past") as plain:
        while True:
            minute = plain.time()[0] // 60
            counted = Counter[str]()
            for key in cast("list[str]", plain.keys("jobs:stats:*")):
                for name, count in cast("dict[str, str]", plain.hgetall(key)).items():
                    counted[name] += int(count)
                plain.delete(key)
            scrape(fleet)  # a gateway reads an ended minute once, unless their number changes
            past = KEYS.stats(minute - 1)
            plain.call("HSET", past, *itertools.chain(*counted.items()))
            plain.expire(past, 600)
            family = scrape(fleet).families["jobwire_jobs_last_minute"]
            if plain.time()[0] // 60 == minute:
                return {sample.labels["what"]: sample.value for sample in family.samples}


def _jobs(worker: Scrape, task: str, outcome: str) -> float:
    return worker.value("jobwire_worker_jobs_total", task=task, outcome=outcome)


def _times(worker: Scrape, name: str, task: str) -> tuple[float, float]:
    """The number of observations, by the count and by the last bucket."""
    counted = worker.value(f"{name}_count", task=task)
    return counted, worker.value(f"{name}_bucket", task=task, le="+Inf")


@clause("O-5")
def test_o5_a_lost_lease_is_counted(own_fleet: Fleet) -> None:
    """A worker is frozen, and another that was told that it is dead reclaims its job; after it
    continues, it counts the loss."""
    port = free_port()
    # Renewed often, and yet not lost by a process that stands still for some seconds.
    lease = {"JOBWIRE_WORKER_LEASE": "12s"}
    own_fleet.start_gateway(**lease)
    frozen = own_fleet.start_worker(**lease, JOBWIRE_WORKER_METRICS_PORT=str(port))
    with own_fleet.client() as jobs:
        job = jobs.submit("forever")
        events = jobs.events(job.job_id)
        assert next(event for event in events if event.type == "progress")
        frozen.freeze()
        own_fleet.start("worker", APP, "--replaces", str(frozen.pid), env=lease)
        assert next(event for event in events if event.type == "running"), "reclaimed"
        frozen.thaw()
        wait_until_sync(
            lambda: _jobs(Scrape(f"http://127.0.0.1:{port}"), "forever", "lost") == 1,
            "the lost lease to be counted",
        )
        jobs.cancel(job.job_id)
        assert jobs.wait(job.job_id).status == "canceled"
    assert _last_minute(own_fleet)["reclaimed"] == 1


@clause("O-5")
@pytest.mark.skipif(sys.platform != "linux", reason="stops a thread of the server by ptrace")
def test_o5_a_running_fsync_is_shown(own_fleet: Fleet) -> None:
    """Meanwhile the server holds answered writes in memory."""
    own_fleet.start_gateway()
    wait_until_sync(
        lambda: Scrape(own_fleet.url).value("jobwire_valkey_fsync_running") == 0, "no fsync"
    )
    assert "jobwire_valkey_fsync_running" in Scrape(own_fleet.url).families
    with plain_client(own_fleet.valkey) as plain, slow_disk(own_fleet.valkey.pid):
        plain.set("written", "1")
        wait_until_sync(
            lambda: Scrape(own_fleet.url).value("jobwire_valkey_fsync_running") == 1, "an fsync"
        )
        plain.set("held", "x" * 1000)
        held = Scrape(own_fleet.url).value("jobwire_valkey_unwritten_bytes")
        assert held > 1000
        plain.delete("written", "held")


def test_an_unavailable_server_is_shown_and_hides_no_other_metric(own_fleet: Fleet) -> None:
    own_fleet.start_gateway()
    own_fleet.valkey.stop()
    wait_until_sync(lambda: Scrape(own_fleet.url).value("jobwire_readings_ok", system="jobs") == 0)
    scrape = Scrape(own_fleet.url)
    assert "jobwire_jobs" not in scrape.families, "an outdated value is not reported"
    assert scrape.value("jobwire_info", version="0.1.0") == 1
    own_fleet.valkey.start()
    wait_until_sync(lambda: Scrape(own_fleet.url).value("jobwire_readings_ok", system="jobs") == 1)


def test_a_metrics_port_in_use_gets_an_error(own_fleet: Fleet) -> None:
    taken = own_fleet.valkey.port
    worker = own_fleet.start(
        "worker", "tests.fleet.app:app", env={"JOBWIRE_WORKER_METRICS_PORT": str(taken)}
    )
    assert worker.wait() == 7
    (line,) = [line for line in worker.lines if line.startswith("jobwire:")]
    assert f"worker.metrics_port: port {taken} on 127.0.0.1 is in use by " in line


@pytest.mark.parametrize("port", ["-1", "70000", "http"])
def test_an_invalid_metrics_port_gets_an_error(own_fleet: Fleet, port: str) -> None:
    worker = own_fleet.start(
        "worker", "tests.fleet.app:app", env={"JOBWIRE_WORKER_METRICS_PORT": port}
    )
    assert worker.wait() == 2
    assert "worker.metrics_port" in worker.output
