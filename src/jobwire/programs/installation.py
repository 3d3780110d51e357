"""What `jobwire up` runs, by the needs of the chosen systems, in the order of the start."""

import os
import pwd
import shlex
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from jobwire import __version__, endpoints
from jobwire.endpoints import Endpoints, S3Endpoint
from jobwire.gateway.settings import GatewaySettings
from jobwire.handlers.llm.models import files
from jobwire.handlers.llm.models.errors import NoModel
from jobwire.handlers.llm.settings import LlmSettings
from jobwire.local import DataDir, LocalValkey
from jobwire.local.program import Program
from jobwire.local.s3 import LocalS3
from jobwire.local.supervisor import SupervisedPart
from jobwire.programs import part_states
from jobwire.settings import Loaded, SettingsError
from jobwire.systems.system import Backend, System, buckets, chosen, needs, started

_FLUSH_TIMEOUT_S: Final = 3.0


class InstallationPlan(NamedTuple):
    """What `jobwire up` runs."""

    systems: Sequence[System]
    names: Sequence[str]
    """The systems as `--only` takes them."""
    starts_valkey: bool
    starts_s3: bool
    starts_worker: bool


def plan(loaded: Loaded) -> InstallationPlan:
    """Decide what `up` runs; raises SettingsError before anything is written or started.

    A server is started if a system needs it, embedded servers are on, and no address is set. Beside
    a Valkey of the user's own, what a system only uses is not started.
    """
    settings = loaded.settings
    embedded = settings.up.embedded
    own_s3 = not loaded.is_set("objects.endpoint")
    systems = chosen(loaded, has_bucket=embedded or not own_s3)
    needed = needs(systems)
    own_valkey = not (loaded.is_set("valkey.url") or loaded.is_set("valkey.address"))
    if Backend.VALKEY in needed and own_valkey and not embedded:
        fault = "valkey.url: is required without embedded servers; give --valkey URL"
        raise SettingsError([fault])
    return InstallationPlan(
        systems,
        names=settings.systems or [system.name for system in systems],
        starts_valkey=Backend.VALKEY in needed and own_valkey,
        starts_s3=Backend.BUCKET in (started(systems) if own_valkey else needed)
        and embedded
        and own_s3,
        starts_worker=settings.up.worker and any(system.engines for system in systems),
    )


class Installation:
    """The parts, their environment and the files that describe them."""

    def __init__(
        self, loaded: Loaded, plan: InstallationPlan, data: DataDir, listening: socket.socket
    ) -> None:
        self._loaded = loaded
        self._plan = plan
        self._needs = needs(plan.systems)
        self._has_bucket = plan.starts_s3 or (
            Backend.BUCKET in started(plan.systems) and bool(loaded.settings.objects.endpoint)
        )
        self._data_dir = data.path
        self._listening = listening
        settings = loaded.settings
        port = settings.up.valkey_port
        lines = [line for system in plan.systems for line in system.valkey_config(settings)]
        self._valkey = (
            LocalValkey(data.path / "valkey", port=port, extra=lines)
            if plan.starts_valkey
            else None
        )
        self._s3 = (
            LocalS3(
                data.path / "s3",
                bucket=settings.objects.bucket,
                buckets=buckets(plan.systems, settings, used=True),
            )
            if plan.starts_s3
            else None
        )
        self._parts_file = data.path / part_states.FILE
        listen_fd = listening.fileno()
        gateway = Program(
            "gateway",
            ["gateway", "--listen-fd", str(listen_fd), "--parts-file", str(self._parts_file)],
            env=self._env,
            # With the lock of the data dir: no other `up` may start before the gateway has ended.
            keep_fds=[listen_fd, data.fd],
            grace_s=settings.gateway.drain.total_seconds() + _FLUSH_TIMEOUT_S,
        )
        worker = Program(
            "worker",
            [
                "worker",
                *([settings.up.app] if settings.up.app else []),
                "--tasks",
                *(["--reload"] if settings.up.reload else []),
            ],
            env=self._worker_env,
            keep_fds=[data.fd],
            grace_s=settings.up.drain.total_seconds() + 1,
            # The process of a reloader holds no leases; its children replace each other.
            takes_over=not settings.up.reload,
            dead_pid=None if settings.up.reload else _dead_worker(data.path),
        )
        self.parts = [
            *([SupervisedPart("valkey", self._valkey)] if self._valkey else []),
            *([SupervisedPart("s3", self._s3)] if self._s3 else []),
            SupervisedPart("gateway", gateway),
            *([SupervisedPart("worker", worker)] if plan.starts_worker else []),
        ]

    @property
    def http(self) -> str:
        host, port = self._listening.getsockname()[:2]
        name = "localhost" if host in ("127.0.0.1", "::1") else host
        return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"

    def _env(self) -> Mapping[str, str]:
        """Return the variables for the child processes: settings, and the started servers."""
        env = {
            **self._loaded.child_env,
            "JOBWIRE_DATA_DIR": str(self._data_dir),
            "JOBWIRE_SYSTEMS": ",".join(self._plan.names),
        }
        if self._valkey is not None:
            env["JOBWIRE_VALKEY_URL"] = self._valkey.url
        if self._s3 is not None:
            config = self._s3.config
            env["JOBWIRE_OBJECTS_ENDPOINT"] = config.endpoint
            env["JOBWIRE_OBJECTS_ACCESS_KEY"] = config.access_key
            env["JOBWIRE_OBJECTS_SECRET_KEY"] = config.secret_key
            env["JOBWIRE_OBJECTS_REGION"] = config.region
        return env

    def _worker_env(self) -> Mapping[str, str]:
        """Return the same variables, with the drain time of `up`."""
        return {
            **self._env(),
            "JOBWIRE_WORKER_DRAIN": f"{self._loaded.settings.up.drain.total_seconds():g}s",
        }

    def publish(self, changed: Sequence[SupervisedPart]) -> None:
        """Write the states of the parts; called at every change."""
        part_states.write_parts(self._parts_file, changed)
        if all(part.state == "ready" for part in changed):
            pids = {part.name: part.pid for part in self.parts if part.pid is not None}
            found = Endpoints(
                http=self.http,
                valkey=self._valkey_url(),
                s3=self._s3_endpoint(),
                pids=pids,
                version=__version__,
                systems=self._plan.names,
            )
            endpoints.write(self._data_dir, found)

    def _valkey_url(self) -> str | None:
        if Backend.VALKEY not in self._needs:
            return None
        return self._valkey.url if self._valkey else self._loaded.settings.valkey.full_url()

    def _s3_endpoint(self) -> S3Endpoint | None:
        settings = self._loaded.settings.objects
        if not self._has_bucket:
            return None
        config = self._s3.config if self._s3 else settings.config()
        return S3Endpoint(
            endpoint=config.endpoint,
            bucket=config.bucket,
            access_key=config.access_key,
            secret_key=config.secret_key,
            region=config.region,
        )

    def facts(self) -> dict[str, str]:
        """Return the lines of the banner, without secrets."""
        settings = self._loaded.settings
        own = f"embedded, data in {self._data_dir}"
        facts = {
            "http": self.http,
            "API": f"{self.http}/docs",
            "systems": ", ".join(self._plan.names),
            "access": _access(settings.gateway),
        }
        if Backend.VALKEY in self._needs:
            facts["valkey"] = (
                own if self._valkey else f"external, at {settings.valkey.config().address}"
            )
        if self._has_bucket:
            facts["s3"] = own if self._s3 else f"external, at {settings.objects.endpoint_url}"
        if "jobs" in self._plan.names and self._plan.starts_worker:
            facts["model"] = model_fact(settings.llm)
        return facts

    def example(self, program: str) -> str:
        """Return a command to try first; `program` is how `jobwire` is called from here."""
        examples = filter(None, (system.example for system in self._plan.systems))
        found = next(examples, f"curl {self.http}/readyz")
        if not found.startswith("jobwire "):
            return found
        found = found.replace("jobwire", program, 1)
        if self._loaded.is_set("data_dir"):
            found += f" --data-dir {shlex.quote(str(self._loaded.settings.data_dir))}"
        return found

    def remove_files(self) -> None:
        """Remove the endpoints file and the states, at the end."""
        endpoints.remove(self._data_dir)
        self._parts_file.unlink(missing_ok=True)


def _dead_worker(data_dir: Path) -> int | None:
    """The worker of a program that was killed here: a program that ends by itself removes its
    endpoints file. We hold the lock that its worker has inherited, so that one has ended."""
    left = endpoints.read(data_dir)
    return None if left is None else left.pids.get("worker")


def _access(settings: GatewaySettings) -> str:
    """Return who may use the gateway (O-6)."""
    if settings.has_keys:
        return "with an API key"
    if settings.serves_own_user_only:
        return f"{_own_user()} only (gateway.local_users: any admits other users)"
    return "every user of this machine"


def _own_user() -> str:
    uid = os.geteuid()
    if uid == 0:
        return "root"
    try:
        return f"{pwd.getpwuid(uid).pw_name} and root"
    except KeyError:
        return f"user {uid} and root"


def model_fact(settings: LlmSettings) -> str:
    """Return the model that `chat` uses, or how to get one."""
    if settings.base_url:
        return f"{settings.model or 'not named'}, at {urlsplit(settings.base_url).hostname}"
    if settings.model_path:
        return f"{settings.model_path.name}, local"
    try:
        files.find_library()
        files.chat_file()
    except NoModel as missing:
        return f"none; {missing.fix}"
    return "local, 135M, a demonstration; set OPENAI_BASE_URL and OPENAI_MODEL for a real one"
