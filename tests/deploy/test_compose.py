"""The compose file and the image, as far as they can be checked without a container engine.

That the services work together is shown by tests/e2e, which starts them as processes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import Any, Final

import jsonschema_rs
import pytest
import yaml

from jobwire import __version__
from jobwire.cli.main import COMMANDS
from jobwire.settings import Settings, load
from tests.cli.runner import clean_env
from tests.deploy.test_lock import entries
from tests.e2e.compose import COMPOSE, OURS, SECRETS, read_services
from tests.support import clause
from tests.support.program import ROOT
from tests.support.thirdparty import deploy_checkers
from tools.lock import closure

DOCKERFILE: Final = ROOT / "deploy" / "Dockerfile"
HASH: Final = "sha256:" + "0" * 64
KEYS: Final = json.dumps([{"name": "app", "scopes": ["submit", "read"], "hash": HASH}])
VARIABLES: Final = {**SECRETS, "JOBWIRE_GATEWAY_KEYS": KEYS}
PROFILES: Final = {
    "full": {"postgres", "valkey", "s3", "createbuckets", "createkeys", "api", "gateway", "jobs"}
    | {"worker"},
    "gateway": {"valkey", "s3", "createbuckets", "createkeys", "gateway"},
    "api": {"postgres", "valkey", "s3", "createbuckets", "createkeys", "api"},
}


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return read_services(VARIABLES)


@clause("O-8")
def test_o8_docker_compose_accepts_the_file(services: dict[str, Any]) -> None:
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("docker-compose is not installed (Debian: apt-get install docker-compose)")
    done = subprocess.run(
        [program, "--file", str(COMPOSE), "--profile", "full", "config"],
        env={**clean_env(), **VARIABLES},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    resolved = yaml.safe_load(done.stdout)["services"]
    assert resolved.keys() == services.keys()
    # It reads variables as we do.
    for name, service in services.items():
        assert resolved[name].get("environment", {}) == service.get("environment", {})


@clause("O-8")
@pytest.mark.parametrize("profile", PROFILES)
def test_o8_a_profile_has_what_its_services_need(profile: str, services: dict[str, Any]) -> None:
    chosen = {name for name, service in services.items() if profile in service["profiles"]}
    assert chosen == PROFILES[profile]
    for name in chosen:
        assert services[name].get("depends_on", {}).keys() <= chosen


@clause("O-8")
def test_o8_the_file_fits_the_compose_specification(services: dict[str, Any]) -> None:
    schemas = deploy_checkers() / "check_jsonschema" / "builtin_schemas" / "vendor"
    validator = jsonschema_rs.validator_for(json.loads((schemas / "compose-spec.json").read_text()))
    file = yaml.safe_load(COMPOSE.read_text())
    faults = [
        f"{list(fault.instance_path)}: {fault.message}" for fault in validator.iter_errors(file)
    ]
    assert faults == []
    assert "name" not in file
    volumes = {each.partition(":")[0] for s in services.values() for each in s.get("volumes", ())}
    assert volumes == set(file["volumes"])


@clause("O-8", "X-7")
def test_x7_the_dockerfile_is_valid() -> None:
    done = subprocess.run(
        [deploy_checkers() / "bin" / "hadolint", DOCKERFILE],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
    text = DOCKERFILE.read_text()
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE) == ["10001:10001"]
    # What is copied exists, and is part of the build context.
    context = (ROOT / ".dockerignore").read_text().splitlines()
    for names in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for name in names.split():
            assert (ROOT / name).exists()
            assert f"!{name}" in context
    for requirement in re.findall(r"--requirement (\S+)", text):
        assert (ROOT / requirement).exists()
    assert re.findall(r"ARG VERSION=(\S+)", text) == [__version__]
    variables = dict(re.findall(r"(JOBWIRE_\w+)=(\S+)", text))
    assert load(environ=variables).settings.worker.metrics_port == 9464


@clause("X-7")
def test_x7_every_package_of_the_image_is_checked_by_hash() -> None:
    """Nothing is resolved while the image is built: what is not listed is missing at its start."""
    text = DOCKERFILE.read_text().replace("\\\n", "")
    installs = re.findall(r"pip(?: --python \S+)? install (.+?)(?: &&|\n)", text)
    assert len(installs) == 5
    for options in installs:
        assert "--no-deps" in options
        assert "--require-hashes" in options or options.endswith("dist/*.whl")
    everything = entries(ROOT / "locked/all.txt")
    for file in ("image", "image-full"):
        listed = entries(ROOT / f"locked/{file}.txt")
        assert {name: everything[name] for name in listed} == listed, "run `make lock`"
        before = entries(ROOT / "locked/image.txt")
        needed = closure(file, ("3.11", ("linux", "x86_64")))
        assert needed <= listed.keys() | before.keys(), "run `make lock`"


@clause("O-8")
def test_o8_containers_have_the_rights_that_they_need(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["mem_limit"], name
        assert service["pids_limit"], name
        if service["image"] in OURS:
            assert service["read_only"], name
            assert "cap_add" not in service, name
    for variable in SECRETS:
        with pytest.raises(KeyError, match=f"{variable}: see deploy/README.md"):
            read_services({**VARIABLES, variable: ""})


@clause("O-3", "O-8")
def test_o8_every_variable_is_a_setting(
    services: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    def settings_of(name: str, services: dict[str, Any] = services) -> Settings:
        with monkeypatch.context() as patched:
            for variable in set(os.environ) - set(clean_env()):
                patched.delenv(variable)
            for variable, value in services[name].get("environment", {}).items():
                patched.setenv(variable, str(value))
            patched.chdir(str(tmp_path))
            loaded = load()
        assert not loaded.warnings, name
        return loaded.settings

    ours = [name for name, service in services.items() if service["image"] in OURS]
    found = {name: settings_of(name) for name in ours}
    api, gateway = found["api"], found["gateway"]
    assert api.images.database_url.startswith("postgres://follow:of-postgres@postgres:5432/follow")
    assert (api.gateway.host, api.gateway.port) == ("0.0.0.0", 8080)
    assert (gateway.images.host, gateway.images.port) == ("0.0.0.0", 8090)
    for each in (api, gateway, found["createbuckets"]):
        assert each.objects.endpoint_url == "http://minio:9000"
        assert each.objects.bucket == "follow-images"
        assert (each.objects.access_key, each.objects.secret_key) == ("jobwire", "of-the-bucket")
    for each in (api, gateway, found["jobs"], found["worker"]):
        assert each.valkey.config().address == "valkey:6379"
        assert each.valkey.config().password == "of-valkey"
    model = {"OPENAI_BASE_URL": "http://models:8000/v1", "OPENAI_MODEL": "small"}
    llm = settings_of("worker", read_services({**VARIABLES, **model})).llm
    assert (llm.base_url, llm.model) == ("http://models:8000/v1", "small")
    # The upload gateway does not get the private key.
    assert gateway.images.token_private_key == ""
    assert not [each for each in services["gateway"]["volumes"] if "private" in each]


@clause("O-8")
def test_o8_names_and_ports_are_those_of_the_messaging_plan(services: dict[str, Any]) -> None:
    published = {
        int(each.split(":")[-2]): name
        for name, service in services.items()
        for each in service.get("ports", ())
    }
    assert published == {
        5432: "postgres",
        6379: "valkey",
        9010: "s3",
        9011: "s3",
        8080: "api",
        8090: "gateway",
        8070: "jobs",
    }
    aliases = {
        alias
        for service in services.values()
        for alias in service.get("networks", {}).get("default", {}).get("aliases", ())
    }
    assert aliases == {"minio", "follow-api", "follow-image-gateway"}
    assert services["valkey"]["command"][:3] == ["valkey-server", "--appendonly", "yes"]
    assert services["postgres"]["image"] == "postgres:17"
    for name, service in services.items():
        if name not in ("createbuckets", "createkeys"):
            assert "healthcheck" in service
        command = service.get("command", [])
        if service["image"] in OURS and "entrypoint" not in service:
            assert command[0] in COMMANDS
        for needed, how in service.get("depends_on", {}).items():
            is_one_shot = needed.startswith("create")
            wanted = "service_completed_successfully" if is_one_shot else "service_healthy"
            assert how == {"condition": wanted}, (name, needed)
