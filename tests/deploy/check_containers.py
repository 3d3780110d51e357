"""`make deploy-check`: the image is built, and everything in deploy/ is run in a container engine.

Not part of the suite: it takes minutes, and needs the base images and ports of deploy/compose.yaml.
The tests run in the order of this file.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from jobwire import Client
from jobwire.programs.keys import new_api_key
from tests.deploy.engine import Engine, find_engine
from tests.deploy.kustomize import rendered
from tests.support import clause, wait_until_sync
from tests.support.program import ROOT

BASE: Final = "python:3.11-slim-bookworm"
IMAGES: Final = ("jobwire", "jobwire-full")
# The slim base has about 130 MB; with it the image stays below 250 MB.
MAX_OWN_BYTES: Final = 120_000_000
MAX_EXPOSURE: Final = 2.5
"""By `systemd-analyze security`: 0 is best, 10 worst."""
APP: Final = """
import asyncio
from jobwire import App, Context

app = App("check")

@app.handler("slow")
async def slow(ctx: Context) -> str:
    await asyncio.sleep(3)
    return "done"
"""


@dataclass
class Stack:
    """The services of the compose file, with a worker that has a handler of ours."""

    engine: Engine
    folder: Path
    api_key: str = ""
    env: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.api_key, hashed = new_api_key()
        keys = [{"name": "check", "scopes": ["submit", "read", "admin"], "hash": hashed}]
        names = ("VALKEY_PASSWORD", "S3_SECRET_KEY", "POSTGRES_PASSWORD")
        passwords = {name: secrets.token_hex(12) for name in names}
        self.env = {**passwords, "JOBWIRE_GATEWAY_KEYS": json.dumps(keys)}
        code = self.folder / "code"
        code.mkdir()
        (code / "check_app.py").write_text(APP)
        for path in (self.folder, code):
            path.chmod(0o755)
        worker = {
            "command": ["worker", "check_app:app"],
            "working_dir": "/srv",
            "volumes": [f"{code}:/srv:ro"],
        }
        self.file = self.folder / "worker.yaml"
        self.file.write_text(yaml.safe_dump({"services": {"worker": worker}}))

    def compose(self, *arguments: str, profile: str = "full") -> str:
        options = ("--profile", profile, *arguments)
        return self.engine.compose(*options, env=self.env, file=str(self.file))

    def up(self, *options: str, profile: str = "full") -> None:
        self.compose("up", "--detach", "--no-build", *options, profile=profile)

    def containers(self, service: str) -> list[str]:
        return self.compose("ps", "--quiet", service).split()

    def health(self, container: str) -> str:
        state = self.engine.inspect(container)["State"]
        # Without a check there is none; podman has another name for it.
        return str((state.get("Health") or state.get("Healthcheck") or {"Status": ""})["Status"])

    def start_s(self, service: str) -> float:
        """Start it again; the time until `jobwire health` says that it is ready."""
        (container,) = self.containers(service)
        self.engine.run("stop", "--time", "40", container)
        began_s = time.monotonic()
        self.engine.run("start", container)
        command = ("exec", container, "jobwire", "health")
        wait_until_sync(lambda: not self.engine.fails(*command), f"{service} to be ready")
        return time.monotonic() - began_s

    def wait_healthy(self, *services: str) -> None:
        def all_healthy() -> bool:
            found = [each for name in services for each in self.containers(name)]
            return bool(found) and all(self.health(each) == "healthy" for each in found)

        wait_until_sync(all_healthy, f"{', '.join(services)} to be healthy", timeout_s=180)

    def client(self) -> Client:
        return Client("http://localhost:8070", api_key=self.api_key)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return find_engine()


@pytest.fixture(scope="module")
def stack(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(engine, tmp_path_factory.mktemp("compose"))
    for folder in stack.folder.parents:
        if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(0o755)  # the worker's user reads its code there
    yield stack
    stack.compose("down", "--volumes", "--remove-orphans")


def say(text: str) -> None:
    print(f"  {text}", flush=True)


@clause("X-7")
@pytest.mark.parametrize("target", IMAGES)
def test_x7_the_image_is_small_and_runs_without_rights(engine: Engine, target: str) -> None:
    began_s = time.monotonic()
    image = f"{target}:latest"
    engine.build(target, image)
    found, base = engine.inspect(image), engine.inspect(BASE)
    own = found["Size"] - base["Size"]
    took_s = time.monotonic() - began_s
    size = f"{found['Size'] // 10**6} MB, {own // 10**6} of them ours"
    say(f"{image}: {size}; built in {took_s:.0f} s")
    if target == "jobwire":
        assert own < MAX_OWN_BYTES
    config = found["Config"]
    assert config["User"] == "10001:10001"
    assert config["Labels"]["org.opencontainers.image.title"] == "jobwire"
    assert (config.get("Healthcheck") or found["Healthcheck"])["Test"] == [
        "CMD",
        "jobwire",
        "health",
    ]
    bare = ("run", "--rm", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges")
    assert engine.run(*bare, image, "--version").strip()
    python = (*bare, "--entrypoint", "python", image, "-c")
    assert (
        engine.run(*python, "import os; print(os.getuid(), os.getgid())").split() == ["10001"] * 2
    )
    for name in ("pip", "hatchling"):
        assert engine.fails(*python, f"import {name}"), f"{name} is in the image"


@clause("O-8")
@pytest.mark.parametrize(("profile", "services"), [("api", ("api",)), ("gateway", ("gateway",))])
def test_o8_a_profile_alone_is_healthy(
    stack: Stack, profile: str, services: tuple[str, ...]
) -> None:
    stack.up(profile=profile)
    stack.wait_healthy("valkey", "s3", *services)
    stack.compose("down", profile=profile)


@clause("O-8", "X-7")
def test_o8_the_end_to_end_tests_pass_against_the_containers(stack: Stack) -> None:
    began_s = time.monotonic()
    stack.up()
    stack.wait_healthy("postgres", "valkey", "s3", "api", "gateway", "jobs", "worker")
    say(f"compose, profile full: healthy after {time.monotonic() - began_s:.0f} s")
    for service in ("api", "gateway", "jobs", "worker"):
        say(f"{service}: ready {stack.start_s(service):.1f} s after its start")
    for line in stack.engine.run("stats", "--no-stream").splitlines():
        say(line)
    command = " ".join(stack.engine.compose_command)
    compose = f"{command} --project-name jobwire-check --file deploy/compose.yaml --profile full"
    env = {
        "E2E_API_URL": "http://localhost:8080",
        "E2E_API_KEY": stack.api_key,
        "E2E_VALKEY_URL": f"valkey://:{stack.env['VALKEY_PASSWORD']}@localhost:6379",
        "E2E_S3_ENDPOINT": "http://localhost:9010",
        "E2E_S3_BUCKET": "follow-images",
        "E2E_S3_ACCESS_KEY": "jobwire",
        "E2E_S3_SECRET_KEY": stack.env["S3_SECRET_KEY"],
        "E2E_RESTART_GATEWAY": f"{compose} kill gateway && {compose} start gateway",
    }
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "tests/e2e",
            "-q",
            "-p",
            "no:cacheprovider",
            "--timeout=280",
        ],
        env={**os.environ, **stack.env, **env},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    say(f"tests/e2e: {done.stdout.strip().splitlines()[-1]}")


@clause("O-8", "R-1")
def test_o8_killed_and_stopped_workers_lose_no_job(stack: Stack) -> None:
    stack.up("--scale", "worker=3", "worker", "jobs")
    stack.wait_healthy("worker", "jobs")
    workers = stack.containers("worker")
    assert len(workers) == 3
    with stack.client() as jobs:
        wait_until_sync(lambda: "slow" in {task.name for task in jobs.tasks()}, "the task")
        submitted = [jobs.submit("slow", {}).job_id for _ in range(60)]
        wait_until_sync(lambda: jobs.get(submitted[0]).status == "running", "the first job")
        stack.engine.run("kill", workers[0])
        stack.engine.run("stop", "--time", "40", workers[1])
        ended = [jobs.wait(each, timeout_s=180).status for each in submitted]
    assert ended == ["done"] * len(submitted)
    say(f"{len(ended)} of {len(submitted)} jobs done; one worker killed, one stopped")


@clause("O-8")
def test_o8_data_survives_down_and_up(stack: Stack) -> None:
    with stack.client() as jobs:
        job_id = jobs.submit("slow", {}).job_id
        assert jobs.wait(job_id, timeout_s=60).status == "done"
    stack.compose("down")
    stack.up()
    stack.wait_healthy("api", "gateway", "jobs", "worker")
    with stack.client() as jobs:
        assert jobs.get(job_id).status == "done"
    stack.compose("down")


@clause("X-8")
def test_x8_the_pods_start_with_their_rights(stack: Stack, tmp_path: Path) -> None:
    """Gateway, worker and server of the small overlay as one pod each, without a cluster: no
    Services, policies, probes of their own, or autoscaling."""
    engine = stack.engine
    if not engine.is_podman:
        pytest.skip("expected: only podman runs the pods of manifests")
    manifests = rendered(ROOT / "deploy/kubernetes/overlays/small")
    by_name = {(each["kind"], each["metadata"]["name"]): each for each in manifests}
    settings = by_name["ConfigMap", "jobwire"]
    secret = {**stack.env, "JOBWIRE_GATEWAY_TOKEN_SECRET": secrets.token_hex(32)}
    secret = {name: text for name, text in secret.items() if name.startswith(("JOBWIRE", "VALKEY"))}
    # One pod, since there is no name service: they find each other on loopback.
    pods = [by_name["Deployment", f"jobwire-{name}"] for name in ("gateway", "worker")]
    server = by_name["StatefulSet", "valkey"]
    pod = _one_pod(
        [server, *pods], {**settings["data"], **secret, "VALKEY_ADDRESS": "127.0.0.1:6379"}
    )
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump(pod))
    try:
        engine.run("play", "kube", str(file), timeout_s=300)
        for program in ("gateway", "worker"):
            container = f"jobwire-{program}"
            command = ("exec", container, "jobwire", "health", program)
            ready = partial(_succeeds, engine, *command)
            wait_until_sync(ready, f"{container} to be ready", timeout_s=90)
            say(f"{container} is ready, with the securityContext of its manifest")
    finally:
        engine.fails("play", "kube", "--down", str(file))


def _succeeds(engine: Engine, *command: str) -> bool:
    return not engine.fails(*command)


def _one_pod(owners: list[dict[str, Any]], env: dict[str, str]) -> dict[str, Any]:
    containers: list[dict[str, Any]] = []
    for owner in owners:
        spec = owner["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        container.pop("envFrom", None)
        for probe in ("startupProbe", "livenessProbe", "readinessProbe", "lifecycle"):
            container.pop(probe, None)
        container["env"] = [{"name": name, "value": text} for name, text in env.items()]
        # podman fills in no variables, and does not give the server's volume to fsGroup.
        replaced = {"$(VALKEY_PASSWORD)": env["VALKEY_PASSWORD"], "yes": "no"}
        container["args"] = [replaced.get(each, each) for each in container["args"]]
        container["image"] = container["image"].replace("jobwire:0.1.0", "jobwire:latest")
        container["volumeMounts"] = [
            {"name": f"{container['name']}-{each['name']}", "mountPath": each["mountPath"]}
            for each in container["volumeMounts"]
        ]
        containers.append(container)
    spec = owners[-1]["spec"]["template"]["spec"]
    mounted = [each["name"] for container in containers for each in container["volumeMounts"]]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "jobwire"},
        "spec": {
            "securityContext": spec["securityContext"],
            "containers": containers,
            "volumes": [{"name": name, "emptyDir": {}} for name in mounted],
        },
    }


@clause("P-46")
def test_p46_the_functions_package_answers_in_128_mb(engine: Engine, tmp_path: Path) -> None:
    package = [sys.executable, "tools/function_package.py", "--python", "3.11"]
    subprocess.run(package, cwd=ROOT, check=True, capture_output=True, timeout=300)
    folder = tmp_path / "package"
    unpack = [sys.executable, "-m", "zipfile", "-e", "dist/jobwire-functions.zip", str(folder)]
    subprocess.run(unpack, cwd=ROOT, check=True)
    for path in (folder, *folder.parents):
        if path.is_relative_to("/tmp") and path != Path("/tmp"):
            path.chmod(0o755)
    settings = {
        "S3_BUCKET": "bot",
        "MINIO_ENDPOINT": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "TELEGRAM_BOT_TOKEN": "123456:" + "t" * 35,
        "TELEGRAM_WEBHOOK_SECRET": "s" * 32,
        "REPLICATE_API_TOKEN": "r8_" + "x" * 37,
        "REPLICATE_MODEL": "owner/name",
        "REPLICATE_WEBHOOK_SECRET": "whsec_c2VjcmV0c2VjcmV0c2VjcmV0",
        "CALLBACK_URL": "https://functions.example/callback",
        "PYTHONPATH": "/package",
    }
    event: dict[str, object] = {"version": "2.0", "rawPath": "/", "headers": {}, "body": "{}"}
    event["requestContext"] = {"http": {"method": "POST", "path": "/"}}
    script = f"import main; print(main.bot({event!r}, None)['statusCode'])"
    env = [part for name, text in settings.items() for part in ("--env", f"{name}={text}")]
    limits = ("--rm", "--read-only", "--memory=128m", "--cap-drop=ALL", "--network=none")
    mount = ("--volume", f"{folder}:/package:ro", "--entrypoint", "/usr/bin/env")
    code = engine.run("run", *limits, *mount, *env, BASE, "python", "-c", script)
    assert code.split() == ["401"], "an update without Telegram's secret"
    say("functions package: imported and answered in a read-only container of 128 MB")


@clause("O-8")
def test_o8_the_units_run_under_systemd(
    engine: Engine, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if not engine.is_podman:
        pytest.skip("expected: only podman boots systemd in a container")
    units = ROOT / "deploy" / "systemd"
    image = tmp_path / "image"
    (image / "units").mkdir(parents=True)
    for unit in units.glob("*.service"):
        (image / "units" / unit.name).write_text(unit.read_text())
    (image / "jobwire.yaml").write_text((units / "jobwire.yaml").read_text())
    (image / "valkey-server.service").write_text(_VALKEY_UNIT)
    (image / "Containerfile").write_text(_SYSTEMD)
    form = ("--format", "docker")
    engine.run("build", *form, "--tag", "jobwire-systemd", str(image), timeout_s=1200)
    rights = ("--systemd=always", "--cap-add=SYS_ADMIN", "--security-opt=seccomp=unconfined")
    name = "jobwire-check-systemd"
    engine.run("run", "--detach", "--name", name, *rights, "jobwire-systemd")
    request.addfinalizer(lambda: engine.run("rm", "--force", "--time", "1", name))

    def inside(*command: str) -> Callable[[], bool]:
        return partial(_succeeds, engine, "exec", name, *command)

    jobwire = "/opt/jobwire/bin/jobwire"
    wait_until_sync(inside(jobwire, "health", "gateway"), "the gateway's unit", timeout_s=120)
    for instance in ("1", "2"):
        port = ("env", f"JOBWIRE_WORKER_METRICS_PORT=946{instance}")
        ready = inside(*port, jobwire, "health", "worker")
        wait_until_sync(ready, f"jobwire-worker@{instance}", timeout_s=60)
    say("gateway and two workers are ready under systemd")
    for unit in sorted(units.glob("*.service")):
        loaded = unit.name.replace("@", "@1")
        shown = engine.run("exec", name, "systemd-analyze", "security", "--no-pager", loaded)
        verdict = shown.strip().splitlines()[-1]
        found = re.search(r"exposure level for (\S+): ([\d.]+)", verdict)
        assert found, verdict
        say(f"systemd-analyze security {found[1]} {found[2]}")
        assert float(found[2]) <= MAX_EXPOSURE
    engine.run("exec", name, "sh", "-c", "echo JOBWIRE_NO_SUCH=1 >>/etc/jobwire/environment")
    engine.run("exec", name, "systemctl", "restart", "--no-block", "jobwire-worker@1")
    failed = inside(
        "sh", "-c", "systemctl show -p Result,NRestarts jobwire-worker@1 | grep exit-code"
    )
    wait_until_sync(failed, "the unit with a wrong setting to fail", timeout_s=60)
    shown = engine.run(
        "exec", name, "systemctl", "show", "-p", "NRestarts,ExecMainStatus", "jobwire-worker@1"
    )
    assert set(shown.split()) == {"NRestarts=0", "ExecMainStatus=2"}
    say("a wrong setting: exit code 2, no restart")


_VALKEY_UNIT: Final = """
[Service]
ExecStart=/usr/local/bin/valkey-server --dir /var/lib
[Install]
WantedBy=multi-user.target
"""
_SYSTEMD: Final = """
FROM valkey/valkey:9 AS valkey
FROM jobwire:latest
USER 0
RUN apt-get update -qq && apt-get install -qq -y --no-install-recommends systemd dbus >/dev/null \\
 && install -d /etc/jobwire /srv/jobwire && touch /etc/jobwire/environment
COPY --from=valkey /usr/local/bin/valkey-server /usr/local/bin/
COPY units/ /etc/systemd/system/
COPY jobwire.yaml /etc/jobwire/
COPY valkey-server.service /etc/systemd/system/
RUN systemctl mask systemd-udevd systemd-logind getty.target console-getty.service \\
 && systemctl enable valkey-server jobwire-gateway jobwire-worker@1 jobwire-worker@2
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT []
CMD ["/lib/systemd/systemd"]
"""
