"""The Kubernetes manifests are valid, agree with each other and use existing settings (X-8).

Kinds of KEDA and of the Prometheus operator have no published schema here; what they refer to is
checked. That the pods start is shown by `make deploy-check`.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import jsonschema_rs
import pytest

from jobwire import __version__
from jobwire.api import fleet, gateway
from jobwire.settings import load
from tests.deploy.kustomize import Manifest, rendered
from tests.support import clause
from tests.support.program import ROOT
from tests.support.thirdparty import deploy_checkers

FOLDER: Final = ROOT / "deploy" / "kubernetes"
OVERLAYS: Final = ("small", "replicated")
# The oldest that the project of Kubernetes still supports, and the newest.
VERSIONS: Final = ("1.34.0", "1.37.0")
HASH: Final = "sha256:" + "0" * 64
KEYS: Final = json.dumps([{"name": "app", "scopes": ["read"], "hash": HASH}])


@pytest.fixture(params=OVERLAYS)
def manifests(request: pytest.FixtureRequest) -> list[Manifest]:
    return rendered(FOLDER / "overlays" / request.param)


def of_kind(manifests: list[Manifest], kind: str) -> dict[str, Manifest]:
    return {each["metadata"]["name"]: each for each in manifests if each["kind"] == kind}


@clause("X-8")
@pytest.mark.parametrize("version", VERSIONS)
def test_x8_manifests_fit_the_schemas_of_the_api(manifests: list[Manifest], version: str) -> None:
    schemas = deploy_checkers() / "kubernetes_validate" / "kubernetes-json-schema"
    folder = schemas / f"v{version}-local-strict"
    definitions = json.loads((folder / "_definitions.json").read_text())["$defs"]
    checked: set[str] = set()
    for manifest in manifests:
        group, _, api = manifest["apiVersion"].rpartition("/")
        if group.endswith((".sh", ".com")):
            continue
        prefix = f"{group.partition('.')[0]}-" if group else ""
        file = folder / f"{manifest['kind'].lower()}-{prefix}{api}.json"
        schema = {**json.loads(file.read_text()), "$defs": definitions}
        text = json.dumps(schema).replace('"/api/_definitions.json#', '"#')
        validator = jsonschema_rs.validator_for(json.loads(text))
        faults = [
            f"{list(fault.instance_path)}: {fault.message}"
            for fault in validator.iter_errors(manifest)
        ]
        assert faults == [], manifest["metadata"]["name"]
        checked.add(manifest["kind"])
    assert checked >= {"Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget"}


@clause("X-8")
def test_x8_pods_are_restricted_and_probed(manifests: list[Manifest]) -> None:
    namespace = of_kind(manifests, "Namespace")["jobwire"]
    assert namespace["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}
    pods = {**of_kind(manifests, "Deployment"), **of_kind(manifests, "StatefulSet")}
    for name, owner in pods.items():
        pod = owner["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["enableServiceLinks"] is False, name
        rights = pod["securityContext"]
        assert rights["runAsNonRoot"], name
        assert (rights["runAsUser"], rights["runAsGroup"]) == (10001, 10001), name
        assert rights["seccompProfile"] == {"type": "RuntimeDefault"}, name
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"], name
        ports = {port["name"] for port in container["ports"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if "httpGet" in container[probe]:
                assert container[probe]["httpGet"]["port"] in ports, name
        labels = owner["spec"]["template"]["metadata"]["labels"]
        assert owner["spec"]["selector"]["matchLabels"] == labels
        policies = of_kind(manifests, "NetworkPolicy").values()
        selected = [each["spec"]["podSelector"]["matchLabels"] for each in policies]
        assert labels in selected, f"{name} has no NetworkPolicy"
    for name in ("jobwire-gateway", "jobwire-worker"):
        spec = pods[name]["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        assert container["image"] == f"jobwire:{__version__}"
        assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert spec["topologySpreadConstraints"]
        budget = of_kind(manifests, "PodDisruptionBudget")[name]["spec"]["selector"]
        assert budget == pods[name]["spec"]["selector"]


@clause("X-8")
def test_x8_settings_exist_and_agree_with_the_manifests(
    manifests: list[Manifest], tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    given: dict[str, str] = of_kind(manifests, "ConfigMap")["jobwire"]["data"]
    loaded = load(environ={**given, "JOBWIRE_GATEWAY_KEYS": KEYS})
    assert not loaded.warnings
    deployments = of_kind(manifests, "Deployment")
    worker = deployments["jobwire-worker"]["spec"]["template"]["spec"]
    drain_s = loaded.settings.worker.drain.total_seconds()
    assert worker["terminationGracePeriodSeconds"] == drain_s + 10
    gateway = deployments["jobwire-gateway"]["spec"]["template"]["spec"]
    (container,) = gateway["containers"]
    pause_s = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    drain_s = loaded.settings.gateway.drain.total_seconds()
    assert gateway["terminationGracePeriodSeconds"] == pause_s + drain_s + 10
    assert container["ports"][0]["containerPort"] == loaded.settings.gateway.port
    probe = worker["containers"][0]["livenessProbe"]
    blocked_s = probe["periodSeconds"] * probe["failureThreshold"]
    assert blocked_s >= loaded.settings.worker.max_block_s
    # The port of the image.
    port = worker["containers"][0]["ports"][0]["containerPort"]
    image = (ROOT / "deploy" / "Dockerfile").read_text()
    assert f"JOBWIRE_WORKER_METRICS_PORT={port}\n" in image
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    secrets = {
        "JOBWIRE_GATEWAY_KEYS": KEYS,
        "JOBWIRE_GATEWAY_TOKEN_SECRET": "0" * 64,
        "JOBWIRE_VALKEY_URL": "valkey://:secret@host:6379/0",
        "VALKEY_PASSWORD": "secret",
    }
    clients = {"JOBWIRE_URL", "JOBWIRE_API_KEY"}
    named = set(re.findall(r"\b(?:JOBWIRE|VALKEY)_[A-Z_]+", page)) - clients
    assert secrets.keys() <= named <= secrets.keys() | given.keys()
    load(environ=secrets)


@clause("O-14", "X-8")
def test_x8_the_fleet_scales_by_the_route_of_the_gateway(manifests: list[Manifest]) -> None:
    scaled: Any = of_kind(manifests, "ScaledObject")["jobwire-worker"]["spec"]
    assert scaled["scaleTargetRef"]["name"] in of_kind(manifests, "Deployment")
    assert "replicas" not in of_kind(manifests, "Deployment")["jobwire-worker"]["spec"]
    (trigger,) = scaled["triggers"]
    url = urlsplit(str(trigger["metadata"]["url"]))
    (service,) = of_kind(manifests, "Service").keys() - {"valkey"}
    port = of_kind(manifests, "Service")[service]["spec"]["ports"][0]
    assert url.netloc == f"{service}.jobwire:{port['port']}"
    assert url.path == fleet.SCALE.path
    settings = of_kind(manifests, "ConfigMap")["jobwire"]["data"]
    assert parse_qs(url.query) == {"slots": [settings["JOBWIRE_WORKER_SLOTS"]]}
    assert trigger["metadata"]["valueLocation"] in fleet.SCALE.answer.__struct_fields__
    assert trigger["authenticationRef"]["name"] in of_kind(manifests, "TriggerAuthentication")


@clause("O-5", "X-8")
def test_x8_prometheus_finds_the_pods_and_has_the_alarms(manifests: list[Manifest]) -> None:
    (monitor,) = of_kind(manifests, "ServiceMonitor").values()
    service = of_kind(manifests, "Service")["jobwire-gateway"]
    assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    (pods,) = of_kind(manifests, "PodMonitor").values()
    worker = of_kind(manifests, "Deployment")["jobwire-worker"]["spec"]["template"]
    assert pods["spec"]["selector"]["matchLabels"] == worker["metadata"]["labels"]
    page = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| `([^`]*jobwire_[^`]*)`", page, re.MULTILINE)
    (rules,) = of_kind(manifests, "PrometheusRule").values()
    alerts = [each["expr"] for each in rules["spec"]["groups"][0]["rules"]]
    assert alerts == rows
    assert len(alerts) > 9


@clause("X-8")
def test_x8_each_monitor_and_scaler_has_a_key_with_the_scope_that_it_needs() -> None:
    """The keys that the docs make, by the name of their Secret."""
    text = (ROOT / "docs" / "kubernetes.md").read_text()
    found = re.search(r"JOBWIRE_GATEWAY_KEYS='(.*)'", text)
    assert found is not None
    scopes = {key["name"]: key["scopes"] for key in json.loads(found[1])}
    for file, operation in (
        ("monitoring/monitors.yaml", gateway.METRICS),
        ("autoscaling/scaledobject.yaml", fleet.SCALE),
    ):
        secret = re.search(r"name: jobwire-(\w+), key: token", (FOLDER / file).read_text())
        assert secret is not None
        assert f"secret generic jobwire-{secret[1]} " in text
        assert operation.access in scopes[secret[1]]
