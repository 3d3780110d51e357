"""The images system: an upload, a whole image, a thousand watchers (Q-6, I-36).

upload     CPU of receiving 3 MB without processing, beside a bare ASGI app; limit: twice
image      CPU of the upload gateway and its workers per photo, beside a bare pyvips loop with
           the same detector; limit: 1.25 times. Images a second, peak memory.
watchers   memory of the API for each open event stream, and its connections to Valkey
"""

from __future__ import annotations

import os
import re
import socket
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import psutil

from bench.measure import cpu_s, in_process
from bench.photo import portrait_file
from jobwire.local import LocalS3, LocalValkey, free_port
from jobwire.systems.images.contract import now_utc
from jobwire.systems.images.tokens import TokenIssuer, new_key_pair, read_private_key
from tests.support.program import Program
from tests.support.servers import Plain, plain_client
from tests.support.wait import wait_until_sync

_UPLOADS: Final = 60
_UPLOAD_BYTES: Final = 3 << 20
_ROUNDS: Final = 3
_PHOTOS: Final = 16
_WATCHERS: Final = 1000
_UPLOAD_BAR: Final = 2.0
_IMAGE_BAR: Final = 1.25


def run() -> bool:
    """Measure and print; return whether all limits are met."""
    with (
        tempfile.TemporaryDirectory(prefix="jobwire-bench-") as folder,
        LocalValkey(Path(folder) / "valkey", admin=True) as valkey,
        LocalS3(Path(folder) / "s3", bucket="bench") as store,
    ):
        return all([_uploads(Path(folder), valkey), _images(Path(folder), valkey, store)])


# ── an upload ────────────────────────────────────────────────────────────────────────────────────


def _uploads(folder: Path, valkey: LocalValkey) -> bool:
    private, public = new_key_pair()
    (folder / "private.pem").write_bytes(private)
    (folder / "public.pem").write_bytes(public)
    issuer = TokenIssuer(read_private_key(str(folder / "private.pem")), timedelta(minutes=15))
    body = b"\xff\xd8\xff\xe0" + os.urandom(_UPLOAD_BYTES - 4)
    found: dict[str, list[float]] = {"bare": [], "gateway": []}
    programs: dict[str, tuple[Program, int]] = {}
    try:
        for name in found:
            port = free_port()
            arguments = ("-m", "bench.images_server", name, str(folder), str(port), valkey.url)
            programs[name] = (Program(*arguments), port)
        for name, (_, port) in programs.items():
            wait_until_sync(lambda port=port: _listens(port), name)
        for number in range(_ROUNDS + 1):
            for name, (program, port) in programs.items():
                cpu_ms = _put_all(program, port, issuer, body)
                if number:  # the first round warms up
                    found[name].append(cpu_ms)
    finally:
        for program, _ in programs.values():
            program.close()
    bare, ours = (statistics.median(found[name]) for name in ("bare", "gateway"))
    print(
        f"upload of 3 MB without processing: {ours:.2f} ms of CPU, bare ASGI app {bare:.2f} ms, "
        f"ratio {ours / bare:.2f} (bar {_UPLOAD_BAR})"
    )
    return ours / bare <= _UPLOAD_BAR


def _put_all(program: Program, port: int, issuer: TokenIssuer, body: bytes) -> float:
    """Milliseconds of the server's CPU for an upload."""
    images = [f"bench-{time.monotonic_ns()}-{number}" for number in range(_UPLOADS)]
    tokens = {
        image: issuer.issue(image, content_type="image/jpeg", max_size=10 << 20, now=now_utc())[0]
        for image in images
    }
    begun_s = cpu_s(program.pid)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client:
        for image, token in tokens.items():
            headers = {"content-type": "image/jpeg", "authorization": f"Bearer {token}"}
            answer = client.put(f"/v1/uploads/{image}", content=body, headers=headers)
            assert answer.status_code == 202, answer.text
    return (cpu_s(program.pid) - begun_s) / _UPLOADS * 1000


# ── a whole image ────────────────────────────────────────────────────────────────────────────────


def _images(folder: Path, valkey: LocalValkey, store: LocalS3) -> bool:
    file = portrait_file(folder, "12 MP", 4032, 3024)
    ports = {"api": free_port(), "gateway": free_port()}
    programs = {side: _start(side, ports, folder, valkey, store) for side in ports}
    url = f"http://127.0.0.1:{ports['api']}"
    try:
        for side, program in programs.items():
            program.wait_for_line(f"images {side} on", timeout_s=60)
        with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
            is_met = _photos(client, programs["gateway"].pid, file)
            _watch(client, programs["api"].pid, ports["api"], valkey)
        return is_met
    finally:
        for program in programs.values():
            program.close()


def _start(
    side: str, ports: dict[str, int], folder: Path, valkey: LocalValkey, store: LocalS3
) -> Program:
    env = {
        "JOBWIRE_DATA_DIR": str(folder / side),
        "JOBWIRE_VALKEY_URL": valkey.url,
        "JOBWIRE_OBJECTS_ENDPOINT": store.endpoint,
        "JOBWIRE_OBJECTS_BUCKET": "bench",
        "JOBWIRE_OBJECTS_ACCESS_KEY": store.access_key,
        "JOBWIRE_OBJECTS_SECRET_KEY": store.secret_key,
        "JOBWIRE_IMAGES_TOKEN_PRIVATE_KEY": str(folder / "private.pem"),
        "JOBWIRE_IMAGES_TOKEN_PUBLIC_KEY": str(folder / "public.pem"),
        "JOBWIRE_IMAGES_PORT": str(ports["gateway"]),
        "JOBWIRE_IMAGES_WORKERS": "2",
        "JOBWIRE_GATEWAY_STREAMS_PER_KEY": str(2 * _WATCHERS),
        "JOBWIRE_LOGGING_LEVEL": "warning",
    }
    return Program("-m", "jobwire", "images", side, "--port", str(ports[side]), env=env)


def _photos(client: httpx.Client, pid: int, file: Path) -> bool:
    body = file.read_bytes()

    def publish(_: int) -> None:
        image = _announce(client)
        headers = {"content-type": "image/jpeg", "authorization": f"Bearer {image['token']}"}
        assert client.put(image["upload_url"], content=body, headers=headers).status_code == 202
        wait_until_sync(lambda: _is_ready(client, image["image_id"]), "the photo", timeout_s=120)

    rows: list[tuple[float, float, float]] = []
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(publish, range(4)))  # warms up
        for _ in range(_ROUNDS):
            begun_s, cpu_begun_s = time.monotonic(), _tree_cpu_s(pid)
            list(threads.map(publish, range(_PHOTOS)))
            took_s, cpu_ms = time.monotonic() - begun_s, (_tree_cpu_s(pid) - cpu_begun_s) * 1000
            bare = in_process("bench.photo_peer", "bare", "faces", str(file), timeout_s=300)
            rows.append((cpu_ms / _PHOTOS, bare["cpu_ms"], _PHOTOS / took_s))
    cpu_ms, bare_ms, rate = (statistics.median(column) for column in zip(*rows, strict=True))
    ratio = cpu_ms / bare_ms
    print(
        f"a photo of 12 MP, {len(body) / 1e6:.1f} MB, faces hidden, 2 workers: "
        f"{cpu_ms:.0f} ms of CPU an image in the whole gateway, bare pyvips loop "
        f"{bare_ms:.0f} ms, ratio {ratio:.2f} (bar {_IMAGE_BAR}); {rate:.1f} images/s; "
        f"peak memory of all its processes {_tree_peak_mib(pid):.0f} MiB"
    )
    return ratio <= _IMAGE_BAR


def _announce(client: httpx.Client) -> dict[str, Any]:
    answer = client.post("/v1/images", json={"content_type": "image/jpeg"})
    assert answer.status_code == 201, answer.text
    return answer.json()


def _is_ready(client: httpx.Client, image_id: str) -> bool:
    status = client.get(f"/v1/images/{image_id}").json()["status"]
    assert status != "failed"
    return status == "ready"


# ── watchers ─────────────────────────────────────────────────────────────────────────────────────


def _watch(client: httpx.Client, pid: int, port: int, valkey: LocalValkey) -> None:
    images = [_announce(client)["image_id"] for _ in range(_WATCHERS)]
    with plain_client(valkey) as plain:
        connections, memory = _clients(plain), _rss(pid)
        opened: list[socket.socket] = []
        try:
            for image_id in images:
                peer = socket.create_connection(("127.0.0.1", port), timeout=30)
                head = (
                    f"GET /v1/images/{image_id}/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"
                )
                peer.sendall(head.encode())
                opened.append(peer)
            for peer in opened:
                _until_first_event(peer)
            grown = _rss(pid) - memory
            more = _clients(plain) - connections
        finally:
            for peer in opened:
                peer.close()
    print(
        f"{_WATCHERS} watchers: {grown / _WATCHERS / 1024:.1f} KiB each in the API, "
        f"{more} more connections to Valkey"
    )


def _clients(plain: Plain) -> int:
    return len(str(plain.call("CLIENT", "LIST")).splitlines())


def _until_first_event(peer: socket.socket) -> None:
    seen = b""
    while b"event: processing" not in seen:
        data = peer.recv(65536)
        assert data, seen
        seen += data


# ── processes ────────────────────────────────────────────────────────────────────────────────────


def _tree(pid: int) -> list[psutil.Process]:
    own = psutil.Process(pid)
    return [own, *own.children(recursive=True)]


def _tree_cpu_s(pid: int) -> float:
    """CPU of a process and its children, including ended ones."""
    total = 0.0
    for process in _tree(pid):
        times = process.cpu_times()
        total += times.user + times.system
    ended = psutil.Process(pid).cpu_times()
    return total + ended.children_user + ended.children_system


def _tree_peak_mib(pid: int) -> float:
    found = 0
    for process in _tree(pid):
        text = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        found += int((re.search(r"VmHWM:\s*(\d+)", text) or [0, 0])[1])
    return found / 1024


def _rss(pid: int) -> int:
    return psutil.Process(pid).memory_info().rss


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
