"""The parts of `jobwire up`, in the order of their start."""

import socket
from collections.abc import Mapping, Sequence
from typing import Final

from jobwire import __version__, endpoints
from jobwire.endpoints import Endpoints, S3Endpoint
from jobwire.local import DataDir, LocalValkey
from jobwire.local.program import Program
from jobwire.local.s3 import LocalS3
from jobwire.local.supervisor import SupervisedPart
from jobwire.settings import Loaded, SettingsError
from jobwire.wiring import parts

_FLUSH_TIMEOUT_S: Final = 3.0


def starts_valkey(loaded: Loaded) -> bool:
    """Whether `up` starts a Valkey: embedded servers are on, and no address is set."""
    configured = loaded.is_set("valkey.url") or loaded.is_set("valkey.address")
    if not configured and not loaded.settings.up.embedded:
        fault = "valkey.url: is required without embedded servers; give --valkey URL"
        raise SettingsError([fault])
    return not configured


def starts_s3(loaded: Loaded) -> bool:
    """Whether `up` starts an S3 server."""
    return loaded.settings.up.embedded and not loaded.is_set("objects.endpoint")


class Installation:
    """The parts, their environment and the files that describe them."""

    def __init__(self, loaded: Loaded, data: DataDir, listening: socket.socket) -> None:
        self._loaded = loaded
        self._data_dir = data.path
        self._listening = listening
        settings = loaded.settings
        self._valkey = LocalValkey(data.path / "valkey") if starts_valkey(loaded) else None
        self._s3 = (
            LocalS3(data.path / "s3", bucket=settings.objects.bucket) if starts_s3(loaded) else None
        )
        self._parts_file = data.path / parts.FILE
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
            ["worker", *([settings.up.app] if settings.up.app else []), "--tasks"],
            env=self._worker_env,
            keep_fds=[data.fd],
            grace_s=settings.up.drain.total_seconds() + 1,
        )
        self.parts = [
            *([SupervisedPart("valkey", self._valkey)] if self._valkey else []),
            *([SupervisedPart("s3", self._s3)] if self._s3 else []),
            SupervisedPart("gateway", gateway),
            SupervisedPart("worker", worker),
        ]

    @property
    def http(self) -> str:
        host, port = self._listening.getsockname()[:2]
        name = "localhost" if host in ("127.0.0.1", "::1") else host
        return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"

    def _env(self) -> Mapping[str, str]:
        """Return the variables for the child processes: settings, and the started servers."""
        env = {**self._loaded.child_env, "JOBWIRE_DATA_DIR": str(self._data_dir)}
        if self._valkey is not None:
            env["JOBWIRE_VALKEY_URL"] = self._valkey.url
        if self._s3 is not None:
            env["JOBWIRE_OBJECTS_ENDPOINT"] = self._s3.endpoint
            env["JOBWIRE_OBJECTS_ACCESS_KEY"] = self._s3.access_key
            env["JOBWIRE_OBJECTS_SECRET_KEY"] = self._s3.secret_key
            env["JOBWIRE_OBJECTS_REGION"] = self._s3.region
        return env

    def _worker_env(self) -> Mapping[str, str]:
        """Return the same variables, with the drain time of `up`."""
        return {
            **self._env(),
            "JOBWIRE_WORKER_DRAIN": f"{self._loaded.settings.up.drain.total_seconds():g}s",
        }

    def publish(self, changed: Sequence[SupervisedPart]) -> None:
        """Write the states of the parts; called at every change."""
        parts.write_parts(self._parts_file, changed)
        if all(part.state == "ready" for part in changed):
            endpoints.write(self._data_dir, self._endpoints_file())

    def _endpoints_file(self) -> Endpoints:
        settings = self._loaded.settings
        return Endpoints(
            http=self.http,
            valkey=self._valkey.url if self._valkey else settings.valkey.full_url(),
            s3=self._s3_endpoint(),
            pids={part.name: part.pid for part in self.parts if part.pid is not None},
            version=__version__,
        )

    def _s3_endpoint(self) -> S3Endpoint | None:
        settings = self._loaded.settings.objects
        if self._s3 is None and not settings.endpoint:
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
        facts = {"http": self.http}
        facts["valkey"] = (
            own if self._valkey else f"external, at {settings.valkey.config().address}"
        )
        if self._s3 or settings.objects.endpoint:
            facts["s3"] = own if self._s3 else f"external, at {settings.objects.endpoint_url}"
        return facts

    def remove_files(self) -> None:
        """Remove the endpoints file and the states, at the end."""
        endpoints.remove(self._data_dir)
        self._parts_file.unlink(missing_ok=True)
