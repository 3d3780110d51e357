"""docs/extending.md: the worked example is a complete system, run by `jobwire up`."""

from __future__ import annotations

import json
from pathlib import Path

import httpx

from jobwire.local import LocalValkey
from tests.cli.runner import Up, jobwire
from tests.support import Plain, clause
from tests.support.program import ROOT


@clause("O-1", "O-13")
def test_o13_a_system_of_a_user_has_its_routes_health_metrics_schema_and_checks(
    valkey: LocalValkey, plain: Plain, tmp_path: Path
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    name = "examples.counters:SYSTEM"
    env = {"JOBWIRE_VALKEY_URL": valkey.url}
    with Up(tmp_path, "--only", name, env=env) as up:
        up.wait_until_up()
        status, parts = up.ready()
        assert (status, parts.keys()) == (200, {"gateway", "valkey", "counters"})
        assert up.endpoints()["systems"] == [name]
        with httpx.Client(base_url=up.url, trust_env=False) as client:
            for value in (1, 2):
                answer = client.post("/v1/counters/visits")
                assert answer.json() == {"name": "visits", "value": value}
            assert client.get("/v1/counters/visits").json() == {"name": "visits", "value": 2}
            assert client.post("/v1/counters/NOT%20A%20NAME").status_code == 422
            assert "jobwire_counters_reads_total 1.0" in client.get("/metrics").text
            assert "/v1/counters/{name}" in client.get("/openapi.json").json()["paths"]
        found = jobwire("doctor", cwd=tmp_path, env={**env, "JOBWIRE_SYSTEMS": name})
        checks = {
            line["check"]: line["found"] for line in map(json.loads, found.stdout.splitlines())
        }
        assert checks["counters"] == "1 counters"
        assert checks["part counters"] == "ready"
        shown = jobwire("schema", "--system", name, cwd=tmp_path)
        plain.delete("counters")
        assert json.loads(shown.stdout)["$defs"]["Count"]["required"] == ["name", "value"]
