"""Settings: precedence, accepted names and faults."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from jobwire.settings import Loaded, SettingsError, load
from tests.support import clause

# The settings file of the messaging plan, unchanged.
PLAN: Final = """\
valkey:
  address: "localhost:6379"
  password: ""
  db: 0
  pool_size: 20
  dial_timeout: 5s
  read_timeout: 3s
  write_timeout: 3s

streams:
  result_stream: "image:result"
  consumer_group: "gateway-workers"
  consumer_count: 2
  upload_guard_key_prefix: "image:upload:"
  upload_guard_ttl: 3600
  block_timeout: 5s
"""


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(
    text: str = "", options: dict[str, tuple[str, str]] | None = None, /, **env: str
) -> Loaded:
    if text:
        Path("jobwire.yaml").write_text(text, encoding="utf-8")
    return load(options, environ=env)


def faults(text: str = "", /, **env: str) -> list[str]:
    with pytest.raises(SettingsError) as raised:
        read(text, **env)
    return list(raised.value.faults)


@clause("O-3")
def test_the_yaml_of_the_plan_is_accepted() -> None:
    loaded = read(PLAN)
    config = loaded.settings.valkey.config()
    assert (config.endpoint, config.password, config.db) == (("localhost", 6379), None, 0)
    assert (config.pool_size, config.dial_timeout_s) == (20, 5.0)
    assert (config.read_timeout_s, config.write_timeout_s) == (3.0, 3.0)
    streams = loaded.settings.streams
    assert (streams.result_stream, streams.consumer_count) == ("image:result", 2)
    assert streams.upload_guard_key_prefix == "image:upload:"
    assert streams.upload_guard_ttl == timedelta(hours=1)
    assert streams.block_timeout == timedelta(seconds=5)


@clause("O-3")
def test_dropped_keys_of_the_plan_are_ignored_with_one_warning() -> None:
    loaded = read(PLAN.replace("streams:", "streams:\n  process_stream: image:process"))
    assert loaded.settings.streams.consumer_group == "api-workers"
    (warning,) = loaded.warnings
    assert warning == (
        "streams.process_stream (jobwire.yaml:11), streams.consumer_group (jobwire.yaml:13): "
        "ignored, it has no effect; remove it"
    )


@clause("O-3")
def test_another_consumer_group_is_not_ignored() -> None:
    loaded = read("streams: {consumer_group: mine}")
    assert loaded.settings.streams.consumer_group == "mine"
    assert loaded.warnings == ()


@clause("O-3")
def test_precedence_of_the_sources() -> None:
    text = "gateway: {port: 1, host: localhost, max_headers: 5}"
    loaded = read(
        text,
        {"gateway.port": ("--port", "3")},
        JOBWIRE_GATEWAY_PORT="2",
        JOBWIRE_GATEWAY_HOST="::1",
    )
    gateway = loaded.settings.gateway
    assert (gateway.port, gateway.host, gateway.max_headers) == (3, "::1", 5)
    assert loaded.origins["gateway.port"] == "--port"
    assert loaded.origins["gateway.host"] == "JOBWIRE_GATEWAY_HOST"
    assert loaded.origins["gateway.max_headers"] == "jobwire.yaml:1"
    assert loaded.origins["gateway.max_body_bytes"] == "default"


@clause("O-3")
def test_variables_of_the_source_documents_are_accepted() -> None:
    settings = read(
        VALKEY_ADDRESS="valkey:6379",
        VALKEY_POOL_SIZE="7",
        STREAMS_BLOCK_TIMEOUT="2s",
        STREAMS_PROCESS_STREAM="image:process",
        MINIO_ENDPOINT="minio:9000",
        MINIO_ACCESS_KEY_ID="minioadmin",
        MINIO_SECRET_ACCESS_KEY="minioadmin",
        DATABASE_URL="postgres://follow:follow@postgres:5432/follow?sslmode=disable",
        S3_BUCKET="ai-shtender-bucket",
        MAX_IMAGE_MB="12",
        JOB_TTL_S="600",
    ).settings
    assert settings.valkey.config().endpoint == ("valkey", 6379)
    assert settings.valkey.pool_size == 7
    assert settings.streams.block_timeout == timedelta(seconds=2)
    assert settings.objects.endpoint_url == "http://minio:9000"
    assert settings.objects.access_key == settings.objects.secret_key == "minioadmin"
    assert settings.objects.bucket == "ai-shtender-bucket"
    assert settings.images.database_url.startswith("postgres://follow")
    assert settings.predictions.max_image_mb == 12
    assert settings.jobs.job_ttl_s == 600


@clause("O-3")
def test_a_jobwire_variable_has_precedence_over_other_names() -> None:
    settings = read(JOB_TTL_S="600", JOBWIRE_JOBS_JOB_TTL_S="1h").settings
    assert settings.jobs.job_ttl_s == 3600


@clause("O-3")
def test_variables_of_other_programs_are_skipped() -> None:
    read(VALKEY_PORT="tcp://10.0.0.1:6379", STREAMS_WHATEVER="1", JOBWIRE_TEST_ALL="1")
    read(JOBWIRE_URL="http://x", JOBWIRE_API_KEY="jw_x")


@clause("O-3")
@pytest.mark.parametrize(
    ("text", "env", "url_wins"),
    [
        ("valkey: {address: 'a:1'}", {"JOBWIRE_VALKEY_URL": "valkey://u:2"}, True),
        ("valkey: {url: 'valkey://u:2'}", {"VALKEY_ADDRESS": "a:1"}, False),
        ("", {"JOBWIRE_VALKEY_URL": "valkey://u:2", "VALKEY_ADDRESS": "a:1"}, True),
    ],
)
def test_url_or_address_of_higher_precedence_is_used(
    text: str, env: dict[str, str], url_wins: bool
) -> None:
    endpoint = read(text, **env).settings.valkey.config().endpoint
    assert endpoint == (("u", 2) if url_wins else ("a", 1))


@clause("O-3")
def test_url_and_address_in_one_source_are_a_fault() -> None:
    (fault,) = faults("valkey:\n  url: valkey://u:2\n  address: a:1")
    assert fault == (
        "jobwire.yaml:3 valkey.address: valkey.url is set too (jobwire.yaml:2); set one of them"
    )


@clause("O-3")
def test_a_password_may_be_set_apart_from_its_url() -> None:
    config = read(
        "valkey: {url: 'valkey://me@h:1/3'}", VALKEY_PASSWORD="s"
    ).settings.valkey.config()
    assert (config.username, config.password, config.db) == ("me", "s", 3)


@clause("O-3")
def test_a_password_stays_as_it_was_written() -> None:
    assert read("valkey: {password: 0123}").settings.valkey.password == "0123"
    assert read("valkey: {password: yes}").settings.valkey.password == "yes"


@clause("O-3")
@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5s", 5), ("1h", 3600), ("90", 90), ("1.5", 1.5), ("250ms", 0.25), ("1h30m", 5400)],
)
def test_durations(text: str, seconds: float) -> None:
    settings = read(f"streams: {{block_timeout: {text}}}").settings
    assert settings.streams.block_timeout.total_seconds() == seconds
    assert read(JOBWIRE_WORKER_LEASE="2s").settings.worker.lease.total_seconds() == 2


@clause("O-3")
@pytest.mark.parametrize(
    "text", ["5x", "-5s", "s", "1h 30m x", "nan", "inf", "[5s]", "1e400", "99999999999999d"]
)
def test_invalid_durations(text: str) -> None:
    (fault,) = faults(f"streams: {{block_timeout: {text}}}")
    assert fault.startswith("jobwire.yaml:1 streams.block_timeout: ")


@clause("O-3")
@pytest.mark.parametrize(
    ("text", "env", "fault"),
    [
        (
            "valkey:\n  adress: h:1",
            {},
            "jobwire.yaml:2 valkey.adress: unknown setting; did you mean 'address'?",
        ),
        ("valky: {}", {}, "jobwire.yaml:1 valky: unknown setting; did you mean 'valkey'?"),
        ("zzzzzz: 1", {}, "jobwire.yaml:1 zzzzzz: unknown setting"),
        (
            "",
            {"JOBWIRE_VALKEY_ADRESS": "h:1"},
            "environment JOBWIRE_VALKEY_ADRESS: unknown setting; did you mean 'JOBWIRE_VALKEY_",
        ),
        (
            "logging: {level: debgu}",
            {},
            "jobwire.yaml:1 logging.level: 'debgu' is not one of debug, info, warn, warning, ",
        ),
        (
            "",
            {"JOBWIRE_GATEWAY_PORT": "eighty"},
            "JOBWIRE_GATEWAY_PORT gateway.port: 'eighty' is not a whole number",
        ),
        ("gateway: {port: 70000}", {}, "jobwire.yaml:1 gateway.port: 70000 is not a port; "),
        ("valkey: {db: -1}", {}, "jobwire.yaml:1 valkey.db: must not be negative, is -1"),
        ("", {"VALKEY_ADDRESS": "h:x"}, "VALKEY_ADDRESS valkey.address: has a bad port"),
        ("valkey: 3", {}, "jobwire.yaml:1 valkey: must be a mapping of names to values"),
        ("- 1", {}, "jobwire.yaml: must be a mapping of sections"),
        ("valkey: {", {}, "jobwire.yaml:1: is not YAML"),
        ("valkey: &a {address: *a}", {}, "jobwire.yaml: an alias in it contains itself"),
        ("up: {embedded: maybe}", {}, "jobwire.yaml:1 up.embedded: 'maybe' is neither true nor"),
        ("gateway: {port: 1, port: 2}", {}, "jobwire.yaml:1 port: is set twice"),
        (
            "jobs:\n  shards:\n    0: valkey://a\n    0: valkey://b",
            {},
            "jobwire.yaml:4 0: is set twice",
        ),
        (
            "objects: {endpoint: 'ftp://x', access_key: a, secret_key: b}",
            {},
            "jobwire.yaml:1 objects.endpoint: must be a URL",
        ),
        ("jobs: {job_ttl_s: 0}", {}, "jobwire.yaml:1 jobs.job_ttl_s: must lie between 1 and"),
        (
            "jobs: {job_ttl_s: 1.5}",
            {},
            "jobwire.yaml:1 jobs.job_ttl_s: '1.5' is not a whole number",
        ),
        ("gateway: {keys: 3}", {}, "jobwire.yaml:1 gateway.keys[0]: must be a mapping"),
    ],
)
def test_a_fault_is_one_line_with_its_origin(text: str, env: dict[str, str], fault: str) -> None:
    (found,) = faults(text, **env)
    assert found.startswith(fault)
    assert "\n" not in found


@clause("O-3")
def test_all_faults_are_reported_at_once() -> None:
    found = faults(
        "valkey: {db: x, adress: y}\ngateway:\n  port: 70000\n  max_headers: 0\n"
        "  keys: [{name: a, hash: z, scopes: [reed]}, {nam: b}]",
        JOBWIRE_NOPE="1",
        JOBWIRE_WORKER_LEASE="soon",
    )
    places = [line.split(": ")[0].split(" ")[-1] for line in found]
    assert sorted(places) == sorted(
        [
            "valkey.adress",
            "JOBWIRE_NOPE",
            "valkey.db",
            "gateway.port",
            "gateway.max_headers",
            "gateway.keys[0].scopes[0]",
            "gateway.keys[1].nam",
            "gateway.keys[1].name",
            "gateway.keys[1].hash",
            "gateway.keys[1].scopes",
            "worker.lease",
        ]
    )


@clause("O-3")
def test_a_fault_never_shows_a_secret() -> None:
    found = faults(VALKEY_URL="valkey://me:hush@h:99999/0", DATABASE_URL="x")
    assert "hush" not in "".join(found)
    loaded = read(VALKEY_URL="valkey://me:hush@h:1/0", JOBWIRE_GATEWAY_TOKEN_SECRET="hush" * 8)
    assert "hush" not in repr(loaded.settings)


@clause("O-3")
def test_a_configured_file_must_exist() -> None:
    assert faults(JOBWIRE_CONFIG="nowhere.yaml") == [
        "nowhere.yaml: cannot be read (No such file or directory)"
    ]


@clause("O-3", "O-6")
def test_another_address_than_loopback_needs_keys() -> None:
    (fault,) = faults(JOBWIRE_GATEWAY_HOST="0.0.0.0")
    assert "there are no API keys" in fault
    key = f'[{{"name": "ci", "hash": "sha256:{"0" * 64}", "scopes": ["submit", "read"]}}]'
    gateway = read(JOBWIRE_GATEWAY_HOST="0.0.0.0", JOBWIRE_GATEWAY_KEYS=key).settings.gateway
    assert gateway.keys[0].scopes == ("submit", "read")
    assert gateway.keys[0].tenant == "default"


@clause("O-3")
def test_an_empty_variable_counts_as_not_set() -> None:
    loaded = read(JOBWIRE_GATEWAY_PORT="", VALKEY_ADDRESS="", JOBWIRE_CONFIG="")
    assert loaded.origins["gateway.port"] == "default"
    assert not loaded.is_set("valkey.address")
