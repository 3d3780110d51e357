"""CPU of one empty request: a route of the gateway, plain ASGI, FastAPI; then the memory and idle
CPU of open event streams.

The limits: a route of the gateway at most 1.7 times plain ASGI and cheaper than an empty route of
FastAPI; an idle stream at most 16 KiB.
"""

import contextlib
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from typing import Final

import psutil

from bench.measure import Row, cpu_s, in_process, medians

_ROUNDS: Final = 3
_SECONDS: Final = 2.0
_CONNECTIONS: Final = 64
_WATCHERS: Final = 3000
_PEERS: Final = {"bare": "/empty", "gateway": "/empty", "fastapi": "/empty"}
_LABELS: Final = {
    "bare": "plain ASGI",
    "gateway": "route of the gateway",
    "fastapi": "FastAPI alone",
}


@contextlib.contextmanager
def _server(name: str) -> Generator[tuple[int, int]]:
    """Start a server; yields its pid and port."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(2048)
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.http_server", name, str(listening.fileno())],
            pass_fds=[listening.fileno()],
            stderr=subprocess.DEVNULL,
        )
        try:
            yield process.pid, listening.getsockname()[1]
        finally:
            process.kill()
            process.wait()


def _measure(name: str, path: str) -> dict[str, float]:
    with _server(name) as (pid, port):
        # The first round warms up and waits until the server responds.
        in_process("bench.http_load", str(port), path, str(_CONNECTIONS), "0.5")
        before_s = cpu_s(pid)
        load = [str(port), path, str(_CONNECTIONS), str(_SECONDS)]
        responses = in_process("bench.http_load", *load)["responses"]
        return {"us": (cpu_s(pid) - before_s) / responses * 1e6, "per_s": responses / _SECONDS}


def _watchers(count: int) -> dict[str, float]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + 500, max(count + 500, _hard_limit())))
    with _server("streams") as (pid, port), contextlib.ExitStack() as opened:
        request = f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()

        def watch() -> None:
            client = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(request)
            while b"event: hello" not in client.recv(4096):
                pass

        for _ in range(100):
            watch()
        process = psutil.Process(pid)
        before_bytes, before_s = process.memory_info().rss, cpu_s(pid)
        for _ in range(count):
            watch()
        grown_bytes, opened_s = process.memory_info().rss - before_bytes, cpu_s(pid) - before_s
        idle_s = cpu_s(pid)
        time.sleep(10)
        idle_s = cpu_s(pid) - idle_s
    return {
        "kib": grown_bytes / count / 1024,
        "open_us": opened_s / count * 1e6,
        "idle": idle_s * 10,
    }


def _hard_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def run() -> bool:
    rows: dict[str, list[Row]] = {}
    for _ in range(_ROUNDS):
        for name, path in _PEERS.items():
            rows.setdefault(name, []).append(_measure(name, path))
    table = {name: medians(of) for name, of in rows.items()}
    print(f"{'an empty route':<22} {'server µs':>10} {'requests/s':>11}")
    for name, row in table.items():
        print(f"{_LABELS[name]:<22} {row['us']:>10.1f} {row['per_s']:>11.0f}")
    ratio = table["gateway"]["us"] / table["bare"]["us"]
    print(f"gateway / plain ASGI: {ratio:.2f} (bar 1.70)")
    idle = _watchers(_WATCHERS)
    print(
        f"{_WATCHERS} idle streams: {idle['kib']:.1f} KiB each (bar 16), "
        f"{idle['open_us']:.0f} µs to open, {idle['idle']:.2f} % of a core"
    )
    cheaper = table["gateway"]["us"] < table["fastapi"]["us"]
    return ratio <= 1.7 and cheaper and idle["kib"] <= 16
