"""`jobwire config` and `jobwire key`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
import yaml

from jobwire.gateway.auth import hash_of
from jobwire.redaction import redact, register_secrets
from jobwire.settings import Settings, SettingsError, load, sections, show
from tests.cli.runner import Up, jobwire
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
    assert rows["valkey.url"]["value"] == "valkey://••••@h:1/0"
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


URLS = {
    "valkey.url": ("valkey://me:hu@sh@h:1/0", "valkey://••••@h:1/0"),
    "valkey.address": ("me:hush@h:1", "••••@h:1"),
    "llm.base_url": ("https://hush@models/v1?key=hush#hush", "https://••••@models/v1?••••"),
    "llm.embed_base_url": ("https://me:hush@models/v1", "https://••••@models/v1"),
    "predictions.telegram_url": ("https://me:hush@proxy", "https://••••@proxy"),
    "predictions.callback_url": ("https://h/done?code=hush", "https://h/done?••••"),
    "predictions.replicate_url": ("https://me:hush@proxy/r?hush", "https://••••@proxy/r?••••"),
    "images.upload_url": ("https://h/a?hush", "https://h/a?••••"),
    "images.database_url": ("postgresql://me:hush@h/d?password=hush", "postgresql://••••@h/d?••••"),
    "jobs.shards": (
        "0=valkey://:hush@a,1=valkey://:hush@b",
        {"0": "valkey://••••@a", "1": "valkey://••••@b"},
    ),
}
"""Settings that may have a URL, and what is shown of it."""


@clause("O-3")
@pytest.mark.parametrize("name", URLS)
def test_o03_a_url_is_shown_without_userinfo_and_query_whatever_its_setting(name: str) -> None:
    given, shown = URLS[name]
    env_name = "JOBWIRE_" + name.replace(".", "_").upper()
    env = {env_name: given}
    if name == "llm.embed_base_url":
        env["JOBWIRE_LLM_EMBED_MODEL"] = "m"
    rows = {row.name: row.value for row in load(environ=env).shown()}
    assert msgspec.to_builtins(rows[name], str_keys=True) == shown


@clause("O-3")
@pytest.mark.parametrize(
    "url", ["valkey://me:hu/sh@h:1/0", "valkey://me:12/hush@h/0", "me:hush@h:x", "x://me:hush@h"]
)
def test_o03_a_wrong_url_is_quoted_without_userinfo(url: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(environ={"JOBWIRE_VALKEY_URL": url, "JOBWIRE_IMAGES_UPLOAD_URL": url})
    assert re.search("hu/?sh", str(refused.value)) is None


@clause("O-3")
def test_o03_every_text_setting_hides_the_userinfo_and_query_of_a_url() -> None:
    """Also those that have no URL: nobody decides it for each setting."""
    secret = "hu/sh"
    for section in sections(Settings):
        for leaf in section.leaves:
            for url in (f"https://me:{secret}@h/?{secret}", f"https://h/a?code={secret}"):
                value = (url,) if leaf.kind == tuple[str, ...] else url
                assert secret not in str(show(value, secret=leaf.secret)), leaf.path


@clause("O-3", "P-31")
def test_o03_urls_in_the_log_have_neither_userinfo_nor_query() -> None:
    env = {
        "JOBWIRE_LLM_BASE_URL": "https://models.example/v1?code=a-code-of-theirs",
        "JOBWIRE_PREDICTIONS_TELEGRAM_URL": "https://me:a-word-of-mine@proxy",
    }
    register_secrets(load(environ=env).secrets)
    for url in env.values():
        text = redact(f"cannot reach {url}/chat: a-code-of-theirs, a-word-of-mine")
        assert "a-code-of-theirs" not in text
        assert "a-word-of-mine" not in text
    assert redact(env["JOBWIRE_LLM_BASE_URL"]) == "https://models.example/v1?••••"


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


@clause("O-3")
def test_o3_the_values_of_the_running_program_are_named_beside_those_of_the_shell(
    tmp_path: Path,
) -> None:
    with Up(tmp_path, "--only", "jobs", "--no-worker", env={"JOBWIRE_WORKER_SLOTS": "3"}) as up:
        up.wait_until_up()
        done = jobwire("config", cwd=tmp_path, env={"JOBWIRE_WORKER_SLOTS": "7"})
        rows = {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}
        assert rows["worker.slots"]["value"] == 7
        assert "the running program has other values of " in done.stderr
        assert "worker.slots" in done.stderr or "…" in done.stderr
        shown = jobwire("config", "--running", cwd=tmp_path, env={"JOBWIRE_WORKER_SLOTS": "7"})
        rows = {row["name"]: row for row in map(json.loads, shown.stdout.splitlines())}
        assert (rows["worker.slots"]["value"], rows["worker.slots"]["origin"]) == (
            3,
            "JOBWIRE_WORKER_SLOTS",
        )
        assert shown.stderr == ""
