"""The worker's own health, by HTTP and by `jobwire health` (O-7)."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from jobwire.cli.health import program_of
from jobwire.local import free_port
from tests.cli.runner import jobwire
from tests.fleet.runner import Fleet
from tests.support import clause, wait_until_sync


def get(port: int, path: str) -> tuple[int, str]:
    response = httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False, timeout=30)
    return response.status_code, response.text


@clause("O-7")
def test_o7_a_worker_says_whether_it_lives_and_takes_jobs(own_fleet: Fleet, tmp_path: Path) -> None:
    port, gate = free_port(), tmp_path / "gate"
    gate.touch()
    env = {"JOBWIRE_WORKER_METRICS_PORT": str(port), "JOBWIRE_WORKER_LEASE": "1s"}

    def health(*options: str) -> tuple[int, str]:
        done = jobwire("health", "worker", *options, cwd=tmp_path, env=env)
        return done.returncode, done.stdout or done.stderr

    assert health()[0] == 3
    own_fleet.start_gateway()
    worker = own_fleet.start_worker(**env)
    assert get(port, "/livez") == (200, '{"status": "alive"}')
    assert get(port, "/readyz") == (200, '{"status": "ready"}')
    assert get(port, "/metrics")[0] == 200
    for path in ("/", "/metrics/", "/livez/x", "/v1/jobs", "/%2e%2e/livez"):
        assert get(port, path)[0] == 404
    assert health() == (0, '{"program":"worker","status":"ready"}\n')

    own_fleet.valkey.stop()
    away = '{"status": "not_ready", "detail": "the server does not answer: jobs"}'
    wait_until_sync(lambda: get(port, "/readyz") == (503, away), "the worker not to be ready")
    assert get(port, "/livez")[0] == 200, "another start of the worker would not help"
    code, line = health()
    assert (code, "is not ready: the server does not answer: jobs" in line) == (3, True)
    assert health("--live")[0] == 0
    own_fleet.valkey.start()
    wait_until_sync(lambda: get(port, "/readyz")[0] == 200, "the worker to be ready again")

    with own_fleet.client() as jobs:
        blocked = jobs.submit("block", {"gate": str(gate)})
        wait_until_sync(lambda: get(port, "/livez")[0] == 503, "the blocked loop to be seen")
        assert "event loop has been blocked for" in get(port, "/readyz")[1]
        assert health("--live")[0] == 3
        gate.write_text("open\n")
        wait_until_sync(lambda: get(port, "/livez")[0] == 200, "the loop to run again")
        jobs.wait(blocked.job_id)

        gate.write_text("")
        gated = jobs.submit("gated", {"to": 1, "gate": str(gate)})
        wait_until_sync(lambda: jobs.get(gated.job_id).status == "running")
        worker.terminate()
        stopping = '{"status": "not_ready", "detail": "it is stopping"}'
        wait_until_sync(lambda: get(port, "/readyz") == (503, stopping), "the drain to be seen")
        assert get(port, "/livez")[0] == 200
        gate.write_text("open\n")
        assert worker.wait() == 0


@clause("O-7")
def test_o7_the_health_of_the_gateway(own_fleet: Fleet, tmp_path: Path) -> None:
    env = {"JOBWIRE_GATEWAY_PORT": str(own_fleet.port)}
    own_fleet.start_gateway()
    assert jobwire("health", "gateway", cwd=tmp_path, env=env).returncode == 0
    own_fleet.valkey.stop()

    def line() -> str:
        return jobwire("health", "gateway", cwd=tmp_path, env=env).stderr

    wait_until_sync(lambda: "is not ready: valkey is down" in line(), "the outage to be reported")
    assert jobwire("health", "gateway", "--live", cwd=tmp_path, env=env).returncode == 0
    own_fleet.valkey.start()


@clause("O-7")
def test_o7_a_worker_without_a_port_has_no_health(tmp_path: Path) -> None:
    done = jobwire("health", "worker", cwd=tmp_path)
    assert (done.returncode, "worker.metrics_port is 0" in done.stderr) == (2, True)


@clause("O-7")
@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("/opt/jobwire/bin/python /opt/jobwire/bin/jobwire worker shop:app", "worker"),
        ("/sbin/docker-init -- jobwire --debug gateway --host 0.0.0.0", "gateway"),
        ("python -m jobwire images api", "gateway"),
        ("jobwire images gateway", "uploads"),
        ("jobwire worker images gateway", "worker"),
        ("jobwire up", None),
        ("/lib/systemd/systemd gateway", None),
        ("", None),
    ],
)
def test_o7_the_program_of_a_container_is_known_by_its_command(
    line: str, program: str | None
) -> None:
    assert program_of(line.split(" ")) == program


@clause("J-36")
def test_j36_the_worker_program_reuses_the_process_of_a_handler(own_fleet: Fleet) -> None:
    """uvloop, which only the program runs on, leaves a pipe that it has watched non-blocking: the
    next job found its process dead."""
    own_fleet.start_gateway()
    own_fleet.start_worker("tests.worker.process_handlers:app", JOBWIRE_WORKER_SLOTS="1")
    with own_fleet.client() as jobs:
        results = [jobs.run("add-async", {"a": 2, "b": 3}) for _ in range(5)]
    assert len({str(result) for result in results}) == 1, "one pid"
