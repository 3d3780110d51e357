"""The services of deploy/compose.yaml as processes of this machine, without Docker.

Commands, environment, volumes and start conditions are those of the file. What differs is what a
container engine would do: names of services become loopback addresses, each port a free one, each
volume a folder. PostgreSQL is a server of the test base with the file's user and database.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self, cast

import httpx
import psycopg
import yaml
from psycopg import sql
from redis.exceptions import ConnectionError as RedisConnectionError

from jobwire.local import free_port
from jobwire.local.s3_ports import choose_ports
from jobwire.local.valkey import bundled_program
from jobwire.objects import BucketConfig
from tests.cli.runner import clean_env
from tests.e2e.endpoints import Endpoints
from tests.support import Program, wait_until_sync
from tests.support.program import ROOT

COMPOSE: Final = ROOT / "deploy" / "compose.yaml"
_VARIABLE: Final = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")
OURS: Final = ("jobwire:latest", "jobwire-full:latest")
SECRETS: Final = {
    "VALKEY_PASSWORD": "of-valkey",
    "S3_SECRET_KEY": "of-the-bucket",
    "POSTGRES_PASSWORD": "of-postgres",
}
"""What deploy/.env has besides the API keys."""
_UNWRITABLE: Final = Path("/proc")
"""Home and working directory of the programs: they write to their volumes only."""

# A port is free when it is chosen, and may be taken when the program starts.
_ATTEMPTS: Final = 3
_PORT_TAKEN: Final = ("address already in use", "is not available on", "is in use", "eaddrinuse")

Service = dict[str, Any]


class PortTaken(Exception):
    """Another program has a port that was free when it was chosen."""


def interpolated(text: str, variables: Mapping[str, str]) -> str:
    """The file's `${NAME}`, `${NAME:-default}` and `${NAME:?message}` replaced."""

    def value(found: re.Match[str]) -> str:
        name, kind, more = found.groups()
        if given := variables.get(name):
            return given
        if kind != "-":
            raise KeyError(f"{name}: {more or 'is not set'}")
        return more

    return _VARIABLE.sub(value, text)


def read_services(variables: Mapping[str, str]) -> dict[str, Service]:
    """The services of the file, with variables replaced in values as docker-compose does."""

    def resolved(node: Any) -> Any:
        if isinstance(node, str):
            return interpolated(node, variables)
        if isinstance(node, list):
            return [resolved(each) for each in cast("list[object]", node)]
        if isinstance(node, dict):
            return {name: resolved(each) for name, each in cast("dict[str, object]", node).items()}
        return node

    return resolved(yaml.safe_load(COMPOSE.read_text())["services"])


class ComposeStack:
    """`with ComposeStack(folder, postgres_url, keys) as stack: stack.endpoints`."""

    def __init__(self, folder: Path, postgres: str, api_key: str, keys: str) -> None:
        """`keys` is what JOBWIRE_GATEWAY_KEYS has for `api_key`."""
        self._parent = folder
        self._postgres = postgres
        self.api_key = api_key
        self._keys = keys
        self._programs: dict[str, Program] = {}

    def _prepare(self, attempt: int) -> None:
        """Choose ports, and folders of this attempt."""
        self._folder = self._parent / f"attempt-{attempt}"
        self._folder.mkdir()
        ports = choose_ports(self._folder).items()
        self._s3_ports = {flag: port for flag, port in ports if not flag.startswith("admin")}
        public = f"http://127.0.0.1:{self._s3_ports['s3.port']}"
        variables = {**SECRETS, "JOBWIRE_GATEWAY_KEYS": self._keys, "PUBLIC_S3_URL": public}
        self.services = read_services(variables)
        self._addresses = dict(self._choose_ports())
        self._worker_port = free_port()

    def _choose_ports(self) -> Iterator[tuple[tuple[str, int], int]]:
        for name, service in self.services.items():
            for mapping in service.get("ports", ()):
                yield (name, int(mapping.rpartition(":")[2])), free_port()
        yield ("s3", 9000), self._s3_ports["s3.port"]
        server = re.search(r":(\d+)/", self._postgres)
        assert server
        yield ("postgres", 5432), int(server[1])

    def port(self, service: str, inside: int) -> int:
        """The port of this machine for a port of a container."""
        return self._addresses[service, inside]

    # ── starting ─────────────────────────────────────────────────────────────────────────────────

    def __enter__(self) -> Self:
        for attempt in range(_ATTEMPTS):
            self._prepare(attempt)
            with contextlib.ExitStack() as stack:
                stack.callback(self._close)
                stack.enter_context(self._database())
                try:
                    self._start_all()
                except PortTaken:
                    continue
                self._stack = stack.pop_all()
            return self
        raise AssertionError("the ports of the stack were taken by other programs")

    def _start_all(self) -> None:
        self._start_valkey()
        self._start_s3()
        # What needs only Valkey starts while the one-shot services run.
        self.wait_until_healthy("valkey")
        for name in ("jobs", "worker", "createkeys"):
            self.start(name)
        self.wait_until_healthy("s3")
        self.start("createbuckets")
        for name in ("createbuckets", "createkeys"):
            assert self._programs[name].wait(timeout_s=60) == 0, self._programs[name].output
        for name in ("api", "gateway"):
            self.start(name)
        for name in ("api", "gateway", "jobs", "worker"):
            self.wait_until_healthy(name)

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _close(self) -> None:
        for program in self._programs.values():
            program.close()
        self._programs.clear()
        # A killed S3 server leaves them.
        for port in self._s3_ports.values():
            for file in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                file.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _database(self) -> Generator[None]:
        given = self.services["postgres"]["environment"]
        user, database = sql.Identifier(given["POSTGRES_USER"]), given["POSTGRES_DB"]
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database))
        with psycopg.connect(self._postgres, autocommit=True) as admin:
            password = sql.Literal(given["POSTGRES_PASSWORD"])
            admin.execute(drop)
            admin.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(user))
            admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(user, password))
            create = sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(database), user)
            admin.execute(create)
            try:
                yield
            finally:
                admin.execute(drop)
                admin.execute(sql.SQL("DROP ROLE {}").format(user))

    def _start_valkey(self) -> None:
        program, *arguments = self.services["valkey"]["command"]
        assert program == "valkey-server"
        port = str(self.port("valkey", 6379))
        place = ("--port", port, "--bind", "127.0.0.1", "--dir", str(self._volume("valkey-data")))
        self._programs["valkey"] = Program(command=[bundled_program(), *arguments, *place])

    def _start_s3(self) -> None:
        weed = Path(sysconfig.get_path("scripts"), "weed")
        # Of two flags the last one counts.
        place = ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        place += [f"-{name}={port}" for name, port in self._s3_ports.items()]
        command = [weed, "-logtostderr=true", *self._command("s3"), *place]
        env = self.services["s3"]["environment"]
        self._programs["s3"] = Program(command=command, env=env, cwd=self._folder)

    def start(self, name: str) -> None:
        """Start a service of ours, in the place of an earlier one."""
        if before := self._programs.pop(name, None):
            before.close()
        service = self.services[name]
        assert service["image"] in OURS
        entry = service.get("entrypoint", [sys.executable, "-m", "jobwire"])
        self._programs[name] = Program(
            command=[*entry, *self._command(name)], env=self._env(name), cwd=_UNWRITABLE
        )

    def _env(self, name: str) -> dict[str, str]:
        hidden = {variable: "" for variable in os.environ if variable not in clean_env()}
        path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
        data = self._mounts(name).get("/var/lib/jobwire") or self._volume(f"{name}-own")
        given = {**self.services[name].get("environment", {}), **self._ports_of(name)}
        env = {variable: self._here(name, str(text)) for variable, text in given.items()}
        env |= {"PATH": path, "JOBWIRE_DATA_DIR": str(data), "JOBWIRE_IMAGES_WORKERS": "1"}
        return {**hidden, **env, "HOME": str(_UNWRITABLE / "home")}

    def _ports_of(self, name: str) -> dict[str, str]:
        """What a container would do: each program listens on a port of this machine."""
        listens = {"api": "JOBWIRE_GATEWAY_PORT", "jobs": "JOBWIRE_GATEWAY_PORT"}
        ports = {"JOBWIRE_IMAGES_PORT": str(self.port("gateway", 8090))}
        if variable := listens.get(name):
            ports[variable] = str(self.port(name, 8080))
        if name == "worker":  # the image sets it
            ports["JOBWIRE_WORKER_METRICS_PORT"] = str(self._worker_port)
        return ports

    # ── what a container engine does ─────────────────────────────────────────────────────────────

    def _command(self, name: str) -> list[str]:
        return [self._here(name, part) for part in self.services[name]["command"]]

    def _here(self, service: str, text: str) -> str:
        """A text of the file with the addresses and folders of this machine."""
        for path, folder in self._mounts(service).items():
            text = re.sub(rf"(?<!\w){re.escape(path)}\b", str(folder), text)
        for (name, inside), port in self._addresses.items():
            networks = self.services[name].get("networks", {})
            for alias in (name, *networks.get("default", {}).get("aliases", ())):
                text = re.sub(rf"\b{alias}:{inside}\b", f"127.0.0.1:{port}", text)
        return text

    def _mounts(self, service: str) -> dict[str, Path]:
        mounts = (each.split(":") for each in self.services[service].get("volumes", ()))
        return {path: self._volume(name) for name, path, *_ in mounts}

    def _volume(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def wait_until_healthy(self, name: str) -> None:
        """Wait until the service's own health check succeeds, as far as its program is here."""
        program = self._programs[name]

        def is_healthy() -> bool:
            if program.exit_code is not None:
                output = program.output
                taken = any(text in output.lower() for text in _PORT_TAKEN)
                raise PortTaken(name) if taken else AssertionError(f"{name} ended:\n{output}")
            return self._is_healthy(name)

        wait_until_sync(is_healthy, f"{name} to be healthy", timeout_s=60)

    def _is_healthy(self, name: str) -> bool:
        kind, *command = self.services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        if command[0] == "valkey-cli":
            with contextlib.suppress(RedisConnectionError), self.endpoints.server() as server:
                return bool(server.call("PING"))
            return False
        if command[0] == "jobwire":
            env = {**os.environ, **self._env(name)}
            command = [sys.executable, "-m", *command]
        else:
            assert command[0] == "wget"
            env = {**os.environ, "NO_PROXY": "*", "no_proxy": "*"}
            url = command[-1].replace(":9000/", f":{self.port(name, 9000)}/")
            command = ["curl", "--silent", "--fail", "--output", "/dev/null", url]
        done = subprocess.run(command, capture_output=True, timeout=60, check=False, env=env)
        return done.returncode == 0

    # ── using it ─────────────────────────────────────────────────────────────────────────────────

    @property
    def endpoints(self) -> Endpoints:
        """As its users reach it."""
        given = self.services["createbuckets"]["environment"]
        password = given["VALKEY_PASSWORD"]
        return Endpoints(
            api_url=f"http://127.0.0.1:{self.port('api', 8080)}",
            api_key=self.api_key,
            valkey_url=f"valkey://:{password}@127.0.0.1:{self.port('valkey', 6379)}",
            bucket=BucketConfig(
                endpoint=f"http://127.0.0.1:{self._s3_ports['s3.port']}",
                bucket=given["S3_BUCKET"],
                access_key=given["MINIO_ACCESS_KEY_ID"],
                secret_key=given["MINIO_SECRET_ACCESS_KEY"],
            ),
            restart_gateway=self._restart_gateway,
        )

    def check_worker(self) -> None:
        """The worker of the stack is registered at its jobs, which take a job."""
        headers = {"authorization": f"Bearer {self.api_key}"}
        url = f"http://127.0.0.1:{self.port('jobs', 8080)}"
        with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=30) as http:
            wait_until_sync(lambda: http.get("/v1/workers").json()["workers"], "the worker")
            answer = http.post("/v1/jobs", json={"task": "chat", "payload": {"prompt": "hello"}})
            assert answer.status_code == 202, answer.text

    def _restart_gateway(self) -> None:
        self._programs["gateway"].kill()
        self.start("gateway")
        self.wait_until_healthy("gateway")
