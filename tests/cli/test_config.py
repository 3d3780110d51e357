"""`jobwire config` and `jobwire key`."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from jobwire.gateway.auth import hash_of
from tests.cli.runner import jobwire
from tests.support import clause


@clause("O-3")
def test_config_prints_every_value_with_its_origin_and_masks_secrets(tmp_path: Path) -> None:
    (tmp_path / "jobwire.yaml").write_text(
        "gateway:\n  port: 9000\nvalkey:\n  url: valkey://me:hush@h:1/0\n"
    )
    env = {"JOB_TTL_S": "60", "JOBWIRE_GATEWAY_TOKEN_SECRET": "hush" * 10}
    done = jobwire("config", cwd=tmp_path, env=env)
    rows = {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert rows["gateway.port"] == {
        "name": "gateway.port",
        "value": 9000,
        "origin": "jobwire.yaml:2",
    }
    assert rows["valkey.url"]["value"] == "valkey://me:••••@h:1/0"
    assert rows["gateway.token_secret"]["value"] == "••••"
    assert rows["jobs.job_ttl_s"]["origin"] == "JOB_TTL_S"
    assert rows["gateway.heartbeat"] == {
        "name": "gateway.heartbeat",
        "value": "15s",
        "origin": "default",
    }
    assert "hush" not in done.stdout + done.stderr
    given = jobwire("config", "--given", cwd=tmp_path, env=env).stdout.splitlines()
    assert len(given) == 4


@clause("O-3")
def test_every_settings_fault_is_one_line_and_exit_2(tmp_path: Path) -> None:
    (tmp_path / "jobwire.yaml").write_text("valkey:\n  adress: h:1\n")
    done = jobwire("config", cwd=tmp_path, env={"JOBWIRE_GATEWAY_PORT": "x", "JOBWIRE_NOPE": "1"})
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "jobwire: jobwire.yaml:2 valkey.adress: unknown setting; did you mean 'address'?",
        "jobwire: environment JOBWIRE_NOPE: unknown setting",
        "jobwire: JOBWIRE_GATEWAY_PORT gateway.port: 'x' is not a whole number",
    ]


@clause("O-3")
def test_an_ignored_setting_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "jobwire.yaml").write_text("streams: {consumer_group: gateway-workers}")
    done = jobwire("config", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.startswith(
        "jobwire: warning: streams.consumer_group (jobwire.yaml:1): ignored"
    )
    assert len(done.stderr.splitlines()) == 1


@clause("O-6")
def test_a_key_is_printed_once_and_the_settings_have_its_hash(tmp_path: Path) -> None:
    made = json.loads(
        jobwire("key", "ci", "--tenant", "acme", "--scope", "submit", cwd=tmp_path).stdout
    )
    key = made.pop("key")
    assert made == {"name": "ci", "tenant": "acme", "scopes": ["submit"], "hash": hash_of(key)}
    (tmp_path / "jobwire.yaml").write_text(yaml.safe_dump({"gateway": {"keys": [made]}}))
    done = jobwire("config", "--given", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["value"] == [made]
