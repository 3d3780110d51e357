"""`--only`: each sensible set of systems starts, with just the servers that it needs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import httpx
import psutil
import pytest

from jobwire.local import LocalValkey
from jobwire.objects import BucketConfig
from jobwire.systems.system import SYSTEMS
from tests.cli.runner import Up, clean_env, jobwire
from tests.support import Program, clause, wait_until_sync

_IMPORTED: Final = """
import sys
from jobwire.programs import gateway, installation
from jobwire.systems import system as systems

systems.resolve(sys.argv[1])
print("loaded:", sorted(name for name in sys.modules if name in sys.argv[2:]))
"""


def s3_env(config: BucketConfig) -> dict[str, str]:
    return {
        "JOBWIRE_OBJECTS_ENDPOINT": config.endpoint,
        "JOBWIRE_OBJECTS_BUCKET": config.bucket,
        "JOBWIRE_OBJECTS_ACCESS_KEY": config.access_key,
        "JOBWIRE_OBJECTS_SECRET_KEY": config.secret_key,
    }


@clause("O-1", "P-28")
def test_o1_predictions_alone_start_no_valkey_and_are_ready(tmp_path: Path) -> None:
    with Up(tmp_path, "--only", "predictions") as up:
        up.wait_until_up()
        status, parts = up.ready()
        assert (status, parts.keys()) == (200, {"gateway", "s3"})
        published = up.endpoints()
        assert published["valkey"] is None
        assert published["systems"] == ["predictions"]
        assert published["pids"].keys() == {"gateway", "s3"}
        commands = [" ".join(psutil.Process(pid).cmdline()) for pid in up.processes()]
        assert not [line for line in commands if "valkey" in line or "worker" in line]
        assert not (up.data_dir / "valkey").exists()
        for path in ("/livez", "/version", "/metrics", "/openapi.json"):
            assert httpx.get(f"{up.url}{path}", trust_env=False).status_code == 200
        assert httpx.get(f"{up.url}/v1/jobs", trust_env=False).status_code == 404


@clause("O-1")
@pytest.mark.parametrize("systems", ["jobs", "jobs,queues"])
def test_o1_jobs_and_queues_on_a_server_of_ones_own_start_no_s3(
    tmp_path: Path, valkey: LocalValkey, systems: str
) -> None:
    """Clips of the queue `video-generation` could use one, but nothing needs it."""
    env = {} if systems == "jobs" else {"JOBWIRE_VALKEY_URL": valkey.url}
    with Up(tmp_path, "--only", systems, env=env) as up:
        up.wait_until_up()
        status, parts = up.ready()
        assert (status, parts.keys()) == (200, {"gateway", "valkey", "worker"})
        assert up.endpoints()["s3"] is None
        assert not (up.data_dir / "s3").exists()
        found = jobwire("doctor", cwd=tmp_path)
        assert found.returncode == 0, found.stdout
        assert '"bucket' not in found.stdout


@clause("O-1")
def test_o1_images_alone_start_no_worker(
    tmp_path: Path, valkey: LocalValkey, moto: BucketConfig
) -> None:
    env = {**s3_env(moto), "JOBWIRE_VALKEY_URL": valkey.url}
    with Up(tmp_path, "--only", "images", env=env) as up:
        up.wait_until_up()
        status, parts = up.ready()
        assert status == 200
        assert parts.keys() >= {"gateway", "valkey", "s3"}
        assert up.endpoints()["pids"].keys() == {"gateway"}
        assert httpx.get(f"{up.url}/v1/jobs", trust_env=False).status_code == 404


@clause("O-1")
def test_o1_all_systems_without_worker_and_with_a_bucket_each(
    tmp_path: Path, valkey: LocalValkey
) -> None:
    env = {"JOBWIRE_PREDICTIONS_BUCKET": "photos-of-the-bot"}
    with Up(tmp_path, "--no-worker", "--valkey", valkey.url, env=env) as up:
        up.wait_until_up()
        status, parts = up.ready()
        assert status == 200
        assert parts.keys() >= {"gateway", "valkey", "s3"}
        assert "worker" not in parts
        assert up.endpoints()["systems"] == list(SYSTEMS)
        assert up.endpoints()["s3"]["bucket"] == "jobwire"
        shown = jobwire("lifecycle", "apply", cwd=tmp_path, env=env)
        assert shown.returncode == 0, shown.stderr
        assert '"bucket":"photos-of-the-bot"' in shown.stdout


@clause("O-1", "P-28")
def test_o1_a_gateway_of_its_own_serves_the_chosen_system(
    tmp_path: Path, moto: BucketConfig
) -> None:
    command = [sys.executable, "-m", "jobwire", "gateway", "--port", "0", "--only", "predictions"]
    # No Valkey listens there: a connection to it would keep the gateway from starting.
    env = {**s3_env(moto), "JOBWIRE_VALKEY_URL": "valkey://127.0.0.1:1/0"}
    with Program(command=command, cwd=tmp_path, env=clean_env(**env)) as program:
        line = program.wait_for_line("gateway on http://")
        url = line.rpartition(" ")[2]

        def is_ready() -> bool:
            return httpx.get(f"{url}/readyz", trust_env=False).status_code == 200

        wait_until_sync(is_ready, "/readyz")
        parts = httpx.get(f"{url}/readyz", trust_env=False).json()["parts"]
        assert [part["name"] for part in parts] == ["gateway", "s3"]


@clause("O-1")
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["up", "--only", "jbos"], "systems: there is no system named 'jbos'; did you mean 'jobs'"),
        (["up", "--only", ","], f"systems: names no system; known: {', '.join(SYSTEMS)}"),
        (
            ["up", "--only", "no_such_module:SYSTEM"],
            "systems: no_such_module:SYSTEM cannot be imported: No module named",
        ),
        (["up", "--only", "json:dumps"], "systems: json:dumps is not a System"),
        (
            ["up", "--no-embedded", "--only", "predictions"],
            "objects.endpoint: is required by predictions",
        ),
        (["gateway", "--only", "predictions"], "objects.endpoint: is required by predictions"),
        (["worker", "--only", "predictions"], "systems: the chosen systems have no jobs for a"),
    ],
)
def test_o1_a_wrong_choice_is_one_line_and_nothing_is_started(
    tmp_path: Path, arguments: list[str], line: str
) -> None:
    done = jobwire(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"jobwire: {line}")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / ".jobwire").exists()


@clause("P-28")
@pytest.mark.parametrize(
    ("system", "foreign"),
    [
        ("predictions", ["hiredis", "jobwire.valkey.connection", "jobwire.systems.jobs.engine"]),
        ("jobs", ["obstore", "jobwire.systems.predictions.flow", "jobwire.handlers.llm.tasks"]),
    ],
)
def test_p28_a_declaration_imports_nothing_of_other_systems(
    system: str, foreign: list[str]
) -> None:
    with Program("-c", _IMPORTED, system, *foreign) as program:
        assert program.wait() == 0, program.output
        assert program.output == "loaded: []\n"
