"""/livez, /readyz, /version and /metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from jobwire.gateway import health
from jobwire.gateway.feature import Feature
from jobwire.gateway.health import Check, HealthStatus
from tests.gateway.events import EventsFeature, Reader
from tests.gateway.features import test_feature
from tests.gateway.server import Serving
from tests.support import clause, wait_until_sync


async def well() -> HealthStatus:
    return HealthStatus("ready")


async def ill() -> HealthStatus:
    return HealthStatus("down", "no answer", "start it")


async def breaks() -> HealthStatus:
    raise ValueError("hush")


async def hangs() -> HealthStatus:
    await asyncio.sleep(3600)
    return HealthStatus("ready")


def checks(**checks_by_name: object) -> Feature:
    return Feature(
        name="checks",
        checks=[Check(name, check) for name, check in checks_by_name.items()],  # pyright: ignore[reportArgumentType] - functions above
    )


@clause("O-7")
def test_livez_and_version(open_gateway: Serving) -> None:
    assert open_gateway.client.get("/livez").json() == {"status": "alive"}
    body = open_gateway.client.get("/version").json()
    assert body == {"name": "jobwire", "version": "0.0.test"}


@clause("O-7")
def test_readyz_names_each_part_with_its_latency() -> None:
    with Serving(None, checks(valkey=well, bucket=well)) as served:
        answer = served.client.get("/readyz")
    assert answer.status_code == 200
    body = answer.json()
    assert body["status"] == "ready"
    assert [part["name"] for part in body["parts"]] == ["gateway", "valkey", "bucket"]
    assert all(part["state"] == "ready" for part in body["parts"])
    assert all(part["latency_ms"] >= 0 for part in body["parts"])


@clause("O-7")
@pytest.mark.parametrize(
    ("check", "note", "fix"),
    [
        (ill, "no answer", "start it"),
        (breaks, "its check failed", "see the log of the gateway"),
        (hangs, "no answer within 0.1 s", "see its log"),
    ],
)
def test_readyz_reports_failures_with_a_fix(
    check: object, note: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_TIMEOUT_S", 0.1)
    with Serving(None, checks(valkey=well, bucket=check)) as served:
        answer = served.client.get("/readyz")
        assert served.client.get("/livez").status_code == 200
    assert answer.status_code == 503
    body = answer.json()
    assert body["code"] == "not_ready"
    assert body["detail"] == "bucket is down"
    parts = {part["name"]: part for part in body["parts"]}
    assert parts["valkey"]["state"] == "ready"
    assert parts["bucket"] | {"latency_ms": 0} == {
        "name": "bucket",
        "state": "down",
        "latency_ms": 0,
        "note": note,
        "what_to_do": fix,
    }
    assert "hush" not in answer.text


@clause("O-7")
def test_readyz_uses_the_supervisors_state_of_parts_that_do_not_answer() -> None:
    known = {
        "valkey": HealthStatus("restarting", "it ended", "wait"),
        "worker": HealthStatus("ready"),
        "gateway": HealthStatus("restarting", "an old tale", "wait"),
    }

    def supervised() -> Mapping[str, HealthStatus]:
        return known

    with Serving(None, checks(valkey=ill), supervised=supervised) as served:
        parts = {part["name"]: part for part in served.client.get("/readyz").json()["parts"]}
    assert parts["valkey"]["state"] == "restarting"
    assert parts["valkey"]["what_to_do"] == "wait"
    assert parts["worker"]["state"] == "ready"
    assert parts["gateway"]["state"] == "ready"  # it answers, whatever its last known state was


@clause("O-7")
def test_missing_requirements_of_workers_are_degraded_parts() -> None:
    async def remote() -> Mapping[str, HealthStatus]:
        missing = HealthStatus("degraded", "no model here", "install one")
        return {"model": missing, "valkey": HealthStatus("down", "reported by a worker")}

    async def remote_failing() -> Mapping[str, HealthStatus]:
        raise ValueError("hush")

    features = [
        Feature(name="jobs", remote_health=remote),
        Feature(name="others", remote_health=remote_failing),
    ]
    with Serving(None, checks(valkey=well), *features) as served:
        answer = served.client.get("/readyz")
    assert answer.status_code == 200
    body = answer.json()
    assert body["status"] == "degraded"
    parts = {part["name"]: part for part in body["parts"]}
    assert parts.keys() == {"gateway", "valkey", "model"}
    assert parts["valkey"]["state"] == "ready"  # it answers for itself
    assert parts["model"] == {
        "name": "model",
        "state": "degraded",
        "note": "no model here",
        "what_to_do": "install one",
    }
    with Serving(None, checks(valkey=ill), *features) as served:
        answer = served.client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["detail"] == "valkey is down"
    assert [part["name"] for part in answer.json()["parts"]] == ["gateway", "valkey", "model"]


@clause("O-7")
def test_readyz_checks_are_cached_between_requests() -> None:
    checked = 0

    async def count() -> HealthStatus:
        nonlocal checked
        checked += 1
        return HealthStatus("ready")

    with Serving(None, checks(valkey=count)) as served:
        for _ in range(50):
            served.client.get("/readyz")
    assert 1 <= checked < 50


class OneGauge(Collector):
    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("jobwire_test_depth", "A room's own", value=42)


def metrics(served: Serving) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = served.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


@clause("O-5")
def test_metrics_count_requests_by_route_and_status() -> None:
    with Serving(None, test_feature(), Feature(name="own", collectors=[OneGauge()])) as served:
        for name in ("default.1", "default.2", "globex.1"):
            served.client.get(f"/things/{name}")
        served.client.get("/nowhere")
        served.client.get("/mixed")
        counted = metrics(served)

    def requests(route: str, status: str) -> float:
        return counted["jobwire_http_requests_total", (("route", route), ("status", status))]

    assert requests("GET /things/{id}", "200") == 2
    assert requests("GET /things/{id}", "404") == 1
    assert requests("GET /mixed", "200") == 1
    assert requests("unknown", "404") == 1
    assert counted["jobwire_http_request_seconds_count", (("route", "GET /things/{id}"),)] == 3
    bucket = (("le", "+Inf"), ("route", "GET /things/{id}"))
    assert counted["jobwire_http_request_seconds_bucket", bucket] == 3
    assert counted["jobwire_test_depth", ()] == 42
    assert counted["jobwire_info", (("version", "0.0.test"),)] == 1
    assert any(name == "process_resident_memory_bytes" for name, _ in counted)


@clause("O-5")
def test_metrics_count_open_streams() -> None:
    with Serving(None, EventsFeature()) as served:
        with Reader.open(served, "/channels/a/events") as reader:
            assert reader.next() is not None
            assert metrics(served)["jobwire_streams_open", ()] == 1
        wait_until_sync(lambda: metrics(served)["jobwire_streams_open", ()] == 0, "none is open")
        assert metrics(served)["jobwire_streams_dropped_total", ()] == 0
